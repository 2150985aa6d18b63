"""What a stage executes, and what its pods ask the cluster for."""

from __future__ import annotations

from typing import Any

import pytest

from lambdas.backends.job import render
from lambdas.backends.slurm import job_script
from lambdas.logic.jobs import Job, job_of
from lambdas.logic.plans import rendezvous_port
from tests.fakes.plans import node_of
from tests.fakes.runs import TOOLS_IMAGE, TRAINER_IMAGE, run_of, run_on, spec_with
from tests.unit.lambdas.test_manifests import pods
from trainer.steps.processes import processes_of
from trainflow.deployment.backends import BackendName
from trainflow.deployment.slurm import Site
from trainflow.protocol.plan import (
    Code,
    Elastic,
    Launch,
    LockedMemory,
    NodeTest,
    Plan,
    Precompile,
    Probe,
    Report,
    Restart,
    to_text,
)
from trainflow.workflow.run import Run, Stage

SITE = Site(shared_folder="/fsx", environment="/venv", program_folder="/program")
PORT = rendezvous_port("bert-0123456789ab-training-1")


def job(stage: Stage, **fields: object) -> Job:
    return job_of(run_of(spec_with(**fields)), stage, 1, artifacts_url="s3://artifacts/runs/bert-0123456789ab/")


def words_of(job: Job) -> list[str]:
    """The command of the job's first pod."""
    words: list[str] = pods(job)[0]["containers"][0]["command"]
    return words


def launch_of(job: Job) -> Launch:
    assert job.plan is not None and job.plan.launch is not None
    return job.plan.launch


def probe_of(job: Job) -> tuple[str, ...]:
    assert job.plan is not None and job.plan.probe is not None
    return job.plan.probe.words


def test_training_is_launched_with_static_rendezvous_so_that_index_0_is_rank_0() -> None:
    made, name = job(Stage.TRAINING), "bert-0123456789ab-training-1"
    arguments = ("--max_steps", "100", "--learning_rate", "0.0004", "--compile", "true")
    program = ("-m", "trainer.pretrain", *arguments)
    assert made.plan == Plan(
        locked_memory=LockedMemory(mebibytes=5120),
        report=Report(),
        restart=Restart(job=name),
        launch=Launch(launcher="torchrun", num_nodes=2, processes=32, port=PORT, program=program),
    )
    place = ["--node_rank", "$(JOB_COMPLETION_INDEX)", "--master_addr", f"{name}-0.{name}"]
    starting = ["python", "/trainflow/helpers", "supervisor", *place, "--"]
    assert words_of(made) == [*starting, to_text(made.plan)]


@pytest.mark.parametrize(
    ("backend", "rank", "host"),
    [
        ("job", "$(JOB_COMPLETION_INDEX)", "{0}-0.{0}"),
        ("jobset", "$(JOB_COMPLETION_INDEX)", "{0}-node-0-0.{0}"),
        ("volcano", "$(VC_TASK_INDEX)", "{0}-node-0.{0}"),
        ("pytorchjob", "$(PET_NODE_RANK)", "{0}-master-0"),
        ("trainjob", "$(PET_NODE_RANK)", "{0}-node-0-0.{0}"),
        ("pod", "0", "localhost"),
    ],
)
def test_every_backend_has_its_own_names_for_the_same_rendezvous(backend: BackendName, rank: str, host: str) -> None:
    run = run_on(backend)
    training = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/")
    words = words_of(training)
    options = dict(zip(words[3:7:2], words[4:8:2], strict=True))
    assert (options["--node_rank"], options["--master_addr"]) == (rank, host.format(training.ref.name))


@pytest.mark.parametrize("stage", Stage)
def test_staging_and_publishing_run_in_trainflows_image_and_the_rest_in_the_runs_own(stage: Stage) -> None:
    own = TRAINER_IMAGE
    assert job(stage).image == (TOOLS_IMAGE if stage in (Stage.STAGE, Stage.PUBLISH) else own)


