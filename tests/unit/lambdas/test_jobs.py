"""What a stage executes, and what its pods ask the cluster for."""

from __future__ import annotations

from typing import Any

import pytest

from lambdas.backends.job import render
from lambdas.logic.jobs import Job, job_of, rendezvous_port
from tests.fakes.runs import TOOLS_IMAGE, TRAINER_IMAGE, run_of, run_on, spec_with
from trainflow.models.backends import BackendName
from trainflow.models.run import Run, Stage

PORT = rendezvous_port("bert-0123456789ab-training-1")


def job(stage: Stage, **fields: object) -> Job:
    return job_of(run_of(spec_with(**fields)), stage, 1, artifacts_url="s3://artifacts/runs/bert-0123456789ab/")


def test_training_is_launched_with_static_rendezvous_so_that_index_0_is_rank_0() -> None:
    command = " ".join(job(Stage.TRAINING).command)
    name = "bert-0123456789ab-training-1"
    assert command == (
        "python /trainflow/helpers locked_memory --mebibytes 5120 -- "
        "python /trainflow/helpers error_file -- "
        f"torchrun --nnodes 2 --node_rank $(JOB_COMPLETION_INDEX) --master_addr {name}-0.{name} --master_port {PORT} "
        "--nproc_per_node 32 -m trainer.pretrain "
        "--max_steps 100 --learning_rate 0.0004 --compile true"
    )


@pytest.mark.parametrize(
    ("backend", "rank", "host"),
    [
        ("job", "$(JOB_COMPLETION_INDEX)", "{0}-0.{0}"),
        ("jobset", "$(JOB_COMPLETION_INDEX)", "{0}-node-0-0.{0}"),
        ("volcano", "$(VC_TASK_INDEX)", "{0}-node-0.{0}"),
        ("pytorchjob", "$(PET_NODE_RANK)", "{0}-master-0"),
        ("pod", "0", "localhost"),
    ],
)
def test_every_backend_has_its_own_names_for_the_same_rendezvous(backend: BackendName, rank: str, host: str) -> None:
    run = run_on(backend)
    training = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/")
    launched = training.command[training.command.index("torchrun") :]
    options = dict(zip(launched[1:9:2], launched[2:10:2], strict=True))
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
    assert "/trainflow/helpers" not in job.command


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
    assert "/trainflow/helpers" not in job.command


@pytest.mark.parametrize("stage", Stage)
def test_where_the_workloads_image_runs_the_helpers_come_from_trainflows(stage: Stage) -> None:
    runs_own_image = stage not in (Stage.STAGE, Stage.PUBLISH)
    assert job(stage).helpers_image == (TOOLS_IMAGE if runs_own_image else None)
    assert ("/trainflow/helpers" in job(stage).command) is runs_own_image


def test_an_elastic_gang_meets_at_worker_0_and_rank_0_announces_itself() -> None:
    training = job_of(run_on("pytorchjob", num_nodes=4, elastic=True), Stage.TRAINING, 1, artifacts_url="s3://a/x/")
    name = training.ref.name
    command = " ".join(training.command)
    store = f"--rdzv_endpoint {name}-worker-0:{training.port} --rdzv_id {name}"
    assert f"--nnodes 1:4 --rdzv_backend c10d {store} --max_restarts 3" in command
    assert "/trainflow/helpers announce -m trainer.pretrain" in command
    assert training.environment["TRAINFLOW_RANK0_URL"] == f"s3://a/x/rank0/{name}"
    assert (training.ref.elastic, training.ref.gang_size, training.ref.num_nodes) == (True, 1, 4)


def test_an_elastic_gang_compiles_with_all_its_nodes() -> None:
    precompile = job_of(run_on("pytorchjob", elastic=True), Stage.PRECOMPILE, 1, artifacts_url="s3://a/")
    assert not precompile.ref.elastic
    assert "--rdzv_backend" not in precompile.command


@pytest.mark.parametrize("stage", [Stage.STAGE, Stage.PUBLISH])
def test_small_programs_are_kubernetes_jobs_whatever_runs_the_gang(stage: Stage) -> None:
    ref = job_of(run_on("volcano", compute__queue="urgent"), stage, 1, artifacts_url="s3://a/").ref
    assert (ref.backend, ref.num_nodes) == ("job", 1)


def test_precompiling_runs_the_same_program_for_a_few_steps() -> None:
    training, precompile = job(Stage.TRAINING).command, job(Stage.PRECOMPILE).command
    checked = precompile.index("--") + 1
    assert precompile[checked : checked + 4] == ("python", "/trainflow/helpers", "precompile", "--")
    program = [command[command.index("trainer.pretrain") :] for command in (training, precompile)]
    assert program[1] == (*program[0], "--steps_this_run", "10")


CODE = f"s3://artifacts/code/{'0' * 64}.tar.gz"


