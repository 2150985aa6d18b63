"""Ctrl-C while the command begins, and a disk that is full: one sentence, and how a run ended in any case."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import NoReturn, cast

import pytest
from recorded_runs import recorded
from rich.console import Console
from typer.testing import CliRunner

from tests.fakes.replayed_place import ReplayedPlace
from tests.fakes.runs import spec_with
from trainflow.__main__ import main
from trainflow.cli import attended
from trainflow.cli import run as run_module
from trainflow.cli.deployed import start
from trainflow.cli.main import app
from trainflow.cli.run import follow_to_end
from trainflow.client.runs import DeployedRuns
from trainflow.client.whole_files import write_text
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunStatus

RUN = recorded("succeeded")
SPEC = parse_run_spec(spec_with())


def full(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupted(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def command(monkeypatch: pytest.MonkeyPatch, app: object) -> int:
    """The exit status of a command whose application is this one."""
    module = ModuleType("trainflow.cli.main")
    module.app = app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trainflow.cli.main", module)
    with pytest.raises(SystemExit) as ended:
        main()
    return cast("int", ended.value.code)


def test_ctrl_c_before_a_command_has_begun_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, interrupted) == 130
    assert capsys.readouterr().err == "Stopped before anything was done.\n"


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, full) == 1
    assert capsys.readouterr().err == (
        "trainflow: a file cannot be written: No space left on device. Free some space first.\n"
    )


def test_ctrl_c_before_a_run_began_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_module, "run_at", interrupted)
    done = CliRunner().invoke(app, ["run", str(tmp_path / "spec.yaml"), "--local"])
    assert (done.exit_code, done.output) == (130, "Stopped before the run began; nothing is left running.\n")


def test_ctrl_c_while_a_run_is_started_in_a_deployment_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ReplayedPlace([RUN], polls=20, folder=tmp_path)
    place.name = "mine"
    monkeypatch.setattr(place, "start", interrupted)
    monkeypatch.setattr(start, "open_deployment", lambda _: place)
    monkeypatch.setattr(start, "read_spec", lambda *_: SPEC)
    status = start.run_in_deployment(
        "mine", tmp_path / "spec.yaml", [], out=tmp_path, detach=True, console=Console(quiet=True)
    )
    assert status == 130
    told = capsys.readouterr().out.splitlines()
    run_id = told[0].split()[2]
    assert run_id.startswith(f"{SPEC.name}-")
    assert told[1] == f"trainflow status {run_id} --place mine"


def test_ctrl_c_before_a_run_of_a_deployment_is_shown_leaves_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ReplayedPlace([RUN], polls=20, folder=tmp_path)
    place.name = "mine"
    monkeypatch.setattr(start, "page_beside", interrupted)
    status = start.follow_started(
        cast("DeployedRuns", place), RUN.run_id, out=tmp_path, detach=False, console=Console(quiet=True)
    )
    assert (status, capsys.readouterr().out) == (0, f"The run goes on: trainflow watch {RUN.run_id} --place mine\n")


def test_a_run_whose_record_cannot_be_written_still_tells_how_it_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    printed = io.StringIO()
    console = Console(file=printed, width=60)
    monkeypatch.setattr(run_module, "follow", lambda *_, **__: None)
    monkeypatch.setattr(Path, "write_text", full)
    place = ReplayedPlace([RUN], polls=1, folder=tmp_path)
    record = follow_to_end(place, RUN.run_id, folder=tmp_path / RUN.run_id, console=console)
    assert record.status is RunStatus.SUCCEEDED
    assert printed.getvalue() == f"{tmp_path}/{RUN.run_id}/run.json was not written: No space left on device.\n"


def test_the_error_of_a_full_disk_names_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        write_text(tmp_path / "report.html", "text")
    assert error.value.filename == str(tmp_path / "report.html")


def test_a_detached_run_that_could_not_even_say_why_it_did_not_begin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(1)")
    assert attended.run_detached(["run", "spec.yaml", "--local"], out=tmp_path / "out") == 1
    assert "is the disk full?" in capsys.readouterr().err
