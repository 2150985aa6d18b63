"""The Kubernetes objects that a job becomes, on every backend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubetwin.model.quantity import parse_quantity
from kubetwin.resources import load_registry
from kubetwin.resources.structural import prune

from lambdas.backends.registry import KINDS
from lambdas.logic.jobs import GANGS, Job, job_of
from tests.fakes.runs import STARTED_AT, TOOLS_IMAGE, TRAINER_IMAGE, run_on
from trainflow.cli.account.checks.cluster import CHECKED_VERSIONS
from trainflow.client.spec_file import read_spec
from trainflow.deployment.backends import KUBERNETES_KINDS, MAX_HOST_NAME, BackendName
from trainflow.workflow.compile_cache import CacheUse, Hold, shared_folder
from trainflow.workflow.run import Run, Stage

GOLDEN = Path("tests/assets/manifests")
SUBMITTED = Path("packages/kubetwin/tests/recordings/golden-manifests")
SEEDS = sorted(path for path in Path("runs").glob("*.yaml") if read_spec(path).compute.backend in KUBERNETES_KINDS)
REGISTRY = load_registry()

each_backend = pytest.mark.parametrize("backend", KUBERNETES_KINDS)


def job(backend: BackendName, stage: Stage = Stage.TRAINING, **fields: Any) -> Job:
    return job_of(run_on(backend, **fields), stage, 1, artifacts_url="s3://artifacts/runs/x/")


def rendered(job: Job) -> list[dict[str, Any]]:
    return KINDS[job.ref.backend].render(job)


def pod_templates(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What pods are made of, wherever a kind keeps it; a pod is its own."""
    spec = manifest["spec"]
    match manifest["kind"]:
        case "Service" | "NetworkPolicy" | "TrainJob":
            return []
        case "Pod":
            return [{"metadata": manifest["metadata"], "spec": spec}]
        case "JobSet":
            return [spec["replicatedJobs"][0]["template"]["spec"]["template"]]
        case "TrainingRuntime":
            return [spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]]
        case "PyTorchJob":
            return [replica["template"] for replica in spec["pytorchReplicaSpecs"].values()]
        case _ if "tasks" in spec:
            return [task["template"] for task in spec["tasks"]]
        case _:
            return [spec["template"]]


def pods(job: Job) -> list[dict[str, Any]]:
    return [template["spec"] for manifest in rendered(job) for template in pod_templates(manifest)]


def seed_run(path: Path) -> Run:
    spec = read_spec(path)
    arn = "arn:aws:states:us-west-2:123456789012:execution:trainflow-training:x"
    tools = None if spec.compute.backend == "slurm" else TOOLS_IMAGE
    return Run(
        run_id=f"{spec.name}-0123456789ab", execution_arn=arn, started_at=STARTED_AT, spec=spec, tools_image=tools
    )


def seed_cache(run: Run) -> CacheUse | None:
    """The cache that `AcquireCache` returns for a run that precompiles."""
    key = f"{run.spec.cacheset}-0123456789ab"
    leased = CacheUse(key=key, folder=shared_folder(key, run.run_id), hold=Hold.LEASE)
    return leased if run.spec.precompiles else None


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_the_manifests_of_a_seed_are_the_golden_ones(path: Path, stage: Stage) -> None:
    """`python -m tests.goldens` writes them again; review the difference before the commit."""
    run = seed_run(path)
    golden = GOLDEN / f"{path.stem}-{stage}.yaml"
    if (stage is Stage.STAGE and run.spec.dataset is None) or (stage is Stage.PRECOMPILE and not run.spec.precompiles):
        assert not golden.exists()
        return
    url = f"s3://artifacts/runs/{run.run_id}/"
    objects = rendered(job_of(run, stage, 1, artifacts_url=url, cache=seed_cache(run)))
    assert list(yaml.safe_load_all(golden.read_text())) == objects


@each_backend
@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("version", CHECKED_VERSIONS)
def test_every_object_is_what_kubernetes_accepts(backend: BackendName, stage: Stage, version: str) -> None:
    for manifest in rendered(job(backend, stage)):
        if manifest["apiVersion"] in ("v1", "batch/v1", "networking.k8s.io/v1"):
            kubernetes_validate.validate(manifest, version, strict=True)
        for template in pod_templates(manifest):
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            kubernetes_validate.validate(pod, version, strict=True)


