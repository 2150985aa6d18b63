"""batch/v1 Jobs."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model import times
from kubetwin.model.errors import FieldError, Object, bad_value, not_supported, required
from kubetwin.model.names import validate_labels
from kubetwin.model.selectors import label_selector_of
from kubetwin.resources.pod_defaults import default_pod_spec
from kubetwin.resources.pod_validation import validate_pod_spec
from kubetwin.resources.resource import STATUS, Column, Resource
from kubetwin.store import Store

PREFIX = "batch.kubernetes.io/"
CONTROLLER_UID, JOB_NAME = f"{PREFIX}controller-uid", f"{PREFIX}job-name"
_AT_LEAST_ZERO = "must be greater than or equal to 0"
_IMMUTABLE = "field is immutable"
_NUMBERS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)


def default_job(job: Object) -> None:
    """Defaults of a Job and its template."""
    spec = job.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or []:
        for pattern in rule.get("onPodConditions") or []:
            pattern.setdefault("status", "True")
    default_pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))


def prepare_job(job: Object, _store: Store) -> None:
    """Generate the labels and the selector that tie pods to this Job."""
    spec, metadata = job["spec"], job["metadata"]
    if not spec["manualSelector"]:
        uid, name = metadata["uid"], metadata.get("name", "")
        labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
        labels.update({CONTROLLER_UID: uid, "controller-uid": uid, JOB_NAME: name, "job-name": name})
        spec.setdefault("selector", {}).setdefault("matchLabels", {})[CONTROLLER_UID] = uid
    labels = spec["template"].get("metadata", {}).get("labels")
    if labels and not metadata.get("labels") and not validate_labels(labels, ""):
        metadata["labels"] = dict(labels)


def validate_job(job: Object) -> list[FieldError]:
    spec = job["spec"]
    faults = list(_numbers(spec))
    modes = ("NonIndexed", "Indexed")
    if spec["completionMode"] not in modes:
        faults.append(not_supported("spec.completionMode", spec["completionMode"], modes))
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        faults.append(required("spec.completions", "when completion mode is Indexed"))
    faults += _selector(job)
    faults += _failure_policy(spec)
    labels = (spec["template"].get("metadata") or {}).get("labels")
    faults += validate_labels(labels, "spec.template.labels")
    template = spec["template"]["spec"]
    faults += validate_pod_spec(template, "spec.template.spec")
    if template["restartPolicy"] == "Always":
        faults.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    return faults


def _numbers(spec: Object) -> Iterator[FieldError]:
    for name in _NUMBERS:
        value = spec.get(name)
        if value is not None and value < 0:
            yield bad_value(f"spec.{name}", value, _AT_LEAST_ZERO)


def _selector(job: Object) -> list[FieldError]:
    spec, uid = job["spec"], job["metadata"]["uid"]
    selector = spec.get("selector")
    if not selector:
        return [required("spec.selector")]
    faults = []
    generated = {"matchLabels": {CONTROLLER_UID: uid}}
    if not spec["manualSelector"] and selector != generated:
        faults.append(bad_value("spec.selector", selector, "`selector` not auto-generated"))
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not label_selector_of(selector).matches(labels):
        detail = "`selector` does not match template `labels`"
        faults.append(bad_value("spec.template.metadata.labels", labels, detail))
    return faults


def _failure_policy(spec: Object) -> Iterator[FieldError]:
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or []
    if rules and spec["template"]["spec"]["restartPolicy"] != "Never":
        restart = spec["template"]["spec"]["restartPolicy"]
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        yield bad_value("spec.template.spec.restartPolicy", restart, detail)
    actions = ("Count", "FailIndex", "FailJob", "Ignore")
    for place, rule in enumerate(rules):
        path = f"spec.podFailurePolicy.rules[{place}]"
        if rule.get("action") not in actions:
            yield not_supported(f"{path}.action", rule.get("action", ""), actions)
        codes = rule.get("onExitCodes")
        if codes and codes.get("operator") not in ("In", "NotIn"):
            yield not_supported(f"{path}.onExitCodes.operator", codes.get("operator", ""), ("In", "NotIn"))
        for number, code in enumerate((codes or {}).get("values") or []):
            if code == 0 and codes["operator"] == "In":
                detail = "must not be 0 for the In operator"
                yield bad_value(f"{path}.onExitCodes.values[{number}]", code, detail)


def validate_job_update(new: Object, old: Object) -> list[FieldError]:
    """Most of a Job is fixed; a suspended one that never started may change where its pods may go."""
    before, after = old["spec"], new["spec"]
    faults = []
    elastic = after["completionMode"] == "Indexed" and after.get("completions") == after["parallelism"]
    if after.get("completions") != before.get("completions") and not elastic:
        faults.append(bad_value("spec.completions", after.get("completions"), _IMMUTABLE))
    for name in ("selector", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        if after.get(name) != before.get(name):
            faults.append(bad_value(f"spec.{name}", after.get(name), _IMMUTABLE))
    if after["completionMode"] != before["completionMode"]:
        faults.append(bad_value("spec.completionMode", after["completionMode"], _IMMUTABLE))
    if _fixed_template(new, old) != _fixed_template(old, old):
        faults.append(bad_value("spec.template.spec", after["template"]["spec"], _IMMUTABLE))
    return faults


def _fixed_template(job: Object, old: Object) -> Object:
    """The template without the fields that a suspended Job may change (node selectors, tolerations, resources, …)."""
    template: Object = job["spec"]["template"]
    if not old["spec"]["suspend"] or old["status"].get("startTime"):
        return template
    movable = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
    spec = {key: value for key, value in template["spec"].items() if key not in movable}
    spec["containers"] = [{k: v for k, v in c.items() if k != "resources"} for c in spec.get("containers") or []]
    return {"spec": spec}


def _condition(job: Object, kind: str) -> Object | None:
    conditions = job["status"].get("conditions") or []
    return next((c for c in conditions if c["type"] == kind and c["status"] == "True"), None)


def displayed_status(job: Object) -> str:
    """The text in kubectl's STATUS column."""
    if _condition(job, "Complete"):
        return "Complete"
    if _condition(job, "Failed"):
        return "Failed"
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if _condition(job, "Suspended"):
        return "Suspended"
    if _condition(job, "FailureTarget"):
        return "FailureTarget"
    return "SuccessCriteriaMet" if _condition(job, "SuccessCriteriaMet") else "Running"


