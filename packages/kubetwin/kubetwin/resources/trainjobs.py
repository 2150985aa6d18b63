"""TrainJobs and their runtimes (trainer.kubeflow.org/v1alpha1), after the definitions of Kubeflow Trainer 2.3.0.

Source: github.com/kubeflow/trainer, v2.3.0, manifests/base/crds. Trainer's admission webhooks are not part of it: a
runtime that a TrainJob names may be missing, and may be created later.
"""

from __future__ import annotations

from typing import Any

from kubetwin.model.errors import Object
from kubetwin.model.schema import Schema
from kubetwin.resources.cel_rules import (
    AT_LEAST_ONE,
    HAS_LAST_UPDATE,
    IMMUTABLE,
    IS_TRAINJOB_MANAGER,
    IS_URI,
    KEY,
    NAME_IS_A_LABEL,
    NAME_LENGTH,
    NO_NODE_CONTAINER,
    ONE_POLICY,
    rule,
)
from kubetwin.resources.custom import custom_resource
from kubetwin.resources.jobsets import JOBSET_SPEC
from kubetwin.resources.resource import AGE, NAME, Column
from kubetwin.resources.structural import ANYTHING, fields, flag, keyed_list, list_of, map_of, reference, text, whole

GROUP, VERSION = "trainer.kubeflow.org", "v1alpha1"
CONTROLLER = "trainer.kubeflow.org/trainjob-controller"

_CORE = "io.k8s.api.core.v1"
_FIXED = rule(IMMUTABLE, "field is immutable")


def _fixed(schema: Schema, *others: Object) -> Schema:
    """A field that does not change once it is set."""
    return {**schema, KEY: [*others, _FIXED]}


def _name(**rules: Any) -> Schema:
    return text(minLength=1, maxLength=253, **rules)


_VARIABLES = keyed_list("name", reference(f"{_CORE}.EnvVar"), maxItems=128)
_METADATA = fields(
    labels=map_of(text()),
    annotations=map_of(text()),
    finalizers=list_of(text()),
    name=text(),
    namespace=text(),
)

_INITIALIZER = fields(
    storageUri=text(
        maxLength=2048,
        **{KEY: [rule(IS_URI, "storageUri may be empty, or it must be a valid URI (scheme://...)")]},
    ),
    env=_VARIABLES,
    secretRef=fields(name=text()),
)
_WORDS = list_of(text(maxLength=1048576), maxItems=128)
_TRAINER = fields(
    image=text(maxLength=500),
    command=_WORDS,
    args=_WORDS,
    env=_VARIABLES,
    numNodes=whole(),
    numProcPerNode=whole(),
    resourcesPerNode=reference(f"{_CORE}.ResourceRequirements"),
)
_CONTAINERS = keyed_list(
    "name",
    fields(
        needed=("name",),
        name=_name(),
        env=_VARIABLES,
        volumeMounts=keyed_list("name", reference(f"{_CORE}.VolumeMount"), maxItems=128),
        securityContext=reference(f"{_CORE}.SecurityContext"),
    ),
    maxItems=64,
)
_POD_PATCH = fields(
    serviceAccountName=_fixed(text(maxLength=253)),
    volumes=_fixed(keyed_list("name", reference(f"{_CORE}.Volume"), maxItems=128)),
    initContainers=_fixed(_CONTAINERS),
    containers=_fixed(_CONTAINERS),
    imagePullSecrets=_fixed(keyed_list("name", fields(name=text()), maxItems=64)),
    securityContext=_fixed(reference(f"{_CORE}.PodSecurityContext")),
    nodeSelector=map_of(text()),
    affinity=reference(f"{_CORE}.Affinity"),
    tolerations=list_of(reference(f"{_CORE}.Toleration"), maxItems=128),
    schedulingGates=keyed_list("name", fields(needed=("name",), name=text()), maxItems=16),
    terminationGracePeriodSeconds=_fixed(whole(minimum=0)),
)


def _patch(spec: Schema) -> Schema:
    return fields(metadata=_METADATA, spec=spec)