@pytest.mark.parametrize("stage", Stage)
def test_a_run_that_began_before_there_was_such_an_image_keeps_its_own_for_everything(stage: Stage) -> None:
    before = run_of().model_dump(mode="json", exclude={"tools_image"})
    job = job_of(Run.model_validate(before), stage, 1, artifacts_url="s3://a/")
    assert (job.image, job.helpers_image) == (TRAINER_IMAGE, None)
    assert "/trainflow/helpers" not in words_of(job)


@pytest.mark.parametrize(
    ("backend", "folder"), [("slurm", "/fsx/venv"), ("slurm", None), ("job", None)], ids=["named", "default", "image"]
)
def test_a_run_that_began_when_the_python_environment_had_another_name_stays_readable(
    backend: BackendName, folder: str | None
) -> None:
    image = None if backend == "slurm" else TRAINER_IMAGE
    run = run_on(backend, workload__image=image, workload__python_environment=folder)
    before = run.model_dump(mode="json")
    before["spec"]["workload"]["environment"] = before["spec"]["workload"].pop("python_environment")
    assert Run.model_validate(before) == run


@pytest.mark.parametrize("stage", Stage)
def test_jobs_of_slurm_have_no_image_and_find_the_helpers_installed(stage: Stage) -> None:
    job = job_of(run_on("slurm", workload__image=None), stage, 1, artifacts_url="s3://a/")
    assert (job.image, job.helpers_image) == (None, None)
    (made,) = job_script.render(job, SITE, artifacts_url="s3://a/")
    assert "/trainflow/helpers" not in made.script


@pytest.mark.parametrize("stage", Stage)
def test_where_the_workloads_image_runs_the_helpers_come_from_trainflows(stage: Stage) -> None:
    runs_own_image = stage not in (Stage.STAGE, Stage.PUBLISH)
    assert job(stage).helpers_image == (TOOLS_IMAGE if runs_own_image else None)
    assert ("/trainflow/helpers" in words_of(job(stage))) is runs_own_image


def test_an_elastic_gang_meets_at_worker_0_and_rank_0_announces_itself() -> None:
    training = job_of(run_on("pytorchjob", num_nodes=4, elastic=True), Stage.TRAINING, 1, artifacts_url="s3://a/x/")
    name = training.ref.name
    store = f"{name}-worker-0:{training.port}"
    meeting = Elastic(min_nodes=1, max_nodes=4, store=store, id=name, max_restarts=3)
    assert launch_of(training).elastic == meeting
    assert words_of(training)[:4] == ["python", "/trainflow/helpers", "supervisor", "--"]
    (started,) = processes_of(node_of(Plan(launch=launch_of(training))))
    command = " ".join(started.words)
    assert f"--nnodes 1:4 --rdzv_backend c10d --rdzv_endpoint {store} --rdzv_id {name} --max_restarts 3" in command
    assert "-m trainer.announce -m trainer.pretrain" in command
    assert training.environment["TRAINFLOW_RANK0_URL"] == f"s3://a/x/rank0/{name}"
    assert (training.ref.elastic, training.ref.gang_size, training.ref.num_nodes) == (True, 1, 4)


def test_an_elastic_gang_compiles_with_all_its_nodes() -> None:
    precompile = job_of(run_on("pytorchjob", elastic=True), Stage.PRECOMPILE, 1, artifacts_url="s3://a/")
    assert not precompile.ref.elastic
    assert launch_of(precompile).elastic is None


@pytest.mark.parametrize("stage", [Stage.STAGE, Stage.PUBLISH])
def test_small_programs_are_kubernetes_jobs_whatever_runs_the_gang(stage: Stage) -> None:
    ref = job_of(run_on("volcano", compute__queue="urgent"), stage, 1, artifacts_url="s3://a/").ref
    assert (ref.backend, ref.num_nodes) == ("job", 1)


