"""Findings about a deployment, with advice. Pure: answers in, one finding for each check out.

The order is that of a run: what starts it, what reports it, the cluster, the namespace, the nodes. What depends on a
part that failed comes after it, so that the first failed line is the one to begin with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainflow.cli.doctor.deployed.facts import (
    Absent,
    Answer,
    AwsFacts,
    ClusterFacts,
    EventSource,
    FunctionState,
    Object,
    Unasked,
)
from trainflow.cli.doctor.findings import PLUGINS, Finding, Outcome
from trainflow.nodes.instances import GPU_DEVICE, INSTANCE_TYPES, NEURON_DEVICE
from trainflow.observed.node import Node
from trainflow.observed.quantity import parse_quantity
from trainflow.protocol.pods import CLAIM, SERVICE_ACCOUNT

DEPLOY = "Run `make deploy` with the deployment's configuration."
SWEEP = "`trainflow sweep` lists and deletes what ended runs have left."
MAX_NAMES = 3
"""Most names of a list in a sentence."""

READY = frozenset({"ACTIVE", "UPDATING"})
"""States of a cluster, a node group or an add-on that works (EKS API reference)."""

WORKING_FUNCTION = frozenset({"Active", "Inactive"})
"""States of a function that can be used. The first call of an inactive one fails, and prepares it again (Lambda
developer guide, 'Lambda function states')."""


def aws_findings(facts: AwsFacts) -> Iterator[Finding]:
    """Findings about what starts runs, executes them and reports them."""
    yield _state_machine(facts.state_machine)
    yield _functions(facts.functions)
    yield _aliases(facts.aliases)
    yield _bucket("artifact bucket", facts.artifact_bucket, "Records, logs and results of runs have no place.")
    yield _bucket("data bucket", facts.data_bucket, "Uploaded specs and data sets have no place.")
    yield _upload_events(facts.sends_events)
    yield _rules("rule for uploads", facts.upload_rules, "An uploaded spec starts no run.")
    yield from _uploads(facts.uploads)
    yield _rules("rule for ended runs", facts.end_rules, "A run that is stopped or times out is not cleaned up after.")
    yield _schedules(facts.schedules, facts.survey_schedules)
    yield _subscriptions(facts.subscriptions)
    yield _alarms(facts.alarms)
    yield _cluster(facts.cluster)
    yield _eks_parts("node groups", facts.nodegroups, "nodegroupName")
    yield _eks_parts("add-ons", facts.addons, "addonName")
    yield _file_systems(facts.file_systems)


def cluster_findings(facts: ClusterFacts) -> Iterator[Finding]:
    """Findings about the cluster behind its API."""
    yield _api(facts.version)
    if isinstance(facts.version, Unasked):
        return
    yield _namespace(facts.namespace)
    yield _exists("service account", facts.service_account, f"{SERVICE_ACCOUNT}: the pods of runs cannot be created.")
    yield _claims(facts.claims)
    yield _quotas(facts.quotas)
    yield _workloads("controllers", facts.deployments, "replicas", "readyReplicas", "deployment")
    yield _workloads("daemon sets", facts.daemon_sets, "", "numberReady", "daemonset")
    yield _nodes(facts.nodes)
    yield _pressures(facts.pressures, facts.nodes)
    yield _devices(facts.nodes)


def _ok(check: str, seen: str) -> Finding:
    return Finding(check, Outcome.OK, seen)


def _failed(check: str, seen: str, advice: str) -> Finding:
    return Finding(check, Outcome.FAILED, seen, advice)


def _skipped(check: str, seen: str) -> Finding:
    return Finding(check, Outcome.SKIPPED, seen)


def _judged(check: str, answer: Answer[Any], absent: str, judge: Callable[[Any], Finding]) -> Finding:
    """The finding about an answer: skipped if it could not be asked, failed if the part does not exist.

    Args:
        check: Name of the check.
        answer: The answer.
        absent: Consequence and advice if the part does not exist.
        judge: The finding about what exists.
    """
    if isinstance(answer, Unasked):
        return _skipped(check, answer.reason)
    if isinstance(answer, Absent):
        return _failed(check, "it does not exist", absent)
    return judge(answer)


def _some(names: Sequence[str]) -> str:
    shown, more = names[:MAX_NAMES], len(names) - MAX_NAMES
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _state_machine(answer: Answer[str]) -> Finding:
    def judge(status: str) -> Finding:
        if status == "ACTIVE":
            return _ok("state machine", status)
        return _failed("state machine", status, f"It starts no run any more. Wait until it is deleted. {DEPLOY}")

    return _judged("state machine", answer, f"No run can start. {DEPLOY}", judge)


def _functions(answers: Mapping[str, Answer[FunctionState]]) -> Finding:
    """One finding for all functions: the first that cannot be invoked."""
    unasked = [answer.reason for answer in answers.values() if isinstance(answer, Unasked)]
    for name, answer in answers.items():
        if isinstance(answer, Absent):
            return _failed("functions", f"{name} does not exist", DEPLOY)
        if isinstance(answer, Unasked):
            continue
        reason = f" ({answer.reason})" if answer.reason else ""
        if answer.update == "Failed":
            return _failed("functions", f"the last update of {name} has failed{reason}", DEPLOY)
        if answer.state == "Pending":
            return _failed("functions", f"{name} is {answer.state}{reason}", "Ask again in a minute.")
        if answer.state not in WORKING_FUNCTION:
            return _failed("functions", f"{name} is {answer.state}{reason}", DEPLOY)
        if answer.concurrency == 0:
            advice = f"Every call is throttled: aws lambda delete-function-concurrency --function-name NAME-{name}."
            return _failed("functions", f"{name} has a reserved concurrency of 0", advice)
    if unasked:
        return _skipped("functions", unasked[0])
    return _ok("functions", f"{len(answers)} can be invoked")


def _aliases(answers: Mapping[str, Answer[str]]) -> Finding:
    absent = [name for name, answer in answers.items() if isinstance(answer, Absent)]
    if absent:
        return _failed("aliases", f"{_some(absent)}: no alias `live`", f"Events call it in vain. {DEPLOY}")
    refused = [answer.reason for answer in answers.values() if isinstance(answer, Unasked)]
    if refused:
        return _skipped("aliases", refused[0])
    return _ok("aliases", f"{len(answers)} functions have their alias `live`")


def _bucket(check: str, answer: Answer[str], consequence: str) -> Finding:
    return _judged(check, answer, f"{consequence} {DEPLOY}", lambda name: _ok(check, name))


def _upload_events(answer: Answer[bool]) -> Finding:
    def judge(sends: bool) -> Finding:
        if sends:
            return _ok("events of uploads", "the data bucket reports its objects to EventBridge")
        advice = f"An uploaded spec starts no run. {DEPLOY}"
        return _failed("events of uploads", "the data bucket does not report its objects to EventBridge", advice)

    return _judged("events of uploads", answer, DEPLOY, judge)


def _rules(check: str, answer: Answer[Mapping[str, str]], consequence: str) -> Finding:
    def judge(rules: Mapping[str, str]) -> Finding:
        if not rules:
            return _failed(check, "it does not exist", f"{consequence} {DEPLOY}")
        disabled = [name for name, state in rules.items() if state == "DISABLED"]
        if disabled:
            advice = f"{consequence} aws events enable-rule --name {disabled[0]}"
            return _failed(check, f"{_some(disabled)}: disabled", advice)
        return _ok(check, "enabled")

    return _judged(check, answer, f"{consequence} {DEPLOY}", judge)


def _uploads(answer: Answer[EventSource]) -> Iterator[Finding]:
    def state(found: EventSource) -> Finding:
        if found.state in {"Enabled", "Enabling", "Creating", "Updating"}:
            waiting = f", {found.waiting} messages wait" if found.waiting else ""
            return _ok("queue of uploads", f"{found.state}{waiting}")
        advice = f"Uploaded specs wait in the queue for at most four days. {DEPLOY}"
        return _failed("queue of uploads", f"its connection to StartRun is {found.state}", advice)

    def lost(found: EventSource) -> Finding:
        if found.lost is None:
            return _skipped("lost uploads", "the dead-letter queue could not be counted")
        if not found.lost:
            return _ok("lost uploads", "none")
        advice = "A message to the topic named each of them with its reason: correct the specs and upload them again."
        return _failed("lost uploads", f"{found.lost} in the dead-letter queue", advice)

    yield _judged("queue of uploads", answer, f"An uploaded spec starts no run. {DEPLOY}", state)
    yield _judged("lost uploads", answer, DEPLOY, lost)


def _schedules(answer: Answer[Mapping[str, str]], surveys: Answer[frozenset[str]]) -> Finding:
    def judge(schedules: Mapping[str, str]) -> Finding:
        if isinstance(surveys, frozenset) and not surveys:
            return _failed("schedules", "none searches for forgotten nodes", f"{SWEEP} {DEPLOY}")
        disabled = [name for name, state in schedules.items() if state == "DISABLED"]
        if disabled:
            advice = "It starts nothing until it is enabled in EventBridge Scheduler or deployed again."
            return _failed("schedules", f"{_some(disabled)}: disabled", advice)
        return _ok("schedules", f"{len(schedules)} enabled")

    return _judged("schedules", answer, f"Nothing searches for forgotten nodes. {SWEEP} {DEPLOY}", judge)


def _subscriptions(answer: Answer[Mapping[str, bool]]) -> Finding:
    def judge(addresses: Mapping[str, bool]) -> Finding:
        if not addresses:
            advice = "Nobody learns of failures: put addresses into `alarms.emails` and run `make deploy`."
            return _failed("recipients of messages", "there is none", advice)
        unconfirmed = [address for address, confirmed in addresses.items() if not confirmed]
        if unconfirmed:
            advice = (
                "Open the link in the mail `AWS Notification - Subscription Confirmation`; it is valid for two days."
            )
            return _failed("recipients of messages", f"{_some(unconfirmed)}: not confirmed", advice)
        return _ok("recipients of messages", f"{len(addresses)} confirmed")

    return _judged("recipients of messages", answer, DEPLOY, judge)


def _alarms(answer: Answer[Sequence[str]]) -> Finding:
    def judge(names: Sequence[str]) -> Finding:
        if not names:
            return _ok("alarms", "none is in the state ALARM")
        return _failed(
            "alarms", f"{_some(names)}: in the state ALARM", "Its description in CloudWatch says what to do."
        )

    return _judged("alarms", answer, DEPLOY, judge)


def _cluster(answer: Answer[Object]) -> Finding:
    def judge(cluster: Object) -> Finding:
        status = str(cluster.get("status", ""))
        if status not in READY:
            return _failed("cluster", f"{cluster.get('name')} is {status}", "No job can start until it is ACTIVE.")
        if issue := _issue(cluster):
            return _failed("cluster", f"{cluster.get('name')}: {issue}", "Repair what EKS names; runs wait until then.")
        return _ok("cluster", f"{cluster.get('name')}, Kubernetes {cluster.get('version')}")

    return _judged("cluster", answer, f"No job can start. {DEPLOY}", judge)


def _eks_parts(check: str, answer: Answer[Sequence[Object]], name_field: str) -> Finding:
    """The first node group or add-on that is not well."""

    def judge(parts: Sequence[Object]) -> Finding:
        if not parts:  # node groups: with `capacity.cluster` the cluster makes the nodes
            return _skipped(check, "EKS manages none")
        for part in parts:
            name, status, issue = part[name_field], str(part.get("status", "")), _issue(part)
            if issue:
                advice = "Repair what EKS names. For a quota: `trainflow check-account`."
                return _failed(check, f"{name} ({status}): {issue}", advice)
            if status not in READY:
                return _failed(check, f"{name} is {status}", "Wait until it is ACTIVE, or deploy it again.")
        return _ok(check, f"{len(parts)} active")

    if isinstance(answer, Absent):  # the cluster does not exist, which has a finding of its own
        return _skipped(check, "EKS does not know the cluster")
    return _judged(check, answer, DEPLOY, judge)


def _issue(part: Object) -> str:
    """The first health issue that EKS reports about a cluster, a node group or an add-on; empty without one."""
    issues = (part.get("health") or {}).get("issues") or []
    return f"{issues[0].get('code')}: {issues[0].get('message')}" if issues else ""


def _file_systems(answer: Answer[Sequence[Object]]) -> Finding:
    def judge(systems: Sequence[Object]) -> Finding:
        if not systems:
            return _skipped("file system", "no volume of the cluster is on FSx")
        for system in systems:
            if system.get("Lifecycle") not in {"AVAILABLE", "UPDATING"}:
                reason = (system.get("FailureDetails") or {}).get("Message") or "the FSx console has the reason"
                seen = f"{system.get('FileSystemId')} is {system.get('Lifecycle')}"
                return _failed("file system", seen, f"Pods cannot mount it: {str(reason).rstrip('.')}.")
        return _ok("file system", ", ".join(str(system.get("FileSystemId")) for system in systems))

    return _judged("file system", answer, f"Pods wait for their volume. {DEPLOY}", judge)


def unreachable(refusal: Unasked) -> Finding:
    """The finding about a cluster whose API did not answer, or does not know the caller."""
    advice = "Your network has to be in `cluster.public_endpoint_cidrs`, and your role in `cluster.administrators`."
    return _failed("Kubernetes API", refusal.reason.rstrip("."), advice)


def _api(answer: Answer[str]) -> Finding:
    if isinstance(answer, Unasked):
        return unreachable(answer)
    return _judged("Kubernetes API", answer, DEPLOY, lambda version: _ok("Kubernetes API", version))


def _namespace(answer: Answer[Object]) -> Finding:
    def judge(namespace: Object) -> Finding:
        phase = str((namespace.get("status") or {}).get("phase") or "Active")
        if phase == "Active":
            return _ok("namespace", str(namespace["metadata"]["name"]))
        advice = f"Nothing can be created in it. When it is gone: {DEPLOY}"
        return _failed("namespace", f"{namespace['metadata']['name']} is {phase}", advice)

    return _judged("namespace", answer, f"No pod of a run can be created. {DEPLOY}", judge)


def _exists(check: str, answer: Answer[Object], consequence: str) -> Finding:
    return _judged(check, answer, f"{consequence} {DEPLOY}", lambda found: _ok(check, str(found["metadata"]["name"])))


def _claims(answer: Answer[Sequence[Object]]) -> Finding:
    def judge(claims: Sequence[Object]) -> Finding:
        phases = {str(claim["metadata"]["name"]): str((claim.get("status") or {}).get("phase")) for claim in claims}
        if CLAIM not in phases:
            return _failed("claims", f"{CLAIM} does not exist", f"Pods wait for their volume. {DEPLOY}")
        unbound = [f"{name} is {phase}" for name, phase in phases.items() if phase != "Bound"]
        if unbound:
            return _failed("claims", _some(unbound), "Pods wait for it: kubectl -n NAMESPACE describe pvc CLAIM.")
        return _ok("claims", f"{len(phases)} bound")

    return _judged("claims", answer, DEPLOY, judge)


def _quotas(answer: Answer[Sequence[Object]]) -> Finding:
    def judge(quotas: Sequence[Object]) -> Finding:
        for quota in quotas:
            status = quota.get("status") or {}
            for resource, hard in (status.get("hard") or {}).items():
                used = (status.get("used") or {}).get(resource, "0")
                if parse_quantity(str(used)) >= parse_quantity(str(hard)):
                    seen = f"{quota['metadata']['name']}: {resource} is used up ({used} of {hard})"
                    return _failed("quotas", seen, "The API refuses further pods until others end or it is raised.")
        return _ok("quotas", f"{len(quotas)} in the namespace" if quotas else "none in the namespace")

    return _judged("quotas", answer, DEPLOY, judge)


def _workloads(check: str, answer: Answer[Sequence[Object]], wanted: str, ready: str, kind: str) -> Finding:
    """The first Deployment or DaemonSet with fewer ready pods than it wants."""

    def judge(objects: Sequence[Object]) -> Finding:
        for each in objects:
            metadata, status = each["metadata"], each.get("status") or {}
            number = int(each["spec"].get(wanted, 1)) if wanted else int(status.get("desiredNumberScheduled", 0))
            if int(status.get(ready) or 0) < number:
                seen = f"{metadata['namespace']}/{metadata['name']} has {status.get(ready) or 0} of {number} pods ready"
                advice = f"kubectl -n {metadata['namespace']} describe {kind} {metadata['name']} and its pods' events."
                return _failed(check, seen, advice)
        return _ok(check, f"{len(objects)} ready") if objects else _skipped(check, "the cluster has none")

    return _judged(check, answer, DEPLOY, judge)


def _nodes(answer: Answer[Sequence[Node]]) -> Finding:
    def judge(nodes: Sequence[Node]) -> Finding:
        for node in nodes:
            if node.trouble:
                advice = f"Runs avoid it. kubectl describe node {node.name} has the kubelet's reason."
                return _failed("nodes", f"{node.name}: {node.trouble}", advice)
        cordoned = [node.name for node in nodes if node.cordoned and not node.released and not node.cordoned_by_run]
        if cordoned:
            advice = f"It takes no pods: kubectl uncordon {cordoned[0]}, unless somebody repairs it."
            return _failed("nodes", f"{_some(cordoned)}: cordoned by hand", advice)
        return _ok("nodes", f"{len(nodes)} ready" if nodes else "none is up, as without a run")

    return _judged("nodes", answer, DEPLOY, judge)


def _pressures(pressures: Mapping[str, Sequence[str]], nodes: Answer[Sequence[Node]]) -> Finding:
    if isinstance(nodes, Unasked):
        return _skipped("room on nodes", nodes.reason)
    for node, conditions in pressures.items():
        if conditions:
            advice = "The kubelet evicts pods and pulls no image: delete what fills it, or replace the node."
            return _failed("room on nodes", f"{node} reports {', '.join(conditions)}", advice)
    return _ok("room on nodes", "no node reports a shortage")


def _devices(answer: Answer[Sequence[Node]]) -> Finding:
    """A ready node whose devices its plugin does not offer."""

    def judge(nodes: Sequence[Node]) -> Finding:
        for node in nodes:
            known = INSTANCE_TYPES.get(node.instance_type or "")
            if known is None or not node.ready:
                continue
            for resource, number in ((NEURON_DEVICE, known.neuron_devices), (GPU_DEVICE, known.gpus)):
                if int(node.allocatable.get(resource, "0")) < number:
                    seen = f"{node.name} offers {node.allocatable.get(resource, '0')} of {number} {resource}"
                    return _failed("devices", seen, f"Look at {PLUGINS[resource]} on that node.")
        return _ok("devices", "every ready node offers its devices")

    return _judged("devices", answer, DEPLOY, judge)