_REPLICATED_JOB_PATCH = fields(needed=("name",), name=_name(), template=_patch(fields(template=_patch(_POD_PATCH))))
_RUNTIME_PATCH = fields(
    needed=("manager",),
    manager=_fixed(_name()),
    time=text(format="date-time"),
    trainingRuntimeSpec=fields(
        template=_patch(fields(replicatedJobs=keyed_list("name", _REPLICATED_JOB_PATCH, maxItems=100)))
    ),
)
_SPEC = fields(
    needed=("runtimeRef",),
    runtimeRef=_fixed(
        fields(
            needed=("name",),
            name=_name(),
            apiGroup=text(maxLength=253, default=GROUP),
            kind=text(maxLength=253, default="ClusterTrainingRuntime"),
        )
    ),
    initializer=_fixed(fields(dataset=_INITIALIZER, model=_INITIALIZER)),
    trainer=_fixed(_TRAINER),
    runtimePatches=keyed_list("manager", _RUNTIME_PATCH, maxItems=16),
    suspend=flag(default=False),
    activeDeadlineSeconds=_fixed(whole(minimum=1)),
    managedBy=_fixed(
        text(maxLength=253, default=CONTROLLER),
        rule(
            IS_TRAINJOB_MANAGER,
            "ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set",
        ),
    ),
)
_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")
_STATUS = {
    **fields(
        conditions=keyed_list(
            "type",
            fields(
                needed=("lastTransitionTime", "message", "reason", "status", "type"),
                lastTransitionTime=text(format="date-time"),
                message=text(maxLength=32768),
                observedGeneration=whole(minimum=0),
                reason=text(minLength=1, maxLength=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
                status=text("True", "False", "Unknown"),
                type=text(maxLength=316),
            ),
            maxItems=8,
        ),
        jobsStatus=keyed_list(
            "name",
            fields(needed=(*sorted(_COUNTS), "name"), name=_name(), **{count: whole(minimum=0) for count in _COUNTS}),
            maxItems=100,
        ),
        trainerStatus={
            **fields(
                progressPercentage=whole(minimum=0, maximum=100),
                estimatedRemainingSeconds=whole(minimum=0),
                metrics=list_of(
                    fields(
                        needed=("name", "value"),
                        name=text(minLength=1, maxLength=64),
                        value=text(minLength=1, maxLength=64),
                    ),
                    maxItems=256,
                ),
                lastUpdatedTime=text(format="date-time"),
            ),
            KEY: [rule(HAS_LAST_UPDATE, "lastUpdatedTime is required when trainerStatus is present")],
        },
    ),
    "minProperties": 1,
}

_TARGET = fields(
    needed=("containerNames", "jobName"),
    jobName=_name(),
    containerNames=list_of(
        text(maxLength=63),
        minItems=1,
        maxItems=8,
        **{
            KEY: [
                rule(
                    NO_NODE_CONTAINER,
                    "containerNames must not include the main node container because PET_* envs are always injected "
                    "into it",
                )
            ]
        },
    ),
)
_ML_POLICY = {
    **fields(
        numNodes=whole(),
        torch=fields(envInjection=fields(targets=keyed_list("jobName", _TARGET, maxItems=16))),
        mpi=fields(
            numProcPerNode=whole(default=1),
            mpiImplementation=text("OpenMPI", "", default="OpenMPI"),
            sshAuthMountPath=text(maxLength=4096, default="/root/.ssh"),
            runLauncherAsNode=flag(default=False),
        ),
        flux=fields(
            numProcPerNode=whole(default=1, **{KEY: [rule(AT_LEAST_ONE, "NumProcPerNode in fluxPolicy must be >= 1")]})
        ),
        jax=fields(),
        xgboost=fields(),
    ),
    KEY: [rule(ONE_POLICY, "Only one of the policy can be configured")],
}
_RUNTIME_SPEC = {
    **fields(
        mlPolicy=_ML_POLICY,
        podGroupPolicy=fields(
            coscheduling=fields(scheduleTimeoutSeconds=whole(default=60)), volcano=fields(networkTopology=ANYTHING)
        ),
        template={**fields(metadata=_METADATA, spec=JOBSET_SPEC), "minProperties": 1},
    ),
    "minProperties": 1,
}


def _state(job: Object) -> str:
    """The type of the newest condition (`.status.conditions[-1:].type`)."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return str(conditions[-1]["type"]) if conditions else ""


RESOURCES = (
    custom_resource(
        kind="TrainJob",
        plural="trainjobs",
        group=GROUP,
        version=VERSION,
        spec=_SPEC,
        status=_STATUS,
        rules=True,
        root_rules=(
            rule(NAME_IS_A_LABEL, "metadata.name must match RFC 1035 DNS label format"),
            rule(NAME_LENGTH, "metadata.name must be no more than 63 characters"),
        ),
        needs_spec=False,
        storage_hash="9Kb7D6SpiCQ=",
        columns=(NAME, Column("State", _state), AGE),
    ),
    *(
        custom_resource(
            kind=kind,
            plural=plural,
            group=GROUP,
            version=VERSION,
            namespaced=namespaced,
            spec=_RUNTIME_SPEC,
            rules=True,
            has_status=False,
            needs_spec=False,
            storage_hash=storage_hash,
            columns=(NAME, AGE),
        )
        for kind, plural, namespaced, storage_hash in (
            ("TrainingRuntime", "trainingruntimes", True, "vzc4aeQR2cg="),
            ("ClusterTrainingRuntime", "clustertrainingruntimes", False, "wtBXHJ101+A="),
        )
    ),
)