def test_precompiling_runs_the_same_program_for_a_few_steps() -> None:
    training, precompile = job(Stage.TRAINING), job(Stage.PRECOMPILE)
    assert precompile.plan is not None
    assert precompile.plan.precompile == Precompile(retry_failed=False)
    assert launch_of(precompile).program == (*launch_of(training).program, "--steps_this_run", "10")


CODE = f"s3://artifacts/code/{'0' * 64}.tar.gz"


def test_a_program_starts_in_the_folder_of_its_code_right_before_the_launcher() -> None:
    for stage in (Stage.PRECOMPILE, Stage.TRAINING):
        made = job(stage, workload__code=CODE)
        assert made.plan is not None
        assert (made.code, made.plan.code) == (CODE, Code(folder="/workspace"))
        beside = {Precompile, Report, Restart, Launch}
        *before, last = [type(step) for step in made.plan.steps if type(step) not in beside]
        assert (last, Code in before) == (Code, False), "it changes search paths, which are the program's only"
    probe = job(Stage.PREFLIGHT, workload__code=CODE)
    assert probe.plan is not None
    assert (probe.code, probe.plan.code) == (CODE, Code(folder="/workspace"))
    assert [type(step) for step in probe.plan.steps] == [Code, Probe]


@pytest.mark.parametrize("backend", ["job", "slurm"])
def test_what_the_code_requires_is_installed_in_a_folder_of_the_run(backend: BackendName) -> None:
    image = None if backend == "slurm" else "i"
    fields = {"workload__image": image, "workload__code": CODE, "workload__requirements": "requirements.txt"}
    for stage in (Stage.PREFLIGHT, Stage.TRAINING):
        made = job_of(run_on(backend, **fields), stage, 1, artifacts_url="s3://a/")
        assert made.plan is not None and made.plan.code is not None
        own = f"/cache/runs/{made.run_id}/packages"
        assert (made.plan.code.requirements, made.plan.code.packages) == ("requirements.txt", own)


def test_slurms_nodes_fetch_the_code_themselves() -> None:
    made = job_of(
        run_on("slurm", workload__image=None, workload__code=CODE), Stage.TRAINING, 1, artifacts_url="s3://a/"
    )
    assert made.code is None
    assert made.plan is not None
    assert made.plan.code == Code(folder="workspace", url=CODE)


@pytest.mark.parametrize("stage", [Stage.STAGE, Stage.PUBLISH])
def test_trainflows_own_programs_need_no_code(stage: Stage) -> None:
    made = job(stage, workload__code=CODE)
    assert (made.code, made.plan) == (None, None)


def test_a_script_is_run_as_a_file() -> None:
    launch = launch_of(job(Stage.TRAINING, workload={"script": "mine/train.py", "image": "i"}))
    assert (launch.program, launch.is_python) == (("mine/train.py",), True)


@pytest.mark.parametrize("stage", [Stage.STAGE, Stage.PUBLISH])
def test_small_programs_run_once_and_ask_for_no_devices(stage: Stage) -> None:
    _, manifest = render(job(stage))
    assert manifest["spec"]["completions"] == 1
    pod = manifest["spec"]["template"]["spec"]
    assert "nodeSelector" not in pod
    assert not any("amazon" in name for name in pod["containers"][0]["resources"]["limits"])


def test_a_gang_asks_for_every_chip_and_interface_that_it_uses() -> None:
    _, manifest = render(job(Stage.TRAINING))
    limits = manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {
        "memory": "455Gi",
        "aws.amazon.com/neuron": "16",
        "vpc.amazonaws.com/efa": "8",
    }


def test_one_node_needs_no_network_interfaces() -> None:
    alone = job(Stage.TRAINING, compute__num_nodes=1)
    assert alone.plan is not None and alone.plan.locked_memory is None
    _, manifest = render(alone)
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    assert "vpc.amazonaws.com/efa" not in container["resources"]["limits"]
    assert "FI_PROVIDER" not in str(container["env"])


