"""A program of one's own is started as its spec says: command, arguments, variables, volumes and launcher."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from kubetwin.node.expansion import expand

from lambdas.backends.registry import BACKENDS
from lambdas.logic.compile_cache import cache_key
from lambdas.logic.jobs import Job, job_of
from lambdas.logic.plans import rendezvous_port
from tests.fakes.plans import node_of
from tests.fakes.runs import run_of, run_on, spec_with
from tests.unit.lambdas.test_manifests import rendered
from trainer.steps.processes import processes_of
from trainflow.deployment.backends import KUBERNETES_KINDS, BackendName
from trainflow.errors import InvalidRunSpec
from trainflow.protocol.plan import Launch, Plan, Report, Resume, Secrets, SecretSource, parse_plan
from trainflow.spec.run_spec import decided, parse_run_spec
from trainflow.workflow.run import Stage

NAME = "bert-0123456789ab-training-1"
CPU = {"instance_type": "c7i.xlarge", "num_nodes": 2, "processes_per_node": 2, "check_nodes": False}
STATIC = f"--nnodes 2 --node_rank 0 --master_addr first --master_port {rendezvous_port(NAME)}"


def own(stage: Stage = Stage.TRAINING, *, compute: dict[str, Any] | None = None, **workload: Any) -> Job:
    spec = spec_with(workload={"image": "python:3.12", **workload}, compute=compute or CPU)
    return job_of(run_of(spec), stage, 1, artifacts_url="s3://artifacts/runs/bert-0123456789ab/")


def launch_of(job: Job) -> Launch:
    assert job.plan is not None and job.plan.launch is not None
    return job.plan.launch


def started_by(job: Job) -> list[str]:
    """The processes that the supervisor starts on the first node, where the helpers are installed packages."""
    return [" ".join(process.words) for process in processes_of(node_of(Plan(launch=launch_of(job))))]


def program_in(command: Sequence[str]) -> tuple[str, ...]:
    """The program and its words in the plan that a pod's command ends with."""
    launch = parse_plan(command[-1]).launch
    assert launch is not None
    return launch.program


def container_of(job: Job) -> dict[str, Any]:
    (pod,) = [each for each in map(_pod_spec, rendered(job)) if each]
    container: dict[str, Any] = pod["containers"][0]
    return container


def _pod_spec(document: dict[str, Any]) -> dict[str, Any] | None:
    spec: dict[str, Any] | None = document["spec"].get("template", {}).get("spec")
    return spec


def test_arguments_are_flags_with_none_one_or_many_values() -> None:
    job = own(script="train.py", arguments={"amp": True, "debug": False, "betas": [0.9, 0.95], "model.name": "x y"})
    assert launch_of(job).program == ("train.py", "--amp", "--betas", "0.9", "0.95", "--model.name", "x y")


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ({"module": "trainer.mlp"}, ("--amp", "true")),
        ({"module": "trainer.mlp", "boolean_style": "flag"}, ("--amp",)),
        ({"module": "others.trainer"}, ("--amp",)),
        ({"script": "train.py", "boolean_style": "value"}, ("--amp", "true")),
    ],
)
def test_only_our_own_programs_take_true_as_a_value_unless_the_spec_says_so(
    workload: dict[str, Any], words: tuple[str, ...]
) -> None:
    program = workload.get("module") or workload.get("script")
    given = launch_of(own(**workload, arguments={"amp": True})).program
    assert given[given.index(program) + 1 :] == words


def test_torchrun_starts_a_command_as_it_is() -> None:
    job = own(command=["./train", "--fast"], arguments={"lr": 1}, positional=["data", 3])
    assert started_by(job) == [f"torchrun {STATIC} --nproc_per_node 2 --no-python ./train --fast --lr 1 data 3"]
    assert job.plan is not None and job.plan.report == Report()


@pytest.mark.parametrize(
    ("launcher", "processes", "program", "words"),
    [
        ("none", 1, {"command": ["./train"]}, "./train"),
        ("none", 1, {"script": "train.py"}, "python -u train.py"),
        ("mpi", 2, {"module": "train.it"}, "python -u -m train.it"),
    ],
)
def test_other_launchers_start_a_program_once_a_node_or_once_a_process(
    launcher: str, processes: int, program: dict[str, Any], words: str
) -> None:
    job = own(**program, launcher=launcher, positional=["{rank}"])
    assert started_by(job) == [f"{words} {rank}" for rank in range(processes)]
    assert job.plan is not None and job.plan.report == Report()


def test_placeholders_are_the_folders_and_the_run_of_the_pods() -> None:
    job = own(
        script="train.py",
        arguments={"data": "{data_dir}/train", "out": ["{run_dir}", "{{epoch}}"]},
        positional=["{cache_dir}", "{run_id}"],
        env={"HF_HOME": "{cache_dir}/hub", "SHELL_TEXT": "${HOME}"},
    )
    run, cache = "bert-0123456789ab", "/cache/runs/bert-0123456789ab"
    data = job.environment["TRAINFLOW_DATA_DIR"]
    expected = ("--data", f"{data}/train", "--out", f"/runs/{run}", "{epoch}", cache, run)
    assert launch_of(job).program[-7:] == expected
    assert job.environment["HF_HOME"] == f"{cache}/hub"
    assert job.environment["SHELL_TEXT"] == "${HOME}"


