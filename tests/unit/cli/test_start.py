"""What each command loads before it answers: nothing that it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_runs import recorded
from typer.testing import CliRunner

from trainflow.cli.on_demand import OnDemandTyper
from trainflow.client.files import write_record
from trainflow.spec.field_docs import field_docs
from trainflow.spec.run_spec import Compute, RunSpec

SPEC = str(Path("runs/demo.yaml").resolve())
AFTERWARDS = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "

SPARED_BY_LIST = {"rich", "boto3", "kubernetes", "jinja2", "yaml", "local"} | {
    f"trainflow.{name}" for name in ("client.place_names", "client.runs", "models.run_spec")
}


def loaded(folder: Path, *arguments: str, **environment: str) -> set[str]:
    """Modules that `trainflow` with these arguments has loaded at its end."""
    code = f"{AFTERWARDS}sys.argv = ['trainflow', *{list(arguments)!r}]; from trainflow.cli.main import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 2), done.stderr[-2000:]
    return set(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "spared"),
    [
        (("--help",), {"pydantic", "rich", "boto3", "kubernetes", "yaml", "tempfile", "trainflow.client.place"}),
        (("list", "--local"), {*SPARED_BY_LIST, "trainflow.workflow.run_record"}),
        (("status", "ended", "--local"), {*SPARED_BY_LIST, "pydantic"}),
        (("logs", "ended", "--local"), {*SPARED_BY_LIST, "pydantic"}),
        (("resume", "ended", "--local"), {*SPARED_BY_LIST, "pydantic"}),
        (("list",), {"rich", "boto3", "botocore", "kubernetes", "yaml", "pydantic"}),
        (("validate", SPEC), {"rich", "boto3", "kubernetes", "jinja2", "local"}),
    ],
)
def test_a_command_loads_what_it_needs_alone(tmp_path: Path, arguments: tuple[str, ...], spared: set[str]) -> None:
    write_record(recorded("succeeded").record(), tmp_path / "out" / "ended" / "run.json")
    record = recorded("succeeded").record()
    (tmp_path / "out" / "ended" / "logs").mkdir()
    (tmp_path / "out" / "ended" / "logs" / f"{record.jobs['training'].rank0}.log").write_text("step 1\n")
    nowhere = {"AWS_CONFIG_FILE": str(tmp_path / "none"), "XDG_CONFIG_HOME": str(tmp_path)}
    modules = loaded(tmp_path, *arguments, **nowhere)
    assert "trainflow.cli.main" in modules
    assert modules & spared == set()


def test_the_tab_key_waits_for_no_model_and_no_network(tmp_path: Path) -> None:
    typed = {"COMP_WORDS": "trainflow status --place ", "COMP_CWORD": "3"}
    modules = loaded(tmp_path, _TRAINFLOW_COMPLETE="complete_bash", **typed)
    assert "trainflow.cli.operate.completion" in modules
    assert modules & {"botocore", "http.client", "kubernetes", "rich", "yaml", "trainflow.spec.run_spec"} == set()


def test_a_command_is_built_when_it_is_called() -> None:
    app = OnDemandTyper()
    app.callback()(lambda: None)

    @app.command()
    def called() -> None:
        print("called")

    @app.command("other-name")
    def other(value: int) -> None:
        raise AssertionError(value)

    other.__annotations__["value"] = "Unknown"  # typer resolves the annotations of a command that it builds

    assert CliRunner().invoke(app, ["called"]).stdout == "called\n"
    assert isinstance(CliRunner().invoke(app, ["other-name"]).exception, NameError)
    assert isinstance(CliRunner().invoke(app, ["--help"]).exception, NameError)


def test_descriptions_of_fields_are_the_docstrings_under_them() -> None:
    assert set(field_docs(Compute)) <= set(Compute.model_fields)
    properties = RunSpec.model_json_schema()["$defs"]["Compute"]["properties"]
    described = {name: field["description"] for name, field in properties.items() if "description" in field}
    assert described == field_docs(Compute)


def test_python_runs_the_package_as_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainflow", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: trainflow [OPTIONS] COMMAND [ARGS]...")