@pytest.mark.parametrize(("processes", "chips"), [(1, "1"), (2, "1"), (8, "4"), (32, "16")])
def test_chips_are_asked_for_whole(processes: int, chips: str) -> None:
    _, manifest = render(job(Stage.TRAINING, compute__processes_per_node=processes))
    limits = manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["aws.amazon.com/neuron"] == chips


def test_the_service_comes_first_so_that_names_resolve_when_pods_start() -> None:
    assert [manifest["kind"] for manifest in render(job(Stage.TRAINING))] == ["Service", "Job"]


def test_another_argument_makes_another_job_of_the_same_name() -> None:
    one, other = job(Stage.TRAINING), job(Stage.TRAINING, workload__arguments={"max_steps": 200})
    assert one.ref.name == other.ref.name
    assert one.spec_hash != other.spec_hash


def test_no_environment_holds_a_secret() -> None:
    for stage in Stage:
        assert not [name for name in job(stage).environment if "KEY" in name or "TOKEN" in name or "SECRET" in name]


def test_ports_differ_between_jobs_and_stay_out_of_the_ephemeral_range() -> None:
    ports = {rendezvous_port(f"run-{number}") for number in range(100)}
    assert len(ports) > 90
    assert all(20000 <= port < 30000 for port in ports)


@pytest.mark.parametrize("stage", Stage)
def test_a_job_knows_its_run(stage: Stage) -> None:
    for attempt in (1, 12):
        assert job_of(run_of(), stage, attempt, artifacts_url="s3://a/").ref.run_id == run_of().run_id


def test_a_run_that_continues_others_tells_its_program_and_has_their_checkpoints_examined() -> None:
    plain, continuing = job(Stage.TRAINING), job(Stage.TRAINING, resume_from=["bert-2", "bert-1"])
    assert {**plain.environment, "TRAINFLOW_RESUME_FROM": "bert-2,bert-1"} == continuing.environment
    assert plain.plan == continuing.plan
    assert "--checkpoints" not in probe_of(job(Stage.PREFLIGHT, resume_from=["bert-1"]))
    own = {"workload__module": "mine", "checkpoint": {"path": "step-{step}.pt", "marker": "done"}}
    probe = job(Stage.PREFLIGHT, resume_from=["bert-1"], **own)
    assert "--checkpoints step-{step}.pt --marker done -- " in " ".join(probe_of(probe))
    assert probe.environment["TRAINFLOW_RESUME_FROM"] == "bert-1"
    assert "--checkpoints" not in probe_of(job(Stage.PREFLIGHT, **own))
    assert "TRAINFLOW_RESUME_FROM" not in job(Stage.PUBLISH, resume_from=["bert-1"]).environment


def plan_with(**compute: Any) -> Plan:
    spec = spec_with(**{f"compute__{name}": value for name, value in compute.items()})
    made = job_of(run_of(spec), Stage.TRAINING, 1, artifacts_url="s3://artifacts/").plan
    assert made is not None
    return made


def test_the_nodes_of_a_gang_are_tested_unless_the_spec_says_no() -> None:
    tested = plan_with(check_nodes=True)
    assert tested.node_test == NodeTest(processes=32)
    assert [type(step) for step in tested.steps][:2] == [LockedMemory, NodeTest]
    assert plan_with(check_nodes=False).node_test is None
    assert plan_with(check_nodes=True, num_nodes=1).node_test is None
    elastic = {"min_nodes": 1, "max_nodes": 2}
    assert plan_with(check_nodes=True, backend="pytorchjob", elastic=elastic).node_test is None


def test_a_run_that_names_its_own_folder_mounts_it_once_and_may_write_there() -> None:
    own = f"/runs/{run_of().run_id}"
    folders = job(
        Stage.TRAINING, workload__arguments={"out": f"{own}/results", "start": "/runs/bert-1/step-5.pt"}
    ).folders
    assert [(each.path, each.read_only) for each in folders if each.path.startswith("/runs")] == [
        (own, False),
        ("/runs/bert-1", True),
    ]
