"""`pip install .` in an empty environment, outside of the checkout: the client works, and says what the twin needs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "trainflow", "local", "lambdas", "packages")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the client alone, from a copy: a build leaves its folders beside the sources."""
    folder = tmp_path_factory.mktemp("installation")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        path = REPOSITORY / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copyfile(path, source / name)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, str(source)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "venv"


def trainflow(environment: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(environment / "bin" / "trainflow"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_installed_command_answers_outside_of_the_checkout(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = shutil.copyfile(REPOSITORY / "runs" / "demo.yaml", tmp_path / "demo.yaml")
    assert trainflow(environment, tmp_path, "--version").stdout == "trainflow 0.1.0\n"
    valid = trainflow(environment, tmp_path, "validate", spec.name)
    assert (valid.returncode, valid.stdout.startswith("demo.yaml: valid. demo: ")) == (0, True), valid.stderr
    schema = json.loads(trainflow(environment, tmp_path, "schema").stdout)
    assert schema == json.loads((REPOSITORY / "config" / "run-spec.schema.json").read_text())
    # Without it, typer asks which shell is above this process, and there may be none.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    completion = trainflow(environment, tmp_path, "--show-completion", "bash")
    assert "_TRAINFLOW_COMPLETE" in completion.stdout, completion.stderr


def test_a_spec_written_by_the_installed_command_names_a_schema_that_lies_beside_it(
    environment: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('loss: 1')\n")
    written = trainflow(environment, tmp_path, "init", "--from", "train.py")
    assert written.returncode == 0, written.stderr
    named = (tmp_path / "spec.yaml").read_text().splitlines()[0].partition("$schema=")[2]
    assert (tmp_path / named).read_text() == trainflow(environment, tmp_path, "schema").stdout


def test_the_twin_needs_the_repository_and_says_so_in_one_sentence(environment: Path, tmp_path: Path) -> None:
    shutil.copyfile(REPOSITORY / "runs" / "demo.yaml", tmp_path / "demo.yaml")
    refused = trainflow(environment, tmp_path, "run", "demo.yaml", "--local")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert refused.stderr.startswith("trainflow: The twin needs a checkout of the Trainflow repository")
    assert "`make run`" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["demo.yaml"]


def test_nothing_but_the_client_is_installed(environment: Path) -> None:
    (site,) = (environment / "lib").glob("python3*/site-packages")
    names = {path.name for path in site.iterdir()}
    assert "trainflow" in names
    assert names & {"lambdas", "local", "trainer", "stacks", "benchmarks", "tests", "torch", "moto", "aws_cdk"} == set()
    assert (site / "trainflow" / "py.typed").exists()
