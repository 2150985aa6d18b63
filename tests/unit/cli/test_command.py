"""The command's answers to bad input: one sentence that names the field or file, exit status 2, nothing created."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from local import preflight
from local.place import TwinPlace
from local.twin import REPOSITORY
from tests.fakes.runs import SPEC, spec_with
from tests.wording import wording
from trainflow.cli.main import app
from trainflow.client.place import PlaceOptions
from trainflow.errors import DatasetNotFound
from trainflow.spec.document import MAX_BYTES
from trainflow.spec.run_spec import RunSpec, parse_run_spec


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    return tmp_path / "spec.yaml"


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_a_valid_spec_is_said_to_be_valid(spec_file: Path) -> None:
    spec_file.write_text(yaml.safe_dump(SPEC))
    answer = invoke("validate", str(spec_file))
    assert answer.exit_code == 0
    assert answer.stdout.splitlines() == [
        f"{spec_file}: valid. bert: 2 × trn1.32xlarge, 64 processes, backend job.",
        wording("command.a_valid_spec_is_said_to_be_valid", "programs", "compile"),
    ]


def test_a_valid_spec_is_described_for_programs(spec_file: Path) -> None:
    spec_file.write_text(yaml.safe_dump(SPEC))
    answer = invoke("validate", str(spec_file), "--json")
    assert answer.exit_code == 0
    assert json.loads(answer.stdout) == {
        "version": 1,
        "spec": str(spec_file),
        "valid": True,
        "name": "bert",
        "instance_type": "trn1.32xlarge",
        "num_nodes": 2,
        "processes": 64,
        "backend": "job",
        "precompiles": True,
        "precompile_reason": "Trainflow's own programs know how to compile first",
        "notes": [],
    }


def test_an_invalid_spec_is_a_document_for_programs(spec_file: Path) -> None:
    spec_file.write_text(yaml.safe_dump(spec_with(compute__num_nodes=0)))
    answer = invoke("validate", str(spec_file), "--json")
    assert (answer.exit_code, answer.stderr) == (2, "")
    assert json.loads(answer.stdout) == {
        "version": 1,
        "spec": str(spec_file),
        "valid": False,
        "error": f"{spec_file}: compute.num_nodes: must be at least 1, got 0.",
    }


READING = {"list", "status", "top", "plan", "metrics", "compare", "report", "artifacts", "places", "validate", "doctor"}
READING |= {"check-account", "costs", "sweep", "grid", "logs"}
"""Commands that answer a question, and those whose answer is what they have done."""


def test_every_command_that_answers_a_question_answers_programs() -> None:
    group = typer.main.get_command(app)
    commands = group.commands  # type: ignore[attr-defined]
    printing = {name for name, one in commands.items() if any("--json" in option.opts for option in one.params)}
    assert printing == READING


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (yaml.safe_dump(spec_with(compute__num_nodes=0)), "compute.num_nodes: must be at least 1, got 0."),
        ("a: [1", "The file is not YAML at line 2, column 1: did not find expected ',' or ']'."),
        ("just words", "The run spec must be a mapping"),
        ("", "The run spec must be a mapping"),
        ("\x00", "The file is not YAML: control characters are not allowed."),
    ],
)
def test_a_bad_spec_is_refused_by_validate_and_by_run(
    spec_file: Path, tmp_path: Path, content: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec_file.write_text(content)
    for arguments in (["validate"], ["run", "--local"]):
        answer = invoke(*arguments, str(spec_file))
        assert answer.exit_code == 2
        assert sentence in answer.stderr
        assert answer.stderr.startswith(f"trainflow: {spec_file}: ")
        assert "Traceback" not in answer.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]


def test_a_spec_on_the_standard_input_is_validated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    override = tmp_path / "override.yaml"
    override.write_text("compute: {num_nodes: 4}\n")
    for text in (yaml.safe_dump(SPEC), json.dumps(SPEC)):
        answer = CliRunner().invoke(app, ["validate", "-", "--override", str(override)], input=text)
        assert (answer.exit_code, answer.stderr) == (0, "")
        assert answer.stdout.startswith("-: valid. bert: 4 × trn1.32xlarge, 128 processes, backend job.\n")
    document = json.loads(CliRunner().invoke(app, ["validate", "-", "--json"], input=yaml.safe_dump(SPEC)).stdout)
    assert (document["spec"], document["valid"]) == ("-", True)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (yaml.safe_dump(spec_with(compute__num_nodes=0)).encode(), "compute.num_nodes: must be at least 1, got 0."),
        (b"", "The run spec must be a mapping"),
        (b"\xff\xfe\x00", "The file is not text in UTF-8."),
        (b"#" * (MAX_BYTES + 1), "The file is larger than"),
    ],
)
def test_a_bad_spec_on_the_standard_input_is_one_sentence(content: bytes, sentence: str) -> None:
    answer = CliRunner().invoke(app, ["validate", "-"], input=content)
    assert (answer.exit_code, answer.stdout) == (2, "")
    (said,) = answer.stderr.splitlines()
    assert said.startswith("trainflow: -: ")
    assert sentence in said


IN_TIME = ("--time-scale", "inf", "give a number from 1 to 10,000, such as 30.")
AT_A_CLUSTER = ("--kubeconfig", "/nope", "there is no such file.")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *((command, IN_TIME) for command in ("run", "run --detach", "resume", "resume --detach", "grid")),
        *((command, AT_A_CLUSTER) for command in ("run", "run --detach", "resume", "resume --detach")),
    ],
)
def test_an_option_that_cannot_be_met_is_one_sentence_before_anything_is_made(
    spec_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, option: tuple[str, str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    spec_file.write_text(yaml.safe_dump(SPEC))
    name, *detach = command.split()
    subject = {"resume": ["bert-1"], "grid": ["spec.yaml", "--over", "compute.num_nodes=1,2"]}
    for place in (["--local"], []):
        answer = invoke(name, *subject.get(name, ["spec.yaml"]), *place, *detach, *option[:2])
        sentence = f"trainflow: {option[0]} {option[1]}: {option[2]}\n"
        assert (answer.exit_code, answer.stdout, answer.stderr) == (2, "", sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    answer = invoke("validate", str(tmp_path / name))
    assert answer.exit_code == 2
    assert f"{tmp_path / name}: cannot be read" in answer.stderr


def test_a_binary_file_is_no_spec(spec_file: Path) -> None:
    spec_file.write_bytes(b"\xff\xfe\x00")
    answer = invoke("validate", str(spec_file))
    assert answer.exit_code == 2
    assert "The file is not text in UTF-8." in answer.stderr


def test_a_run_says_where_it_can_run(spec_file: Path) -> None:
    spec_file.write_text(yaml.safe_dump(SPEC))
    answer = invoke("run", str(spec_file))
    assert answer.exit_code == 2
    assert "--local" in answer.stderr


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"dataset": {"url": "s3://nowhere/a.tar"}}, "dataset.url: s3://nowhere/a.tar does not exist"),
        ({"dataset": {"url": "s3://nowhere/wiki/"}}, "dataset.url: there is nothing below s3://nowhere/wiki/; in the"),
        ({"workload": {"script": "no/such.py", "image": "i"}}, "workload.script: there is no file 'no/such.py'"),
        ({"workload": {"module": "trainer.absent", "image": "i"}}, "workload.module: there is no module"),
    ],
)
def test_what_is_missing_is_found_before_anything_is_created(
    spec_file: Path, tmp_path: Path, fields: dict[str, Any], sentence: str
) -> None:
    spec_file.write_text(yaml.safe_dump(spec_with(**fields)))
    out, home = tmp_path / "out", tmp_path / "home"
    answer = invoke("run", str(spec_file), "--local", "--out", str(out), "--home", str(home))
    assert answer.exit_code == 2
    assert sentence in answer.stderr
    assert not out.exists()
    assert not home.exists()


def test_data_has_to_be_in_the_folder_that_stands_for_s3(tmp_path: Path) -> None:
    (tmp_path / "corpus" / "wiki" / "part").mkdir(parents=True)
    spec = parse_run_spec(spec_with(dataset={"url": "s3://corpus/wiki/", "manifest_url": "s3://corpus/wiki.sha256"}))
    with pytest.raises(DatasetNotFound, match="there is nothing below s3://corpus/wiki/"):
        preflight.require_dataset(spec, tmp_path)
    (tmp_path / "corpus" / "wiki" / "part" / "0.hdf5").touch()
    with pytest.raises(DatasetNotFound, match=r"manifest_url: s3://corpus/wiki\.sha256"):
        preflight.require_dataset(spec, tmp_path)
    (tmp_path / "corpus" / "wiki.sha256").touch()
    preflight.require_dataset(spec, tmp_path)


def test_data_behind_https_is_not_checked(tmp_path: Path) -> None:
    spec = parse_run_spec(spec_with(dataset={"url": "https://nowhere.invalid/a.tar", "sha256": "0" * 64}))
    preflight.require_dataset(spec, tmp_path)


@pytest.mark.skipif("sys.platform != 'linux'", reason="only Linux has it")
def test_missing_shared_memory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(preflight.MachineUnfit, match=r"/shm .*missing.*memory"):
        preflight.require_shared_memory(tmp_path / "shm")


def test_a_program_of_the_environment_is_not_searched_in_the_image(tmp_path: Path) -> None:
    spec = parse_run_spec(spec_with(workload={"module": "torch.utils.collect_env", "image": "i"}))
    preflight.require_program(spec.workload, tmp_path)


def test_the_image_is_the_given_folder_or_the_specs_or_the_repository(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    mine = parse_run_spec(spec_with(workload={"script": "mine.py", "image": "i"}))
    ours = parse_run_spec(spec_with())

    def image_root(spec: RunSpec, **options: Path) -> Path:
        return TwinPlace(PlaceOptions(**options))._image_root(spec)

    assert image_root(mine, spec_folder=tmp_path) == tmp_path
    assert image_root(ours, spec_folder=tmp_path) == image_root(mine) == REPOSITORY
    assert image_root(ours, spec_folder=tmp_path, image_root=tmp_path) == tmp_path


SLURM = {"backend": "slurm", "instance_type": "c7i.xlarge", "num_nodes": 3, "processes_per_node": 1, "queue": "short"}


@pytest.mark.parametrize(
    ("compute", "sentence"),
    [
        (
            {"instance_type": "c7i.xlarge", "num_nodes": 17, "processes_per_node": 1},
            "compute.num_nodes is 17, but the node group 'trainflow-c7i-xlarge' may have at most 16 nodes.",
        ),
        pytest.param(
            SLURM,
            "compute.num_nodes is 3, but a job in the partition 'short' may have at most 2 nodes; ask for fewer, or "
            "name another partition as compute.queue.",
            marks=pytest.mark.slurm,
        ),
    ],
    ids=["node group", "partition"],
)
@pytest.mark.parametrize("command", [("run",), ("grid", "--over", "limits.max_restarts=1,2")])
def test_a_gang_that_never_fits_is_refused_before_the_twin_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compute: dict[str, Any],
    sentence: str,
    command: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    workload = {"script": "train.py"} if "backend" in compute else {"script": "train.py", "image": "i"}
    Path("spec.yaml").write_text(yaml.safe_dump(spec_with(workload=workload, compute=compute, dataset=None)))
    name, *options = command
    answer = invoke(name, "spec.yaml", *options, "--local")
    assert (answer.exit_code, answer.stderr) == (2, f"trainflow: {sentence}\n")
    assert list(Path("out").iterdir()) == []


def test_no_run_of_a_grid_starts_if_one_of_them_never_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    compute = {"instance_type": "c7i.xlarge", "num_nodes": 1, "processes_per_node": 1}
    workload = {"script": "train.py", "image": "i"}
    Path("spec.yaml").write_text(yaml.safe_dump(spec_with(workload=workload, compute=compute, dataset=None)))
    answer = invoke("grid", "spec.yaml", "--over", "compute.num_nodes=1,17", "--local")
    assert answer.exit_code == 2
    assert "compute.num_nodes is 17, but the node group" in answer.stderr
    assert "Started" not in answer.stdout
    assert list(Path("out").iterdir()) == []
