"""Folders that cannot be used are one sentence and exit status 2."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from tests.fakes.runs import SPEC, spec_with
from trainflow.cli.attended import run_detached
from trainflow.cli.main import app
from trainflow.client.files import write_record
from trainflow.workflow.run_record import RunRecord, RunStatus, StateVisit


@pytest.mark.parametrize(
    ("name", "sentence"), [("file", "this is a file and no folder"), ("missing", "there is no such folder")]
)
def test_a_list_of_what_is_no_folder_is_refused(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "file").touch()
    answer = CliRunner().invoke(app, ["list", "--local", "--out", str(tmp_path / name)])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr == f"trainflow: --out {tmp_path / name}: {sentence}.\n"


def test_a_list_before_the_first_run_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, ["list", "--local"])
    assert (answer.exit_code, answer.stderr) == (0, "No runs yet.\n")


def test_a_detached_run_whose_folder_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(typer.Exit) as refused:
        run_detached(["run", "spec.yaml", "--local"], out=tmp_path / "file")
    assert refused.value.exit_code == 2
    assert (
        capsys.readouterr().err
        == f"trainflow: --out {tmp_path / 'file'}: the folder cannot be made (File exists); name another one.\n"
    )


BEGAN = datetime(2026, 11, 22, 8, tzinfo=UTC)


def blocked_folders(folder: Path) -> dict[str, Path]:
    """Paths at which no process can make a folder, whatever its rights are."""
    (folder / "file").touch()
    (folder / "with-a-file" / "volumes").parent.mkdir()
    (folder / "with-a-file" / "volumes").touch()
    return {
        "a file": folder / "file",
        "below a file": folder / "file" / "home",
        "a file inside": folder / "with-a-file",
        "a system's folder": Path("/proc/1/nope"),
    }


HOMES = ("a file", "below a file", "a file inside", "a system's folder")


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("command", [("run",), ("grid", "--over", "compute.num_nodes=1,2")])
def test_a_home_that_cannot_be_made_is_refused_before_the_twin_starts(
    tmp_path: Path, home: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = blocked_folders(tmp_path)[home]
    Path("train.py").touch()
    Path("spec.yaml").write_text(yaml.safe_dump(spec_with(workload={"script": "train.py", "image": "i"}, dataset=None)))
    name, *options = command
    answer = CliRunner().invoke(app, [name, "spec.yaml", *options, "--local", "--home", str(folder)])
    assert answer.exit_code == 2
    assert answer.stderr.startswith(f"trainflow: --home {folder}: ")
    assert answer.stderr.endswith("; name another folder with --home.\n")
    assert [path.name for path in Path("out").iterdir()] == []


@pytest.mark.parametrize("home", HOMES)
def test_a_plan_says_that_the_home_cannot_be_made(tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = blocked_folders(tmp_path)[home]
    Path("train.py").touch()
    Path("spec.yaml").write_text(yaml.safe_dump(spec_with(workload={"script": "train.py", "image": "i"}, dataset=None)))
    answer = CliRunner().invoke(app, ["plan", "spec.yaml", "--local", "--home", str(folder)])
    assert f"--home {folder}: " in answer.stdout
    assert "name another folder with --home" in " ".join(answer.stdout.split())


@pytest.mark.parametrize("home", ["a file", "below a file", "a system's folder"])
@pytest.mark.parametrize("command", ["artifacts", "resume"])
def test_what_a_run_has_left_in_a_home_is_not_searched_where_there_is_none(
    tmp_path: Path, home: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = blocked_folders(tmp_path)[home]
    trained = StateVisit(name="SubmitTraining", entered_at=BEGAN)
    record = RunRecord(run_id="a-1", status=RunStatus.FAILED, spec=SPEC, started_at=BEGAN, states=[trained])
    write_record(record, Path("out/a-1/run.json"))
    answer = CliRunner().invoke(app, [command, "a-1", "--local", "--home", str(folder)])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "--home" in answer.stderr
    assert answer.stderr.count("\n") == 1
