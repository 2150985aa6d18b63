"""Folders that cannot be used are one sentence and exit status 2."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from trainflow.cli.attended import run_detached
from trainflow.cli.main import app


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
