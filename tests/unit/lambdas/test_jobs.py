"""What a stage executes, and the Kubernetes objects that it becomes."""

from __future__ import annotations

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from lambdas.logic.jobs import Job, job_of, rendezvous_port
from lambdas.logic.manifests.indexed_job import render
from lambdas.models.run import Stage
from tests.fakes.runs import run_of, spec_with

GOLDEN = Path("tests/assets/manifests")
KUBERNETES = "1.36"


def job(stage: Stage, **fields: object) -> Job:
    return job_of(run_of(spec_with(**fields)), stage, 1, artifacts_url="s3://artifacts/runs/bert-0123456789ab/")


def test_training_is_launched_with_static_rendezvous_so_that_index_0_is_rank_0() -> None:
    command = " ".join(job(Stage.TRAINING).command)
    name = "bert-0123456789ab-training-1"
    assert command == (
        f"torchrun --nnodes 2 --nproc_per_node 32 --node_rank $(JOB_COMPLETION_INDEX) --master_addr {name}-0.{name} "
        f"--master_port {rendezvous_port(name)} -m trainer.pretrain "
        "--max_steps 100 --learning_rate 0.0004 --compile true"
    )


def test_precompiling_runs_the_same_program_for_a_few_steps() -> None:
    training, precompile = job(Stage.TRAINING).command, job(Stage.PRECOMPILE).command
    assert precompile[:4] == ("python", "-m", "trainer.precompile", "--")
    assert precompile[-2:] == ("--steps_this_run", "10")
    assert precompile[4:].index("trainer.pretrain") == training.index("trainer.pretrain")


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
    assert limits == {"memory": "509Gi", "aws.amazon.com/neuron": "16", "vpc.amazonaws.com/efa": "8"}


def test_one_node_needs_no_network_interfaces() -> None:
    _, manifest = render(job(Stage.TRAINING, compute__num_nodes=1))
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    assert "vpc.amazonaws.com/efa" not in container["resources"]["limits"]
    assert "FI_PROVIDER" not in str(container["env"])


@pytest.mark.parametrize(("processes", "chips"), [(1, "1"), (2, "1"), (3, "2"), (32, "16")])
def test_chips_are_asked_for_whole(processes: int, chips: str) -> None:
    _, manifest = render(job(Stage.TRAINING, compute__processes_per_node=processes))
    limits = manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["aws.amazon.com/neuron"] == chips


def test_the_service_comes_first_so_that_names_resolve_when_pods_start() -> None:
    assert [manifest["kind"] for manifest in render(job(Stage.TRAINING))] == ["Service", "Job"]


@pytest.mark.parametrize("stage", Stage)
def test_every_object_is_what_kubernetes_accepts(stage: Stage) -> None:
    for manifest in render(job(stage)):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@pytest.mark.parametrize("stage", Stage)
def test_the_manifest_is_the_golden_one(stage: Stage) -> None:
    text = yaml.safe_dump_all(render(job(stage)), sort_keys=False)
    assert text == (GOLDEN / f"indexed-job-{stage.value}.yaml").read_text()


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
