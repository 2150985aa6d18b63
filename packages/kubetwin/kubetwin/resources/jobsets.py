"""JobSets (jobset.x-k8s.io/v1alpha2), after the definition of JobSet 0.12."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.conditions import find_condition
from kubetwin.model.errors import FieldError, Object, bad_value, duplicate
from kubetwin.resources.custom import custom_resource
from kubetwin.resources.resource import AGE, NAME, Column
from kubetwin.resources.structural import fields, flag, list_of, reference, text, whole

_REPLICATED_JOB = fields(
    needed=("name", "template"),
    name=text(),
    groupName=text(default="default"),
    replicas=whole(default=1, minimum=0),
    template=reference("io.k8s.api.batch.v1.JobTemplateSpec"),
    dependsOn=list_of(fields(needed=("name", "status"), name=text(), status=text("Ready", "Complete"))),
)
_RULE = fields(
    needed=("action",),
    name=text(),
    action=text("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"),
    onJobFailureReasons=list_of(text()),
    onJobFailureMessagePatterns=list_of(text()),
    targetReplicatedJobs=list_of(text()),
)
JOBSET_SPEC = fields(
    replicatedJobs=list_of(_REPLICATED_JOB),
    network=fields(enableDNSHostnames=flag(), subdomain=text(), publishNotReadyAddresses=flag()),
    successPolicy=fields(needed=("operator",), operator=text("All", "Any"), targetReplicatedJobs=list_of(text())),
    failurePolicy=fields(
        maxRestarts=whole(),
        restartStrategy=text("Recreate", "BlockingRecreate", default="Recreate"),
        rules=list_of(_RULE),
    ),
    startupPolicy=fields(needed=("startupPolicyOrder",), startupPolicyOrder=text("AnyOrder", "InOrder")),
    coordinator=fields(needed=("replicatedJob",), replicatedJob=text(), jobIndex=whole(), podIndex=whole()),
    suspend=flag(),
    managedBy=text(),
    ttlSecondsAfterFinished=whole(minimum=0),
)
_LABEL_LENGTH, _SUFFIX_LENGTH = 63, 6
"""Limit of a host name, and length of a generated pod name's suffix (`-xxxxx`)."""

_FIXED = ("network", "successPolicy", "failurePolicy", "startupPolicy", "managedBy")


def _webhook(jobset: Object) -> Iterator[FieldError]:
    """Names that are missing, duplicate or too long for the pods' host names (pkg/webhooks/jobset_webhook.go)."""
    spec = jobset["spec"]
    replicated = spec.get("replicatedJobs") or []
    names = [job["name"] for job in replicated]
    for place, job in enumerate(replicated):
        path = f"spec.replicatedJobs[{place}].name"
        if job["name"] in names[:place]:
            yield duplicate(path, job["name"])
        pods = (job["template"].get("spec") or {}).get("completions") or 1
        last = f"{jobset['metadata'].get('name', '')}-{job['name']}-{job.get('replicas', 1) - 1}-{pods - 1}"
        if len(last) + _SUFFIX_LENGTH > _LABEL_LENGTH:
            yield bad_value(path, job["name"], "the name of its pods would be longer than 63 characters")
    for name in (spec.get("successPolicy") or {}).get("targetReplicatedJobs") or []:
        if name not in names:
            detail = f"invalid replicatedJob name '{name}' does not appear in .spec.ReplicatedJobs"
            yield bad_value("spec.successPolicy", name, detail)


def validate_jobset_update(new: Object, old: Object) -> list[FieldError]:
    """Refuse all changes but those of suspension and time to live, and of the jobs of a suspended set."""
    before, after = old["spec"], new["spec"]
    fixed = _FIXED if before.get("suspend") else (*_FIXED, "replicatedJobs")
    return [
        bad_value(f"spec.{name}", after.get(name), "field is immutable")
        for name in fixed
        if after.get(name) != before.get(name)
    ]


def _condition(jobset: Object, kind: str) -> str:
    return str((find_condition(jobset.get("status"), kind) or {}).get("status", ""))


RESOURCES = (
    custom_resource(
        kind="JobSet",
        plural="jobsets",
        group="jobset.x-k8s.io",
        version="v1alpha2",
        spec=JOBSET_SPEC,
        webhook=_webhook,
        rules=True,
        storage_hash="KpiKgyjBCag=",
        validate_update=validate_jobset_update,
        columns=(
            NAME,
            Column("TerminalState", lambda jobset: (jobset.get("status") or {}).get("terminalState")),
            Column("Restarts", lambda jobset: (jobset.get("status") or {}).get("restarts")),
            Column("Completed", lambda jobset: _condition(jobset, "Completed")),
            Column("Suspended", lambda jobset: jobset["spec"].get("suspend")),
            AGE,
        ),
    ),
)
