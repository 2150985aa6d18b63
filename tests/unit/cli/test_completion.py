"""Tab completes run ids, spec files and names of places, from this machine alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.client.test_local_runs import address_in, leave_run
from trainflow.cli.main import app
from trainflow.client.twin_address import HeldAddress


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a run that has ended, one that goes on, and specs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    leave_run(tmp_path / "out", "bert-1")
    leave_run(tmp_path / "elsewhere", "gpt-1")
    (tmp_path / "out" / "latest").symlink_to("bert-1")
    (tmp_path / "out" / "notes").mkdir()
    for name in ("spec.yaml", "train.py", "runs/demo.yaml", "runs/old/demo.yml", ".hidden/x.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    held = HeldAddress(tmp_path / "out" / "digits-1", address_in(tmp_path / ".hidden"))
    yield tmp_path
    held.close()


def completed(*words: str) -> list[str]:
    """What bash is told to offer for the last of the words."""
    variables = {"COMP_WORDS": " ".join(("trainflow", *words)), "COMP_CWORD": str(len(words))}
    done = CliRunner().invoke(app, [], env={"_TRAINFLOW_COMPLETE": "complete_bash", **variables}, prog_name="trainflow")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout.split()


@pytest.mark.parametrize("command", ["status", "logs", "stop", "resume", "report", "compare", "tensorboard", "export"])
def test_a_commands_run_is_completed(folder: Path, command: str) -> None:
    assert sorted(completed(command, "")) == ["bert-1", "digits-1"]
    assert completed(command, "be") == ["bert-1"]
    assert completed(command, "x") == []


def test_runs_are_those_of_the_folder_that_is_named(folder: Path) -> None:
    assert completed("status", "--out", "elsewhere", "") == ["gpt-1"]
    assert completed("status", "--out", "nowhere", "") == []
    assert completed("compare", "bert-1", "d") == ["digits-1"]


@pytest.mark.parametrize("command", ["run", "validate", "plan", "grid"])
def test_a_commands_spec_is_completed(folder: Path, command: str) -> None:
    assert completed(command, "") == ["spec.yaml", "runs/demo.yaml"]
    assert completed(command, "ru") == completed(command, "runs/d") == ["runs/demo.yaml"]
    assert completed(command, "runs/") == ["runs/demo.yaml", "runs/old/demo.yml"]
    assert completed(command, "./runs/old/") == ["./runs/old/demo.yml"]
    assert completed(command, f"{folder}/runs/d") == [f"{folder}/runs/demo.yaml"]
    assert completed(command, "nothing/") == []


def test_the_name_of_a_place_is_completed_by_the_configuration_file(folder: Path) -> None:
    assert completed("status", "--place", "") == []
    config = folder / "config" / "trainflow" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[places.mine]\ndeployment = "trainflow"\n\n[places.theirs]\n')
    assert completed("status", "--place", "") == ["mine", "theirs"]
    assert completed("ui", "--place", "m") == ["mine"]
    config.write_text("places = 3")
    assert completed("status", "--place", "") == []


def test_bash_completes_with_the_script_that_the_command_shows(folder: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    (folder / "bin").mkdir()
    command = folder / "bin" / "trainflow"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m trainflow "$@"\n')
    command.chmod(0o755)
    script = (
        "source <(trainflow --show-completion) && COMP_WORDS=(trainflow status be) COMP_CWORD=2 && "
        '_trainflow_completion trainflow && echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [bash, "-c", script],
        env={"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("bert-1\n", "")
