"""Volcano's kinds: batch.volcano.sh Jobs, and the PodGroups and Queues of scheduling.volcano.sh.

Schemas after volcano.sh's definitions as far as they were recorded or training programs use them; what the admission
webhooks would add or refuse is left to the controllers.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.errors import FieldError, Object, bad_value, duplicate, forbidden_field
from kubetwin.model.schema import QUANTITY
from kubetwin.resources.custom import custom_resource
from kubetwin.resources.resource import AGE, NAME, Column
from kubetwin.resources.structural import ANYTHING, POD_TEMPLATE, fields, list_of, map_of, reference, text, whole

BATCH, SCHEDULING = "batch.volcano.sh", "scheduling.volcano.sh"
EVENTS = (
    "*",
    "PodPending",
    "PodRunning",
    "PodFailed",
    "PodEvicted",
    "Unknown",
    "TaskCompleted",
    "OutOfSync",
    "CommandIssued",
    "JobUpdated",
    "TaskFailed",
)
_QUANTITIES = map_of(reference(QUANTITY))
_POLICIES = list_of(
    fields(
        action=text(),
        event=text(*EVENTS),
        events=list_of(text(*EVENTS)),
        exitCode=whole(),
        timeout=text(),
    )
)
_TASK = fields(
    needed=("template",),
    name=text(),
    replicas=whole(),
    minAvailable=whole(),
    maxRetry=whole(),
    policies=_POLICIES,
    template=POD_TEMPLATE,
    dependsOn=fields(name=list_of(text()), iteration=text()),
    topologyPolicy=text("none", "best-effort", "restricted", "single-numa-node"),
    partitionPolicy=ANYTHING,
)
_TOPOLOGY = fields(mode=text("hard", "soft"), highestTierAllowed=whole(), highestTierName=text())
_JOB = fields(
    needed=("tasks",),
    schedulerName=text(),
    minAvailable=whole(),
    minSuccess=whole(minimum=1),
    maxRetry=whole(default=3),
    queue=text(),
    priorityClassName=text(),
    ttlSecondsAfterFinished=whole(),
    runningEstimate=text(),
    policies=_POLICIES,
    plugins=map_of(list_of(text())),
    tasks=list_of(_TASK, minItems=1),
    volumes=list_of(
        fields(
            needed=("mountPath",),
            mountPath=text(),
            volumeClaimName=text(),
            volumeClaim=reference("io.k8s.api.core.v1.PersistentVolumeClaimSpec"),
        )
    ),
    networkTopology=_TOPOLOGY,
)
_POD_GROUP = fields(
    minMember=whole(),
    minTaskMember=map_of(whole()),
    minResources=_QUANTITIES,
    queue=text(default="default"),
    priorityClassName=text(),
    networkTopology=_TOPOLOGY,
    subGroupPolicy=ANYTHING,
)
_QUEUE = fields(
    weight=whole(minimum=1, default=1),
    capability=_QUANTITIES,
    deserved=_QUANTITIES,
    guarantee=ANYTHING,
    reclaimable={"type": "boolean"},
    parent=text(),
    priority=whole(),
    type=text(),
    affinity=ANYTHING,
    extendClusters=ANYTHING,
    dequeueStrategy=text("fifo", "traverse"),
)


def _job_webhook(job: Object) -> Iterator[FieldError]:
    """A gang that can never be complete, and two tasks of one name (pkg/webhooks/admission/jobs/validate)."""
    spec = job["spec"]
    replicas = [task.get("replicas", 1) for task in spec["tasks"]]
    if spec.get("minAvailable", 0) > sum(replicas):
        detail = "job 'minAvailable' should not be greater than total replicas in tasks"
        yield bad_value("spec.minAvailable", spec["minAvailable"], detail)
    names = [task.get("name", f"default{place}") for place, task in enumerate(spec["tasks"])]
    for place, name in enumerate(names):
        if name in names[:place]:
            yield duplicate(f"spec.tasks[{place}].name", name)
    yield from _unsupported_fields(job)


def _unsupported_fields(job: Object) -> Iterator[FieldError]:
    """Faults of fields that would be ignored silently otherwise."""
    places = [("spec", job["spec"])]
    places += [(f"spec.tasks[{place}]", task) for place, task in enumerate(job["spec"]["tasks"])]
    for path, part in places:
        if "dependsOn" in part:
            yield forbidden_field(f"{path}.dependsOn", "this cluster starts all tasks at once; leave it out")
        for number, policy in enumerate(part.get("policies") or []):
            if "timeout" in policy:
                yield forbidden_field(f"{path}.policies[{number}].timeout", "this cluster acts at once; leave it out")


def _phase(job: Object) -> str:
    return str(((job.get("status") or {}).get("state") or {}).get("phase", ""))


RESOURCES = (
    custom_resource(
        kind="Job",
        plural="jobs",
        group=BATCH,
        version="v1alpha1",
        spec=_JOB,
        webhook=_job_webhook,
        short_names=("vcjob", "vj"),
        storage_hash="DbMX/QqtM30=",
        columns=(
            NAME,
            Column("Status", _phase),
            Column("minAvailable", lambda job: (job.get("status") or {}).get("minAvailable"), type="integer"),
            Column("Runnings", lambda job: (job.get("status") or {}).get("running"), type="integer"),
            AGE,
            Column("Queue", lambda job: job["spec"].get("queue"), priority=1),
        ),
    ),
    custom_resource(
        kind="PodGroup",
        plural="podgroups",
        group=SCHEDULING,
        version="v1beta1",
        spec=_POD_GROUP,
        has_status=False,
        short_names=("pg", "podgroup-v1beta1"),
        columns=(
            NAME,
            Column("Status", lambda group: (group.get("status") or {}).get("phase")),
            Column("minMember", lambda group: group["spec"].get("minMember"), type="integer"),
            Column("Runnings", lambda group: (group.get("status") or {}).get("running"), type="integer"),
            AGE,
            Column("Queue", lambda group: group["spec"].get("queue"), priority=1),
        ),
    ),
    custom_resource(
        kind="Queue",
        plural="queues",
        group=SCHEDULING,
        version="v1beta1",
        namespaced=False,
        spec=_QUEUE,
        short_names=("q", "queue-v1beta1"),
        columns=(NAME, Column("Parent", lambda queue: queue["spec"].get("parent"))),
    ),
)