@pytest.mark.parametrize("text", ["$(HOME)", "$$(HOME)", "$HOME", "cost: $5", "$", "$$", "$(JOB_COMPLETION_INDEX)"])
def test_the_kubelet_passes_texts_on_as_they_were_written(text: str) -> None:
    container = container_of(own(script="train.py", positional=[text], env={"TEXT": text}))
    surroundings = {"HOME": "/root", "JOB_COMPLETION_INDEX": "7"}
    command = [expand(word, surroundings) for word in container["command"]]
    assert program_in(command)[-1] == text
    assert command[command.index("--node_rank") + 1] == "7"
    (variable,) = [entry for entry in container["env"] if entry["name"] == "TEXT"]
    assert expand(variable["value"], surroundings) == text


def test_a_programs_own_node_rank_is_no_variable_of_the_clusters() -> None:
    container = container_of(own(script="train.py", arguments={"node_rank": "$(JOB_COMPLETION_INDEX)"}))
    assert container["command"].count("$(JOB_COMPLETION_INDEX)") == 1
    command = [expand(word, {"JOB_COMPLETION_INDEX": "7"}) for word in container["command"]]
    assert program_in(command)[-1] == "$(JOB_COMPLETION_INDEX)"


@pytest.mark.parametrize("stage", [Stage.PREFLIGHT, Stage.PRECOMPILE, Stage.TRAINING])
@pytest.mark.parametrize("backend", KUBERNETES_KINDS)
def test_secrets_are_references_alone_for_the_program_and_its_probe(backend: BackendName, stage: Stage) -> None:
    run = run_on(backend, workload__secrets={"HF_TOKEN": {"name": "hugging-face", "key": "token"}})
    documents = json.dumps(rendered(job_of(run, stage, 1, artifacts_url="s3://a/")))
    reference = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hugging-face", "key": "token"}}}
    assert json.dumps(reference) in documents


@pytest.mark.parametrize("stage", [Stage.PREFLIGHT, Stage.PRECOMPILE, Stage.TRAINING])
@pytest.mark.parametrize("backend", KUBERNETES_KINDS)
def test_secrets_of_secrets_manager_are_read_first_of_all_by_the_pod_itself(backend: BackendName, stage: Stage) -> None:
    source = {"secrets_manager": "team/hub", "key": "token"}
    whole = {"secrets_manager": "team/whole"}
    secrets = {"HF_TOKEN": source, "WHOLE": whole, "OTHER": {"name": "s", "key": "k"}}
    run = run_on(backend, workload__secrets=secrets)
    job = job_of(run, stage, 1, artifacts_url="s3://a/")
    assert job.plan is not None
    assert next(job.plan.steps) == Secrets(
        variables={
            "HF_TOKEN": SecretSource(secret="team/hub", key="token"),
            "WHOLE": SecretSource(secret="team/whole"),
        }
    )
    documents = json.dumps(rendered(job))
    assert '"--secrets_client", "true"' in documents
    assert '{"name": "HF_TOKEN"' not in documents and '{"name": "OTHER", "valueFrom"' in documents


@pytest.mark.parametrize("stage", [Stage.STAGE, Stage.PUBLISH])
def test_small_programs_of_ours_are_given_no_secret_and_no_variable_of_the_spec(stage: Stage) -> None:
    secrets = {"HF_TOKEN": {"name": "s", "key": "k"}, "HUB": {"secrets_manager": "hub"}}
    job = own(stage, script="train.py", secrets=secrets, env={"A": "b"})
    assert (job.secrets, "A" in job.environment, job.plan) == ({}, False, None)


def test_volumes_are_mounted_where_the_spec_says() -> None:
    job = own(
        script="train.py",
        shared_memory_gib=64,
        volumes=[
            {"mount": "/models", "claim": "models", "read_only": True},
            {"mount": "/etc/settings", "config_map": "settings"},
            {"mount": "/spill", "empty_dir_gib": 100},
        ],
    )
    (pod,) = [each for each in map(_pod_spec, rendered(job)) if each]
    assert [volume for volume in pod["volumes"] if volume["name"].startswith("volume-")] == [
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
        {"name": "volume-1", "configMap": {"name": "settings"}},
        {"name": "volume-2", "emptyDir": {"sizeLimit": "100Gi"}},
    ]
    assert [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"].startswith("volume-")] == [
        {"name": "volume-0", "mountPath": "/models", "readOnly": True},
        {"name": "volume-1", "mountPath": "/etc/settings", "readOnly": True},
        {"name": "volume-2", "mountPath": "/spill"},
    ]
    assert {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}} in pod["volumes"]