def _completions(job: Object) -> str:
    wanted = job["spec"].get("completions")
    done = job["status"].get("succeeded", 0)
    return f"{done}/{wanted}" if wanted is not None else f"{done}/1 of {job['spec']['parallelism']}"


def _duration(job: Object) -> str:
    start = job["status"].get("startTime", "")
    end = job["status"].get("completionTime", "")
    return times.age(start, times.parse(end) if end else times.now()) if start else ""


def _images(job: Object) -> str:
    return ",".join(c.get("image", "") for c in job["spec"]["template"]["spec"]["containers"])


RESOURCES = (
    Resource(
        kind="Job",
        plural="jobs",
        group="batch",
        type_name="io.k8s.api.batch.v1.Job",
        categories=("all",),
        storage_hash="mudhfqk/qZY=",
        has_generation=True,
        orphans_by_default=True,
        fields=("status.successful",),
        subresources=(STATUS,),
        default=default_job,
        prepare=prepare_job,
        validate=validate_job,
        validate_update=validate_job_update,
        columns=(
            Column("Name", lambda job: job["metadata"]["name"], format="name"),
            Column("Status", displayed_status),
            Column("Completions", _completions),
            Column("Duration", _duration),
            Column("Age", lambda job: times.age(job["metadata"]["creationTimestamp"], times.now())),
            Column("Images", _images, priority=1),
        ),
    ),
)