@pytest.mark.parametrize(
    ("backend", "recorded"), [("jobset", "jobset"), ("volcano", "volcano-job"), ("pytorchjob", "pytorchjob")]
)
def test_a_custom_resource_has_the_form_that_real_controllers_have_taken(backend: BackendName, recorded: str) -> None:
    """Fields of the recordings' own are there, with the types that they have there."""
    (*_, ours) = rendered(job(backend))
    theirs = yaml.safe_load((SUBMITTED / f"{recorded}-submitted.yaml").read_text())
    assert (ours["apiVersion"], ours["kind"]) == (theirs["apiVersion"], theirs["kind"])
    assert_same_form(ours["spec"], theirs["spec"], "spec")


def assert_same_form(ours: Any, theirs: Any, where: str) -> None:
    assert type(ours) is type(theirs), where
    if where.endswith((".template.spec", ".plugins")):
        return  # pods are validated by themselves; which plugins a job has is its own affair
    if isinstance(theirs, list):
        for one in ours[:1] if theirs else ():
            assert_same_form(one, theirs[0], f"{where}[0]")
    if isinstance(theirs, dict):
        optional = {"policies", "labels"}
        for name, value in theirs.items():
            assert name in ours or name in optional, f"{where}.{name}"
            if name in ours:
                assert_same_form(ours[name], value, f"{where}.{name}")