def test_a_program_starts_in_the_folder_of_its_code_right_before_the_launcher() -> None:
    for stage in (Stage.PRECOMPILE, Stage.TRAINING):
        made = job(stage, workload__code=CODE)
        launcher = made.command.index("torchrun")
        starting = ("python", "/trainflow/helpers", "workspace", "--folder", "/workspace", "--")
        reporting = ("python", "/trainflow/helpers", "error_file", "--")
        assert (made.code, made.command[launcher - 10 : launcher]) == (CODE, (*starting, *reporting))
    probe = job(Stage.PREFLIGHT, workload__code=CODE)
    assert (probe.code, probe.command[:6]) == (CODE, starting)
    assert probe.command[6:9] == ("python", "/trainflow/helpers", "probe")


@pytest.mark.parametrize("backend", ["job", "slurm"])
def test_what_the_code_requires_is_installed_in_a_folder_of_the_run(backend: BackendName) -> None:
    image = None if backend == "slurm" else "i"
    fields = {"workload__image": image, "workload__code": CODE, "workload__requirements": "requirements.txt"}
    for stage in (Stage.PREFLIGHT, Stage.TRAINING):
        made = job_of(run_on(backend, **fields), stage, 1, artifacts_url="s3://a/")
        own = f"/cache/runs/{made.run_id}/packages"
        assert f"--requirements requirements.txt --packages {own} -- " in " ".join(made.command)


def test_slurms_nodes_fetch_the_code_themselves() -> None:
    made = job_of(
        run_on("slurm", workload__image=None, workload__code=CODE), Stage.TRAINING, 1, artifacts_url="s3://a/"
    )
    fetching = f"python -m trainer.code --url {CODE} --into workspace -- "
    starting = "python -m trainer.workspace --folder workspace -- torchrun"
    assert made.code is None
    assert fetching + starting in " ".join(made.command)


@pytest.mark.parametrize("stage", [Stage.STAGE, Stage.PUBLISH])
def test_trainflows_own_programs_need_no_code(stage: Stage) -> None:
    made = job(stage, workload__code=CODE)
    assert (made.code, "workspace" in made.command) == (None, False)


def test_a_script_is_run_as_a_file() -> None:
    command = job(Stage.TRAINING, workload={"script": "mine/train.py", "image": "i"}).command
    assert command[-1] == "mine/train.py"


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
        "memory": "459Gi",
        "aws.amazon.com/neuron": "16",
        "vpc.amazonaws.com/efa": "8",
        "hugepages-2Mi": "5120Mi",
    }


def test_one_node_needs_no_network_interfaces() -> None:
    alone = job(Stage.TRAINING, compute__num_nodes=1)
    assert "trainer.locked_memory" not in alone.command
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
    assert plain.command == continuing.command
    assert "--checkpoints" not in job(Stage.PREFLIGHT, resume_from=["bert-1"]).command
    own = {"workload__module": "mine", "checkpoint": {"path": "step-{step}.pt", "marker": "done"}}
    probe = job(Stage.PREFLIGHT, resume_from=["bert-1"], **own)
    assert "--checkpoints step-{step}.pt --marker done -- " in " ".join(probe.command)
    assert probe.environment["TRAINFLOW_RESUME_FROM"] == "bert-1"
    assert "--checkpoints" not in job(Stage.PREFLIGHT, **own).command
    assert "TRAINFLOW_RESUME_FROM" not in job(Stage.PUBLISH, resume_from=["bert-1"]).environment


def words_of(**compute: Any) -> str:
    spec = spec_with(**{f"compute__{name}": value for name, value in compute.items()})
    return " ".join(job_of(run_of(spec), Stage.TRAINING, 1, artifacts_url="s3://artifacts/").command)


def test_the_nodes_of_a_gang_are_tested_unless_the_spec_says_no() -> None:
    tested = words_of(check_nodes=True)
    assert " helpers node_health --processes 32 -- python " in tested.replace("/trainflow/helpers", "helpers")
    assert tested.index("locked_memory") < tested.index("node_health") < tested.index("torchrun")
    assert "node_health" not in words_of(check_nodes=False)
    assert "node_health" not in words_of(check_nodes=True, num_nodes=1)
    elastic = {"min_nodes": 1, "max_nodes": 2}
    assert "node_health" not in words_of(check_nodes=True, backend="pytorchjob", elastic=elastic)


def test_a_run_that_names_its_own_folder_mounts_it_once_and_may_write_there() -> None:
    own = f"/runs/{run_of().run_id}"
    folders = job(
        Stage.TRAINING, workload__arguments={"out": f"{own}/results", "start": "/runs/bert-1/step-5.pt"}
    ).folders
    assert [(each.path, each.read_only) for each in folders if each.path.startswith("/runs")] == [
        (own, False),
        ("/runs/bert-1", True),
    ]