@pytest.mark.parametrize(
    ("fields", "precompiles", "reason"),
    [
        ({}, True, "Trainflow's own programs know"),
        ({"workload": {"script": "t.py", "image": "i"}}, True, "Neuron's compiler reads the graphs"),
        ({"workload": {"command": ["t"], "image": "i"}}, False, "a command cannot be ended"),
        ({"workload": {"script": "t.py", "image": "i"}, "compute": CPU}, False, "a c7i.xlarge has no Neuron devices"),
        ({"precompile__enabled": False}, False, "precompile.enabled is false"),
    ],
)
def test_precompilation_is_on_where_it_helps(fields: dict[str, Any], precompiles: bool, reason: str) -> None:
    document = {**spec_with(**fields)}
    if "precompile__enabled" not in fields:
        document["precompile"] = {}
    spec = parse_run_spec(document)
    assert spec.precompiles is precompiles
    assert spec.precompile_reason.startswith(reason)
    assert decided(spec).precompile.enabled is precompiles


@pytest.mark.parametrize("choice", ["auto", True, False])
def test_precompilation_may_be_said_in_a_word(choice: str | bool) -> None:
    assert parse_run_spec(spec_with(precompile=choice)).precompile.enabled == choice


def test_another_word_for_precompilation_is_refused() -> None:
    with pytest.raises(InvalidRunSpec, match=r"^precompile.enabled: .*auto.*'sometimes'"):
        parse_run_spec(spec_with(precompile="sometimes"))


@pytest.mark.parametrize(
    ("workload", "precompile", "words"),
    [
        ({"script": "train.py"}, {}, "-m trainer.limit_steps --steps 10 -- train.py --lr 1"),
        ({"module": "a.b"}, {"steps": 4}, "-m trainer.limit_steps --steps 4 -- -m a.b --lr 1"),
        ({"script": "train.py"}, {"steps_argument": "max-steps"}, "train.py --lr 1 --max-steps 10"),
        ({"command": ["./t"]}, {"steps_argument": "steps", "enabled": True}, "--no-python ./t --lr 1 --steps 10"),
        ({"module": "trainer.mlp"}, {}, "-m trainer.mlp --lr 1 --steps_this_run 10"),
    ],
)
def test_a_precompilation_ends_after_its_steps(
    workload: dict[str, Any], precompile: dict[str, Any], words: str
) -> None:
    spec = spec_with(workload={"image": "i", "arguments": {"lr": 1}, **workload}, precompile=precompile)
    job = job_of(run_of(spec), Stage.PRECOMPILE, 1, artifacts_url="s3://a/")
    assert started_by(job)[0].endswith(words)


def test_a_training_is_given_its_newest_checkpoint_and_publishes_it() -> None:
    checkpoint = {"path": "step-{step}", "resume": ["--resume", "{checkpoint}"], "marker": "DONE"}
    spec = spec_with(workload={"image": "i", "script": "train.py"}, compute=CPU, checkpoint=checkpoint)
    run = run_of(spec)
    plan = job_of(run, Stage.TRAINING, 2, artifacts_url="s3://a/").plan
    assert plan is not None
    resume, report = (next(step for step in plan.steps if isinstance(step, kind)) for kind in (Resume, Report))
    assert resume == Resume(
        path="step-{step}",
        words=("--resume", "{checkpoint}"),
        marker="DONE",
        settled_seconds=60.0,
        decision="bert-0123456789ab-training-2",
    )
    assert report == Report()
    precompile = job_of(run, Stage.PRECOMPILE, 1, artifacts_url="s3://a/").plan
    assert precompile is not None and precompile.resume is None
    published = job_of(run, Stage.PUBLISH, 1, artifacts_url="s3://a/").command
    assert published[-4:] == ("--checkpoints", "step-{step}", "--marker", "DONE")


def test_of_our_own_program_its_own_checkpoints_are_published_and_of_others_every_file() -> None:
    assert "--checkpoints" not in job_of(run_of(), Stage.PUBLISH, 1, artifacts_url="s3://a/").command
    assert own(Stage.PUBLISH, script="train.py").command[-2:] == ("--checkpoints", "")


@pytest.mark.parametrize(
    "change",
    [{"env": {"XLA_USE_BF16": "1"}}, {"positional": ["x"]}, {"arguments": {"sizes": [1, 2]}}, {"script": "b.py"}],
)
def test_whatever_may_change_a_graph_changes_the_caches_key(change: dict[str, Any]) -> None:
    before, after = (
        parse_run_spec(spec_with(workload={"image": "i", "script": "a.py", "arguments": {}, **fields}))
        for fields in ({}, change)
    )
    assert cache_key(before, image_digest=None) != cache_key(after, image_digest=None)


def test_every_backend_is_tried_here() -> None:
    assert set(BACKENDS) == {*KUBERNETES_KINDS, "slurm"}
