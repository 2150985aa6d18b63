"""Files that Git keeps out of the pack are named before the run, and when a program does not find one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.fakes.runs import SPEC, spec_with
from tests.wording import wording
from trainflow.cli.main import app
from trainflow.client.code import PackedCode, pack
from trainflow.client.left_out import files_left_out, sentence
from trainflow.record.left_out import left_out_warnings
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.run_error import RunError

SOURCE = 'import os\nopen(os.path.join("data", "small.bin"))\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text(SOURCE)
    (folder / ".gitignore").write_text("*.bin\n__pycache__/\nbig/\n")
    subprocess.run(["git", "-C", folder, "init", "--quiet"], check=True)
    return folder


def spec_of(folder: Path) -> RunSpec:
    (folder / "spec.yaml").write_text("")
    return parse_run_spec(spec_with(workload={"image": "i", "script": "train.py", "code": "."}))


def packed(folder: Path) -> PackedCode:
    found = pack(spec_of(folder).workload, beside=folder)
    assert found is not None
    return found


def test_large_files_and_those_that_the_source_names_are_named_with_their_sizes(project: Path) -> None:
    (project / "data/small.bin").write_bytes(bytes(2048))
    (project / "data/large.bin").write_bytes(bytes(3 << 20))
    (project / "data/other.bin").write_bytes(b"1")
    (project / "big/deep").mkdir(parents=True)
    (project / "big/deep/x").write_bytes(bytes(2 << 20))
    (project / "__pycache__").mkdir()
    (project / "__pycache__/large").write_bytes(bytes(2 << 20))
    assert packed(project).note == (
        wording(
            "left_out.large_files_and_those_that_the_source_names_are_named_with_their_sizes",
            "large.bin",
            "3.0",
            "2.0",
            "small.bin",
        )
    )


def test_the_spec_of_a_run_carries_what_was_left_out_and_the_archive_stays_the_same(project: Path) -> None:
    before = packed(project)
    (project / "data/small.bin").write_bytes(b"1")
    after = packed(project)
    assert before.sha256 == after.sha256
    workload = after.named_in(spec_of(project), bucket="b").workload
    assert workload.code_left_out == ["data/small.bin"]


def test_a_folder_without_git_leaves_out_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.bin").touch()
    assert files_left_out(tmp_path) == ()
    assert sentence((), SOURCE.encode()) is None


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_commands_before_the_run_name_them(project: Path, command: str) -> None:
    (project / "data/small.bin").write_bytes(b"1")
    spec = project / "spec.yaml"
    CliRunner().invoke(app, ["init", "--from", str(project / "train.py"), "--out", str(spec)])
    done = CliRunner().invoke(app, [command, str(spec)])
    assert "Note: not packed, because .gitignore names them: data/small.bin (1 B)" in done.output


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'", "data/train.bin"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/workspace/data/train.bin'", "data/train.bin"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/runs/x-012345678901/workspace/data/train.bin'",
            "data/train.bin",
        ),
        ("cat: No such file or directory: /runs/x-01/.trainflow/workspace/2/data/train.bin", "data/train.bin"),
        ("FileNotFoundError: [Errno 2] No such file or directory: './weights/a.pt'", "weights/a.pt"),
        ("cat: No such file or directory: data/train.bin", "data/train.bin"),
    ],
)
def test_a_missing_file_that_was_left_out_is_explained(text: str, path: str) -> None:
    error = RunError(name="ScriptFailed", message=f"Pod 'x' ended: {text}", what_to_do="")
    spec = {"workload": {"code_left_out": ["data/train.bin", "weights/"]}}
    (warning,) = left_out_warnings(spec, error)
    assert warning.startswith(f"The program did not find {path}: the file is in the folder of the code, but .gitignore")


@pytest.mark.parametrize(
    "spec", [SPEC, {}, {"workload": None}, {"workload": {"code_left_out": "x"}}, {"workload": {"code_left_out": ["x"]}}]
)
def test_other_missing_files_are_not(spec: dict[str, object]) -> None:
    message = "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'"
    assert left_out_warnings(spec, RunError(name="ScriptFailed", message=message, what_to_do="")) == []
    assert left_out_warnings({"workload": {"code_left_out": ["data/train.bin"]}}, None) == []
