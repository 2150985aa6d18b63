"""Asks AWS and a cluster about a deployment. Each question has an answer of its own: one refusal hides nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

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
from trainflow.client.refusals import sentence_of
from trainflow.deployment.address import DeploymentAddress
from trainflow.deployment.functions import EVENT_HANDLERS, LIVE, TASKS, deployed_name
from trainflow.errors import TrainflowError
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.faults import RequestRefused
from trainflow.observed.node import read_node
from trainflow.protocol.pods import SERVICE_ACCOUNT

Client = Callable[[str], Any]
"""Makes a boto3 client of a service."""

_T = TypeVar("_T")

MISSING = frozenset(
    {
        *("404", "NoSuchBucket", "NotFound", "NotFoundException", "ResourceNotFound", "ResourceNotFoundException"),
        *("AWS.SimpleQueueService.NonExistentQueue", "FileSystemNotFound", "QueueDoesNotExist"),
        "StateMachineDoesNotExist",
    }
)
"""Codes of the services for a part that does not exist (API references, 'Errors'); S3 answers HEAD with the status."""

SHORTAGES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
"""Conditions of a node that are True if something is wrong (Kubernetes documentation, 'Node Status')."""

FSX_DRIVER = "fsx.csi.aws.com"


def asked(question: Callable[[], Answer[_T]]) -> Answer[_T]:
    """The answer to a question to AWS or to the cluster."""
    try:
        return question()
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in MISSING:
            return Absent()
        return Unasked(sentence_of(error))
    except BotoCoreError as error:
        return Unasked(sentence_of(error))
    except (TrainflowError, RequestRefused) as error:
        return Unasked(str(error))


def ask_aws(address: DeploymentAddress, client: Client, file_systems: Answer[Sequence[str]]) -> AwsFacts:
    """Every question to AWS.

    Args:
        address: Names of the deployment's parts.
        client: Makes a boto3 client of a service.
        file_systems: Ids of the file systems that volumes of the cluster name.
    """
    name = address.plan_function.removesuffix("-Preflight") or address.deployment
    functions = {each.name: _function(client, name, each.name) for each in (*TASKS, *EVENT_HANDLERS)}
    aliases = {each.name: _alias(client, name, each.name) for each in EVENT_HANDLERS}
    mapping = asked(lambda: _mapping(client, name))
    schedules = asked(lambda: _schedules(client, name))
    return AwsFacts(
        state_machine=asked(lambda: _state_machine(client, address.state_machine_arn)),
        functions=functions,
        aliases=aliases,
        artifact_bucket=asked(lambda: _bucket(client, address.artifact_bucket)),
        data_bucket=asked(lambda: _bucket(client, address.data_bucket)),
        sends_events=asked(lambda: _sends_events(client, address.data_bucket)),
        uploads=_then(mapping, lambda found: asked(lambda: _event_source(client, found))),
        upload_rules=_then(mapping, lambda found: asked(lambda: _rules(client, found["EventSourceArn"]))),
        end_rules=_then(aliases["CleanUp"], lambda alias: asked(lambda: _rules(client, alias))),
        schedules=_then(schedules, lambda found: {each["Name"]: each["State"] for each in found}),
        survey_schedules=_then(schedules, _surveys),
        subscriptions=asked(lambda: _subscriptions(client, name)),
        alarms=asked(lambda: _alarms(client, name)),
        cluster=asked(lambda: client("eks").describe_cluster(name=address.cluster)["cluster"]),
        nodegroups=asked(lambda: _nodegroups(client, address.cluster)),
        addons=asked(lambda: _addons(client, address.cluster)),
        file_systems=_then(file_systems, lambda ids: asked(lambda: _file_systems(client, ids))),
    )


def ask_cluster(api: KubernetesApi, namespace: str) -> tuple[ClusterFacts, Answer[Sequence[str]]]:
    """Every question to the cluster.

    Returns:
        The answers, and the ids of FSx's file systems that its volumes name.
    """

    def objects(path: str) -> Answer[Sequence[Object]]:
        return asked(lambda: (api.find(path) or {}).get("items") or [])

    def one(path: str) -> Answer[Object]:
        return asked(lambda: api.find(path) or Absent())

    inside = f"/api/v1/namespaces/{namespace}"
    nodes = objects("/api/v1/nodes")
    facts = ClusterFacts(
        version=asked(lambda: str(api.call("GET", "/version")["gitVersion"])),
        namespace=one(inside),
        service_account=one(f"{inside}/serviceaccounts/{SERVICE_ACCOUNT}"),
        claims=objects(f"{inside}/persistentvolumeclaims"),
        quotas=objects(f"{inside}/resourcequotas"),
        deployments=objects("/apis/apps/v1/deployments"),
        daemon_sets=objects("/apis/apps/v1/daemonsets"),
        nodes=_then(nodes, lambda found: [read_node(node) for node in found]),
        pressures={} if isinstance(nodes, Absent | Unasked) else dict(_pressure(node) for node in nodes),
    )
    volumes = objects("/api/v1/persistentvolumes")
    return facts, _then(volumes, lambda found: sorted({name for each in found for name in _fsx_ids(each)}))


def _then(answer: Answer[Any], next_question: Callable[[Any], Any]) -> Any:
    """The answer to a question that needs an answer; without that, the same absence or refusal."""
    return answer if isinstance(answer, Absent | Unasked) else next_question(answer)


def _state_machine(client: Client, arn: str) -> str:
    return str(client("stepfunctions").describe_state_machine(stateMachineArn=arn)["status"])


def _function(client: Client, deployment: str, name: str) -> Answer[FunctionState]:
    full = deployed_name(deployment, name)

    def state() -> FunctionState:
        found = client("lambda").get_function_configuration(FunctionName=full)
        reserved = asked(lambda: client("lambda").get_function_concurrency(FunctionName=full))
        update = str(found.get("LastUpdateStatus", "Successful"))
        reason = found.get("LastUpdateStatusReason") if update == "Failed" else found.get("StateReason")
        return FunctionState(
            state=str(found.get("State", "Active")),
            reason=str(reason or ""),
            update=update,
            concurrency=None
            if isinstance(reserved, Absent | Unasked)
            else reserved.get("ReservedConcurrentExecutions"),
        )

    return asked(state)


def _alias(client: Client, deployment: str, name: str) -> Answer[str]:
    full = deployed_name(deployment, name)
    return asked(lambda: str(client("lambda").get_alias(FunctionName=full, Name=LIVE)["AliasArn"]))


def _rules(client: Client, target: str) -> Mapping[str, str]:
    events = client("events")
    names = events.list_rule_names_by_target(TargetArn=target)["RuleNames"]
    return {name: str(events.describe_rule(Name=name)["State"]) for name in names}


def _bucket(client: Client, name: str) -> str:
    client("s3").head_bucket(Bucket=name)
    return name


def _sends_events(client: Client, name: str) -> bool:
    return "EventBridgeConfiguration" in client("s3").get_bucket_notification_configuration(Bucket=name)


def _mapping(client: Client, deployment: str) -> Any:
    pages = client("lambda").get_paginator("list_event_source_mappings").paginate()
    start_run = f":function:{deployed_name(deployment, 'StartRun')}:"
    found = (mapping for page in pages for mapping in page["EventSourceMappings"])
    return next((mapping for mapping in found if start_run in f"{mapping['FunctionArn']}:"), Absent())


def _event_source(client: Client, mapping: Object) -> EventSource:
    sqs = client("sqs")
    waiting, dead_letters = asked(lambda: _queue(sqs, mapping["EventSourceArn"])), ""
    if not isinstance(waiting, Absent | Unasked):
        dead_letters = waiting[1]
    lost = asked(lambda: _queue(sqs, dead_letters)) if dead_letters else Absent()
    return EventSource(
        state=str(mapping["State"]),
        waiting=None if isinstance(waiting, Absent | Unasked) else waiting[0],
        lost=None if isinstance(lost, Absent | Unasked) else lost[0],
    )


def _queue(sqs: Any, arn: str) -> tuple[int, str]:
    """Messages in a queue, and the ARN of its dead-letter queue; an empty text without one."""
    url = sqs.get_queue_url(QueueName=arn.rpartition(":")[2])["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "RedrivePolicy"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names).get("Attributes", {})
    policy = json.loads(found.get("RedrivePolicy") or "{}")
    return int(found.get("ApproximateNumberOfMessages", 0)), str(policy.get("deadLetterTargetArn", ""))


def _schedules(client: Client, deployment: str) -> list[Object]:
    pages = client("scheduler").get_paginator("list_schedules").paginate(GroupName=deployment)
    return [schedule for page in pages for schedule in page["Schedules"]]


def _surveys(schedules: Sequence[Object]) -> frozenset[str]:
    """Names of the schedules that search for forgotten nodes."""
    return frozenset(each["Name"] for each in schedules if "SurveyFleet" in each["Target"]["Arn"])


def _subscriptions(client: Client, deployment: str) -> Answer[Mapping[str, bool]]:
    """Addresses, and whether each was confirmed. Who may not decrypt the environment does not see the topic."""
    notify = deployed_name(deployment, "Notify")
    environment = client("lambda").get_function_configuration(FunctionName=notify).get("Environment", {})
    topic = environment.get("Variables", {}).get("TOPIC_ARN")
    if topic is None:
        return Unasked(f"The environment of {notify}, which names the topic, cannot be read: kms:Decrypt on its key.")
    pages = client("sns").get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic)
    found = [subscription for page in pages for subscription in page["Subscriptions"]]
    return {str(each["Endpoint"]): each["SubscriptionArn"].startswith("arn:") for each in found}


def _alarms(client: Client, deployment: str) -> list[str]:
    pages = (
        client("cloudwatch")
        .get_paginator("describe_alarms")
        .paginate(AlarmNamePrefix=f"{deployment}-", StateValue="ALARM")
    )
    return [
        str(each["AlarmName"])
        for page in pages
        for each in (*page.get("MetricAlarms", ()), *page.get("CompositeAlarms", ()))
    ]


def _nodegroups(client: Client, cluster: str) -> list[Object]:
    eks = client("eks")
    pages = eks.get_paginator("list_nodegroups").paginate(clusterName=cluster)
    names = [name for page in pages for name in page["nodegroups"]]
    return [eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"] for name in names]


def _addons(client: Client, cluster: str) -> list[Object]:
    eks = client("eks")
    pages = eks.get_paginator("list_addons").paginate(clusterName=cluster)
    names = [name for page in pages for name in page["addons"]]
    return [eks.describe_addon(clusterName=cluster, addonName=name)["addon"] for name in names]


def _file_systems(client: Client, ids: Sequence[str]) -> list[Object]:
    if not ids:
        return []
    return list(client("fsx").describe_file_systems(FileSystemIds=list(ids))["FileSystems"])


def _fsx_ids(volume: Object) -> list[str]:
    source = volume.get("spec", {}).get("csi") or {}
    return [str(source["volumeHandle"])] if source.get("driver") == FSX_DRIVER and source.get("volumeHandle") else []


def _pressure(node: Object) -> tuple[str, list[str]]:
    conditions = node.get("status", {}).get("conditions") or []
    short = [str(each["type"]) for each in conditions if each.get("type") in SHORTAGES and each.get("status") == "True"]
    return str(node["metadata"]["name"]), short
