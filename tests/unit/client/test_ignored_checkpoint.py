"""A spec whose program is not given the path of its checkpoint is noted before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.fakes.runs import spec_with
from trainflow.cli.main import app
from trainflow.client.programs.ignored_checkpoint import ignored_checkpoint
from trainflow.spec.run_spec import RunSpec, parse_run_spec

PATH = {"path": "step-{step}.pt"}


def spec(workload: dict[str, Any] | None = None, **checkpoint: Any) -> RunSpec:
    program = {"script": "train.py", "image": "i", "code": ".", **(workload or {})}
    return parse_run_spec(spec_with(workload=program, checkpoint={**PATH, **checkpoint}, dataset=None))


def test_a_program_without_words_for_its_checkpoint_is_noted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch")
    assert "checkpoint.resume is empty" in (ignored_checkpoint(spec(), folder=tmp_path) or "")
    assert ignored_checkpoint(spec()) is not None


@pytest.mark.parametrize("file", ["train.py", "inner/load.py", "start.sh"])
def test_a_program_that_reads_the_variable_or_gets_words_is_not_noted(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text('os.environ["TRAINFLOW_CHECKPOINT"]')
    assert ignored_checkpoint(spec(), folder=tmp_path) is None
    assert ignored_checkpoint(spec(resume=["--resume", "{checkpoint}"])) is None
    assert ignored_checkpoint(parse_run_spec(spec_with())) is None


def test_installed_packages_that_name_the_variable_say_nothing_about_the_program(tmp_path: Path) -> None:
    installed = tmp_path / ".venv/lib/trainflow/variables.py"
    installed.parent.mkdir(parents=True)
    installed.write_text('CHECKPOINT = "TRAINFLOW_CHECKPOINT"')
    (tmp_path / "train.py").write_text("import torch")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing.py")
    assert ignored_checkpoint(spec(), folder=tmp_path) is not None


def test_validate_prints_the_note(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch")
    (tmp_path / "spec.json").write_text(spec().model_dump_json(exclude_none=True))
    answer = CliRunner().invoke(app, ["validate", str(tmp_path / "spec.json")])
    assert (answer.exit_code, "Note: checkpoint.resume is empty" in answer.stdout) == (0, True)