@each_backend
def test_pods_are_confined_as_far_as_the_image_allows(backend: BackendName) -> None:
    for pod in pods(job(backend)):
        context, container = pod["securityContext"], pod["containers"][0]
        assert context["runAsNonRoot"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
        assert not pod["automountServiceAccountToken"]


@each_backend
@pytest.mark.parametrize("stage", [Stage.PREFLIGHT, *GANGS])
def test_helpers_come_from_trainflows_image_into_a_container_that_cannot_change_them(
    backend: BackendName, stage: Stage
) -> None:
    for pod in pods(job(backend, stage)):
        (helpers,), (program,) = pod["initContainers"], pod["containers"]
        assert (helpers["image"], program["image"]) == (TOOLS_IMAGE, TRAINER_IMAGE)
        assert helpers["command"][:5] == ["python", "-m", "trainer.helpers.install", "--into", "/trainflow/helpers"]
        own = [mount for mount in helpers["volumeMounts"] if mount["name"] != "shared"]
        assert own == [{"name": "helpers", "mountPath": "/trainflow"}]
        assert {"name": "helpers", "mountPath": "/trainflow", "readOnly": True} in program["volumeMounts"]
        assert helpers["securityContext"] == program["securityContext"]


@each_backend
@pytest.mark.parametrize("stage", [Stage.PREFLIGHT, *GANGS])
def test_the_init_container_asks_for_nothing_beside_the_program(backend: BackendName, stage: Stage) -> None:
    """Of an init container's requests and the containers', Kubernetes reserves the larger ones."""
    for pod in pods(job(backend, stage)):
        (helpers,), (program,) = pod["initContainers"], pod["containers"]
        for kind in ("requests", "limits"):
            for resource, asked in helpers["resources"][kind].items():
                assert parse_quantity(asked) <= parse_quantity(program["resources"][kind][resource])


@each_backend
@pytest.mark.parametrize("stage", [Stage.PREFLIGHT, *GANGS])
def test_an_init_container_fetches_the_code_into_a_folder_that_the_program_may_write(
    backend: BackendName, stage: Stage
) -> None:
    url = f"s3://artifacts/code/{'0' * 64}.tar.gz"
    for pod in pods(job(backend, stage, workload__code=url)):
        (helpers,), (program,) = pod["initContainers"], pod["containers"]
        assert helpers["command"][-4:] == ["--code", url, "--workspace", "/workspace"]
        for container in (helpers, program):
            assert {"name": "code", "mountPath": "/workspace"} in container["volumeMounts"]
        assert {"name": "code", "emptyDir": {}} in pod["volumes"]
    assert "/workspace" not in str(pods(job(backend, stage)))


def shared_mounts(pod: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The mounts of the shared file system in the program's container, by their paths."""
    mounts = pod["containers"][0]["volumeMounts"]
    return {mount["mountPath"]: mount for mount in mounts if mount["name"] == "shared"}


@each_backend
@pytest.mark.parametrize("stage", Stage)
def test_only_the_stager_writes_data_sets(backend: BackendName, stage: Stage) -> None:
    for pod in pods(job(backend, stage)):
        mounts = shared_mounts(pod)
        if stage is Stage.STAGE:
            assert mounts == {"/data": {"name": "shared", "mountPath": "/data", "subPath": "data"}}
        else:
            assert mounts.get("/data", {"readOnly": True})["readOnly"]


@each_backend
@pytest.mark.parametrize("stage", Stage)
def test_of_the_runs_folders_a_program_writes_its_own_and_sees_those_that_its_spec_names(
    backend: BackendName, stage: Stage
) -> None:
    made = job(
        backend,
        stage,
        resume_from=["bert-000000000001", "bert-000000000002"],
        workload__arguments={"initial_weights": "/runs/large-000000000003/checkpoints", "log": "/x/runs/other"},
        workload__env={"TEACHER": "s3://b/runs/far:/runs/near-000000000004"},
    )
    named = ["bert-000000000001", "bert-000000000002", "large-000000000003", "near-000000000004"]
    program = stage in (*GANGS, Stage.PREFLIGHT)
    written = [f"/runs/{made.run_id}"] if program else []
    read = [f"/runs/{name}" for name in named] if program else []
    read += [f"/runs/{made.run_id}"] if stage is Stage.PUBLISH else []
    for pod in pods(made):
        mounts = {path: mount for path, mount in shared_mounts(pod).items() if path.startswith("/runs")}
        assert all(mount["subPath"] == path.lstrip("/") for path, mount in mounts.items())
        assert [path for path, mount in mounts.items() if not mount.get("readOnly")] == written
        assert [path for path, mount in mounts.items() if mount.get("readOnly")] == read


@each_backend
@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("hold", [None, *Hold])
def test_a_shared_cache_is_written_while_it_is_compiled_and_by_no_other_key(
    backend: BackendName, stage: Stage, hold: Hold | None
) -> None:
    run = run_on(backend)
    own, key = f"/cache/runs/{run.run_id}", "bert-0123456789ab"
    folder = f"runs/{run.run_id}/graphs" if hold is Hold.OWN else f"{key}/bert-000000000001"
    cache = CacheUse(key=key, folder=folder, hold=hold) if hold is not None and stage in GANGS else None
    shared = cache is not None and hold is not Hold.OWN
    for pod in pods(job_of(run, stage, 1, artifacts_url="s3://a/", cache=cache)):
        mounts = {path: mount for path, mount in shared_mounts(pod).items() if path.startswith("/cache")}
        expected = {own: False} if stage in (*GANGS, Stage.PREFLIGHT) else {}
        expected |= {f"/cache/{key}": stage is not Stage.PRECOMPILE} if shared else {}
        assert {path: mount.get("readOnly", False) for path, mount in mounts.items()} == expected
        assert all(mount["subPath"] == path.lstrip("/") for path, mount in mounts.items())


@each_backend
@pytest.mark.parametrize("stage", [*GANGS, Stage.PREFLIGHT])
def test_folders_are_made_by_our_own_program_as_the_pods_user(backend: BackendName, stage: Stage) -> None:
    """The kubelet would make them as root, and the program could not write."""
    for pod in pods(job(backend, stage, resume_from="bert-000000000001")):
        (helpers,) = pod["initContainers"]
        folders = [path for path in shared_mounts(pod) if path.count("/") > 1]
        start = helpers["command"].index("--folders") + 1
        assert helpers["command"][start : start + len(folders)] == folders
        for path in folders:
            mount = "/" + path.split("/")[1]
            assert {"name": "shared", "mountPath": mount, "subPath": mount[1:]} in helpers["volumeMounts"]


def test_only_elastic_gangs_are_given_an_s3_client() -> None:
    (elastic,) = pods(job("pytorchjob", num_nodes=3, elastic=True))
    assert elastic["initContainers"][0]["command"][-2:] == ["--s3_client", "true"]


@each_backend
def test_pods_on_nodes_with_nvme_disks_have_a_scratch_folder_there(backend: BackendName) -> None:
    made = job(backend)
    assert made.environment["TRAINFLOW_SCRATCH_DIR"] == "/scratch"
    for pod in pods(made):
        assert {"name": "scratch", "emptyDir": {}} in pod["volumes"]
        assert {"name": "scratch", "mountPath": "/scratch"} in pod["containers"][0]["volumeMounts"]


@each_backend
def test_pods_on_nodes_without_nvme_disks_have_none(backend: BackendName) -> None:
    made = job(backend, compute__instance_type="c7i.4xlarge", compute__processes_per_node=1)
    assert "TRAINFLOW_SCRATCH_DIR" not in made.environment
    for pod in pods(made):
        assert "scratch" not in [volume["name"] for volume in pod["volumes"]]


@each_backend
@pytest.mark.parametrize(
    ("kept", "folder", "volumes"),
    [
        (
            {"gib": 24},
            "/local-checkpoints",
            [{"name": "local-checkpoints", "emptyDir": {"medium": "Memory", "sizeLimit": "24Gi"}}],
        ),
        ({"medium": "nvme"}, "/scratch/.trainflow-checkpoints", []),
    ],
)
def test_a_training_has_a_folder_of_its_node_for_checkpoints(
    backend: BackendName, kept: dict[str, Any], folder: str, volumes: list[dict[str, Any]]
) -> None:
    without, made = job(backend), job(backend, checkpoint={"keep_local": kept})
    assert made.environment == {**without.environment, "TRAINFLOW_LOCAL_CHECKPOINTS": folder}
    assert (made.plan, made.spec_hash == without.spec_hash) == (without.plan, False)
    for pod, other in zip(pods(made), pods(without), strict=True):
        assert [each for each in pod["volumes"] if each not in other["volumes"]] == volumes
        mounts = [{"name": each["name"], "mountPath": folder} for each in volumes]
        container, before = pod["containers"][0], other["containers"][0]
        assert [each for each in container["volumeMounts"] if each not in before["volumeMounts"]] == mounts
        assert container["resources"] == before["resources"], "its files count as memory of the pod, which has all"
    for stage in (Stage.PRECOMPILE, Stage.PREFLIGHT, Stage.PUBLISH):
        assert "TRAINFLOW_LOCAL_CHECKPOINTS" not in job(backend, stage, checkpoint={"keep_local": kept}).environment


@each_backend
def test_an_image_that_needs_its_root_can_have_it(backend: BackendName) -> None:
    workload = {"script": "mine.py", "image": "i", "writable_root": True}
    for pod in pods(job(backend, workload=workload)):
        container = pod["containers"][0]
        assert not container["securityContext"]["readOnlyRootFilesystem"]
        assert "/tmp" not in [mount["mountPath"] for mount in container["volumeMounts"]]


@each_backend
def test_a_checkpoint_has_its_time_and_a_job_its_end(backend: BackendName) -> None:
    renderings = rendered(job(backend, limits={"max_duration_hours": 2}))
    deadlines = {rendering["spec"].get("activeDeadlineSeconds") for rendering in renderings}
    for template in (template for rendering in renderings for template in pod_templates(rendering)):
        assert template["spec"]["terminationGracePeriodSeconds"] == 120
        deadlines.add(template["spec"].get("activeDeadlineSeconds"))
    assert deadlines - {None} == {7200}
    if backend not in ("pod", "trainjob"):
        assert "ttlSecondsAfterFinished" in str(renderings)


@each_backend
def test_a_priority_reaches_the_pods(backend: BackendName) -> None:
    for pod in pods(job(backend, compute__priority_class="urgent")):
        assert pod["priorityClassName"] == "urgent"
    assert "priorityClassName" not in pods(job(backend))[0]


@pytest.mark.parametrize("stage", [Stage.PREFLIGHT, Stage.STAGE, Stage.PUBLISH])
def test_small_pods_stay_off_nodes_of_gangs_and_controllers_and_ask_for_no_label(stage: Stage) -> None:
    """A node of a cluster that Trainflow did not make has no label of its."""
    [pod] = pods(job("job", stage))
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [term] = required["nodeSelectorTerms"]
    [elsewhere] = term["matchExpressions"]
    assert elsewhere == {"key": "trainflow/nodes", "operator": "NotIn", "values": ["training", "controllers"]}
    assert "nodeSelector" not in pod
    [tolerated] = pod["tolerations"]
    assert (tolerated["key"], tolerated["value"]) == ("trainflow/nodes", "small-jobs"), "training nodes are tainted too"


@pytest.mark.parametrize("backend", [backend for backend in KUBERNETES_KINDS if backend != "pod"])
def test_a_gang_over_efa_is_placed_in_one_node_group(backend: BackendName) -> None:
    for pod in pods(job(backend)):
        assert pod["nodeSelector"] == {
            "node.kubernetes.io/instance-type": "trn1.32xlarge",
            "eks.amazonaws.com/nodegroup": "trainflow-trn1-32xlarge",
        }


def test_a_volcano_gang_starts_with_all_its_pods_in_its_queue() -> None:
    (*_, manifest) = rendered(job("volcano", num_nodes=16, compute__queue="research"))
    assert manifest["spec"]["minAvailable"] == manifest["spec"]["tasks"][0]["replicas"] == 16
    assert (manifest["spec"]["queue"], manifest["spec"]["schedulerName"]) == ("research", "volcano")


def test_no_policy_of_volcano_removes_the_pods_that_could_say_why_a_job_failed() -> None:
    (*_, manifest) = rendered(job("volcano"))
    assert {policy["event"] for policy in manifest["spec"]["policies"]} == {"PodEvicted"}
    assert "policies" not in manifest["spec"]["tasks"][0]


def test_a_jobset_spells_out_what_it_does_when_a_job_starts_succeeds_and_fails() -> None:
    (*_, manifest) = rendered(job("jobset"))
    assert manifest["spec"]["successPolicy"]["operator"] == "All"
    assert manifest["spec"]["failurePolicy"]["maxRestarts"] == 0
    assert manifest["spec"]["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}


@pytest.mark.parametrize(("num_nodes", "workers"), [(1, None), (2, 1), (16, 15)])
def test_a_pytorchjob_has_one_master_and_the_rest_are_workers(num_nodes: int, workers: int | None) -> None:
    training = job("pytorchjob", num_nodes=num_nodes)
    (*_, manifest) = rendered(training)
    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    assert replicas["Master"]["replicas"] == 1
    assert replicas.get("Worker", {}).get("replicas") == workers
    for replica in replicas.values():
        (container,) = replica["template"]["spec"]["containers"]
        assert container["name"] == "pytorch", "the operator expects this name"
        assert container["ports"] == [{"name": "pytorchjob-port", "containerPort": training.port}]


@pytest.mark.parametrize("num_nodes", [1, 2, 16])
def test_a_trainjob_refers_to_a_runtime_of_its_own_and_has_the_numbers_of_nodes_and_processes(num_nodes: int) -> None:
    training = job("trainjob", num_nodes=num_nodes)
    (*_, runtime, manifest) = rendered(training)
    assert (runtime["kind"], runtime["metadata"]) == ("TrainingRuntime", manifest["metadata"])
    assert manifest["spec"] == {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": training.ref.name},
        "trainer": {"numNodes": num_nodes, "numProcPerNode": 32},
    }


@pytest.mark.parametrize("stage", GANGS)
def test_a_trainjob_and_its_runtime_fit_the_definitions_of_trainer(stage: Stage) -> None:
    for manifest in rendered(job("trainjob", stage))[-2:]:
        resource = REGISTRY.by_kind(manifest["apiVersion"], manifest["kind"])
        assert resource is not None
        assert prune(manifest, resource.schema) == (manifest, [])
        assert resource.validate(manifest) == []


def test_a_trainjobs_runtime_is_for_torch_and_never_starts_a_failed_job_again() -> None:
    (*_, runtime, _) = rendered(job("trainjob"))
    assert runtime["spec"]["mlPolicy"] == {"torch": {}}
    jobset = runtime["spec"]["template"]["spec"]
    assert jobset["failurePolicy"]["maxRestarts"] == 0
    assert "ttlSecondsAfterFinished" not in jobset, "Trainer makes the JobSet of a failed TrainJob again"
    (replicated,) = jobset["replicatedJobs"]
    assert replicated["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "node", "Trainer expects this name"


def test_an_elastic_pytorchjob_has_workers_only_and_its_policy_is_the_command_lines() -> None:
    training = job("pytorchjob", num_nodes=3, elastic=True)
    (*_, manifest) = rendered(training)
    assert manifest["spec"]["elasticPolicy"] == {
        "minReplicas": 1,
        "maxReplicas": 3,
        "maxRestarts": 3,
        "rdzvBackend": "c10d",
        "rdzvPort": training.port,
        "rdzvId": training.ref.name,
    }
    workers = manifest["spec"]["pytorchReplicaSpecs"].pop("Worker")
    assert manifest["spec"]["pytorchReplicaSpecs"] == {}
    assert (workers["replicas"], workers["restartPolicy"]) == (3, "ExitCode"), "a pod that a signal ended is made again"
    assert manifest["spec"]["runPolicy"] == {
        "cleanPodPolicy": "None",
        "ttlSecondsAfterFinished": 7 * 24 * 3600,
        "backoffLimit": 3,
    }
    (pod,) = pods(training)
    named = {"name": "TRAINFLOW_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert named in pod["containers"][0]["env"]


@each_backend
def test_every_object_and_pod_can_be_found_by_its_run_and_job(backend: BackendName) -> None:
    training = job(backend)
    for manifest in rendered(training):
        for metadata in (manifest["metadata"], *(template["metadata"] for template in pod_templates(manifest))):
            assert metadata["labels"]["trainflow/run"] == training.run_id
            assert metadata["labels"]["trainflow/job"] == training.ref.name


@each_backend
def test_two_runs_of_one_spec_have_nothing_in_common(backend: BackendName) -> None:
    spec = run_on(backend).spec
    arn = "arn:aws:states:us-west-2:123456789012:execution:trainflow-training:x"
    one, other = (
        job_of(
            Run(run_id=f"bert-{number}", execution_arn=arn, started_at=STARTED_AT, spec=spec),
            Stage.TRAINING,
            1,
            artifacts_url=f"s3://a/{number}/",
        )
        for number in ("000000000001", "000000000002")
    )
    assert one.port != other.port
    assert other.ref.name not in str(rendered(one)).replace(one.ref.name, "")
    assert one.run_id not in str(rendered(other))


@each_backend
def test_the_longest_name_that_a_spec_may_have_gives_names_that_a_cluster_takes(backend: BackendName) -> None:
    longest = (
        KUBERNETES_KINDS[backend].name_length("n" * 30 + "-0123456789ab-precompile-1", num_nodes=2) - MAX_HOST_NAME
    )
    training = job(backend, Stage.PRECOMPILE, name="n" * (30 - max(0, longest)))
    assert KUBERNETES_KINDS[backend].name_length(training.ref.name, num_nodes=2) <= MAX_HOST_NAME


@each_backend
def test_no_manifest_holds_a_secret(backend: BackendName, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by a variable's name, and nothing of the credentials with which a function renders it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "SLURM_KEY_SECRET"):
        monkeypatch.setenv(name, "of-the-function-4711")
    for stage in Stage:
        made = job(backend, stage)
        assert "of-the-function-4711" not in json.dumps(rendered(made))
        for pod in pods(made):
            for container in (*pod.get("initContainers", ()), *pod["containers"]):
                for variable in container["env"]:
                    assert not any(word in variable["name"] for word in ("KEY", "TOKEN", "SECRET", "PASSWORD"))
                    assert "secretKeyRef" not in str(variable)


@pytest.mark.parametrize("backend", ["job", "jobset", "volcano", "pytorchjob", "trainjob", "pod"])
def test_shared_packages_are_written_by_an_init_container_of_trainflows_image_only(backend: BackendName) -> None:
    url = f"s3://artifacts/code/{'0' * 64}.tar.gz"
    for stage in (Stage.PREFLIGHT, Stage.PRECOMPILE, Stage.TRAINING):
        made = job(backend, stage, workload__code=url, workload__requirements="r.txt")
        for template in (template for each in rendered(made) for template in pod_templates(each)):
            pod = template["spec"]
            writers = [
                (container["name"], container["image"])
                for container in (*pod["initContainers"], *pod["containers"])
                if container["image"] != TOOLS_IMAGE
                for mount in container["volumeMounts"]
                if "/cache/packages".startswith(mount["mountPath"]) and not mount.get("readOnly")
            ]
            assert writers == []
            names = [container["name"] for container in pod["initContainers"]]
            probed = stage is Stage.PREFLIGHT
            assert names == ["helpers", *(("packages", "shared-packages") if probed else ())]


def test_without_requirements_no_container_installs_packages() -> None:
    for template in (template for each in rendered(job("job", Stage.PREFLIGHT)) for template in pod_templates(each)):
        assert [container["name"] for container in template["spec"]["initContainers"]] == ["helpers"]


@each_backend
def test_team_and_project_are_labels_of_objects_and_pods_and_another_team_makes_no_other_job(
    backend: BackendName,
) -> None:
    named, other = job(backend, team="research", project="bert"), job(backend)
    assert named.spec_hash == other.spec_hash
    expected = {"trainflow/team": "research", "trainflow/project": "bert"}
    manifests = [manifest for manifest in rendered(named) if manifest["kind"] not in ("Service", "NetworkPolicy")]
    for each in [*manifests, *(template for manifest in manifests for template in pod_templates(manifest))]:
        assert each["metadata"]["labels"].items() >= expected.items()
    assert "trainflow/team" not in str(rendered(other))
