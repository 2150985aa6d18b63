"""batch/v1 Jobs."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model import times
from kubetwin.model.conditions import holds
from kubetwin.model.errors import (
    AT_LEAST_ZERO,
    FieldError,
    Object,
    Shown,
    bad_value,
    negative_numbers,
    not_supported,
    one_of,
    required,
)
from kubetwin.model.go_types import go_text
from kubetwin.model.names import dns_label, domain_prefixed_path, validate_labels
from kubetwin.model.selectors import label_selector_of
from kubetwin.resources.job_policies import failure_policy_faults, success_policy_faults
from kubetwin.resources.pod_defaults import default_pod_spec
from kubetwin.resources.pod_validation import validate_pod_spec
from kubetwin.resources.resource import AGE, NAME, STATUS, Column, Resource
from kubetwin.store import Store

PREFIX = "batch.kubernetes.io/"
CONTROLLER_UID, JOB_NAME = f"{PREFIX}controller-uid", f"{PREFIX}job-name"
_IMMUTABLE = "field is immutable"
_INTERNAL = {"podFailurePolicy": "PodFailurePolicy", "successPolicy": "SuccessPolicy"}
"""Fields that messages show as the server's internal type prints them."""
_FIXED = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_SHOWN_CONDITIONS = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")
"""Conditions that kubectl shows, the most important first."""
_MOST_INDEXES = 100_000
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
    """Faults in the order of the server's own checks (pkg/apis/batch/validation)."""
    spec = job["spec"]
    return [
        *_generated_selector(job),
        *_numbers(spec),
        *_completion_mode(spec),
        *failure_policy_faults(spec),
        *success_policy_faults(spec),
        *_replacement_policy(spec),
        *validate_labels((spec["template"].get("metadata") or {}).get("labels"), "spec.template.labels"),
        *validate_pod_spec(spec["template"]["spec"], "spec.template.spec"),
        *_restart_policy(spec),
        *_selector(spec),
        *_index_names(job),
    ]


def _validate_status(job: Object) -> list[FieldError]:
    """Counts of pods (pkg/apis/batch/validation: validateJobStatus)."""
    return negative_numbers("status", job["status"], ("active", "succeeded", "failed", "ready", "terminating"))


def _numbers(spec: Object) -> Iterator[FieldError]:
    for name in _NUMBERS:
        value = spec.get(name)
        if value is not None and value < 0:
            yield bad_value(f"spec.{name}", value, AT_LEAST_ZERO)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if "managedBy" in spec and (fault := domain_prefixed_path(spec["managedBy"])):
        yield bad_value("spec.managedBy", spec["managedBy"], fault)


def _completion_mode(spec: Object) -> Iterator[FieldError]:
    mode, completions, most_failed = spec["completionMode"], spec.get("completions"), spec.get("maxFailedIndexes")
    modes = ("NonIndexed", "Indexed")
    yield from one_of("spec.completionMode", mode, modes)
    if mode == "NonIndexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                yield bad_value(f"spec.{name}", spec[name], "requires indexed completion mode")
    if mode != "Indexed":
        return
    if completions is None:
        yield required("spec.completions", "when completion mode is Indexed")
    if spec["parallelism"] > _MOST_INDEXES:
        detail = f"must be less than or equal to {_MOST_INDEXES} when completion mode is Indexed"
        yield bad_value("spec.parallelism", spec["parallelism"], detail)
    if most_failed is not None and completions is not None and most_failed > completions:
        yield bad_value("spec.maxFailedIndexes", most_failed, "must be less than or equal to completions")
    if most_failed is not None and most_failed > _MOST_INDEXES:
        yield bad_value("spec.maxFailedIndexes", most_failed, f"must be less than or equal to {_MOST_INDEXES}")


def _restart_policy(spec: Object) -> Iterator[FieldError]:
    path, restart = "spec.template.spec.restartPolicy", spec["template"]["spec"]["restartPolicy"]
    if restart == "Always":
        yield required(path, 'valid values: "OnFailure", "Never"')
    elif restart not in ("OnFailure", "Never"):
        yield not_supported(path, restart, ("OnFailure", "Never"))
    elif "podFailurePolicy" in spec and restart != "Never":
        yield bad_value(path, restart, 'only "Never" is supported when podFailurePolicy is specified')


def _replacement_policy(spec: Object) -> Iterator[FieldError]:
    policy, supported = spec["podReplacementPolicy"], ["Failed"]
    if "podFailurePolicy" not in spec:
        supported.append("TerminatingOrFailed")
    yield from one_of("spec.podReplacementPolicy", policy, supported)


def _generated_selector(job: Object) -> Iterator[FieldError]:
    spec, uid = job["spec"], job["metadata"]["uid"]
    selector = spec.get("selector")
    if not spec["manualSelector"] and selector and selector != {"matchLabels": {CONTROLLER_UID: uid}}:
        yield bad_value("spec.selector", selector, "`selector` not auto-generated")


def _selector(spec: Object) -> Iterator[FieldError]:
    selector = spec.get("selector")
    if not selector:
        yield required("spec.selector")
        return
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not label_selector_of(selector).matches(labels):
        detail = "`selector` does not match template `labels`"
        yield bad_value("spec.template.metadata.labels", labels, detail)


def _index_names(job: Object) -> Iterator[FieldError]:
    """The host names of an indexed Job's pods have to be labels of DNS."""
    spec, name = job["spec"], job["metadata"].get("name", "")
    if spec["completionMode"] == "Indexed" and spec.get("completions"):
        longest = f"{name}-{spec['completions'] - 1}"
        if dns_label(longest):
            detail = f"will not able to create pod with invalid DNS label: {longest}"
            yield bad_value("metadata.name", name, detail)


def validate_job_update(new: Object, old: Object) -> list[FieldError]:
    """Most of a Job is fixed; a suspended one that never started may change where its pods may go."""
    before, after = old["spec"], new["spec"]
    faults = []
    if after.get("completions") != before.get("completions"):
        faults += _changed_completions(before, after)
    for name in ("selector", "template", *_FIXED):
        if name == "template":
            if _fixed_template(new, old) != _fixed_template(old, old):
                faults.append(
                    bad_value("spec.template.spec", Shown(go_text(after["template"]["spec"], "PodSpec")), _IMMUTABLE)
                )
        elif after.get(name) != before.get(name):
            shown = Shown(go_text(after.get(name), _INTERNAL.get(name, "-")))
            faults.append(bad_value(f"spec.{name}", shown, _IMMUTABLE))
    return faults


def _changed_completions(before: Object, after: Object) -> list[FieldError]:
    """An indexed Job can be resized, if its parallelism changes together with its completions."""
    completions = after.get("completions")
    if after["completionMode"] != "Indexed" or completions is None or before.get("completions") is None:
        return [bad_value("spec.completions", completions, _IMMUTABLE)]
    if completions != after["parallelism"]:
        return [bad_value("spec.completions", completions, "can only be modified in tandem with spec.parallelism")]
    return []


def _fixed_template(job: Object, old: Object) -> Object:
    """The template without the fields that a suspended Job may change (node selectors, tolerations, resources, …)."""
    template: Object = job["spec"]["template"]
    if not old["spec"]["suspend"] or old["status"].get("startTime"):
        return template
    movable = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
    spec = {key: value for key, value in template["spec"].items() if key not in movable}
    spec["containers"] = [{k: v for k, v in c.items() if k != "resources"} for c in spec.get("containers") or []]
    return {"spec": spec}


def displayed_status(job: Object) -> str:
    """The text in kubectl's STATUS column."""
    found = [kind for kind in _SHOWN_CONDITIONS if holds(job["status"], kind)]
    if job["metadata"].get("deletionTimestamp") and found[:1] not in (["Complete"], ["Failed"]):
        return "Terminating"
    return found[0] if found else "Running"


def _completions(job: Object) -> str:
    wanted = job["spec"].get("completions")
    done = job["status"].get("succeeded", 0)
    return f"{done}/{wanted}" if wanted is not None else f"{done}/1 of {job['spec']['parallelism']}"


def _duration(job: Object) -> str:
    start = job["status"].get("startTime", "")
    end = job["status"].get("completionTime", "")
    return times.age(start, times.parse(end) if end else times.now()) if start else ""


def _joined_fields(job: Object, field: str) -> str:
    return ",".join(container.get(field, "") for container in job["spec"]["template"]["spec"]["containers"])


def _shown_selector(job: Object) -> str:
    labels = (job["spec"].get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


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
        validate_status=_validate_status,
        columns=(
            NAME,
            Column("Status", displayed_status),
            Column("Completions", _completions),
            Column("Duration", _duration),
            AGE,
            Column("Containers", lambda job: _joined_fields(job, "name"), priority=1),
            Column("Images", lambda job: _joined_fields(job, "image"), priority=1),
            Column("Selector", _shown_selector, priority=1),
        ),
    ),
)
