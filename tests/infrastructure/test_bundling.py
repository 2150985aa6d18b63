"""The functions' archive: the same inputs give the same one, pip alone builds it, and all of them run from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from stacks.orchestration import bundling
from stacks.orchestration.bundling import REPOSITORY, bundle, function_code, pins
from trainflow.configuration.deployment import ConfigurationError
from trainflow.deployment.functions import FUNCTIONS

HASHES = [f"--hash=sha256:{digit * 64}" for digit in "ab"]
ASKED_BY = {
    "boto3==1.2.3": "-r requirements/lambdas.in, -r requirements/trainer.in",
    "botocore==1.2.3": "boto3, moto",
    "moto==5.0.0": "-r requirements/twin.in",
    "urllib3==2.0.0": "-r requirements/twin.in, botocore",
    "pip==26.3": "pip-tools",
}
REQUIREMENTS = "".join(
    " \\\n    ".join([pin, *HASHES]) + f"\n    # via {sources}\n" for pin, sources in ASKED_BY.items()
)
PINS = [" ".join([pin, *HASHES]) for pin in ("boto3==1.2.3", "botocore==1.2.3", "urllib3==2.0.0")]

LAMBDA_LIMIT_MB = 250
"""Largest code of a function, unzipped (AWS Lambda quotas)."""

ARM64 = 183
"""Value of the ELF header's e_machine for AArch64."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small one, with one handler and a requirement."""
    (tmp_path / "lambdas").mkdir()
    (tmp_path / "lambdas" / "handler.py").write_text("work = 1\n")
    (tmp_path / "trainflow").mkdir()
    (tmp_path / "trainflow" / "report.html.j2").write_text("{{ record }}\n")
    (tmp_path / "trainflow" / "prices.json").write_text("[]\n")
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS)
    return tmp_path


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """pip's command lines, with what stands in the requirements file that ends them; instead of running, pip leaves a
    package with some ballast."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        *words, file = command
        calls.append([*words, *Path(file).read_text().splitlines()])
        folder = Path(command[command.index("--target") + 1])
        for name in ("package/module.py", "package/tests/test.py", "package-1.dist-info/RECORD", "bin/tool"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(bundling.subprocess, "run", run)
    return calls


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# What goes in


def test_the_pins_are_all_that_the_functions_need_and_nothing_else(repository: Path) -> None:
    assert pins(repository) == PINS


def test_the_functions_get_the_versions_that_were_tested() -> None:
    locked = set((REPOSITORY / "requirements.txt").read_text().split())
    names = {pin.partition("==")[0] for pin in pins(REPOSITORY)}
    assert {word for pin in pins(REPOSITORY) for word in pin.split()} <= locked
    assert all(" --hash=sha256:" in pin for pin in pins(REPOSITORY))
    assert {"boto3", "pydantic", "kubernetes", "aws-lambda-powertools", "aws-xray-sdk"} <= names
    assert not {"torch", "moto", "pytest", "aws-cdk-lib"} & names


def test_a_bundle_holds_the_sources_and_what_they_import(repository: Path, installed: list[list[str]]) -> None:
    sources = {"lambdas/handler.py", "trainflow/report.html.j2", "trainflow/prices.json"}
    assert contents(bundle(repository)) == {*sources, "package/module.py"}
    [command] = installed
    assert command[-len(PINS) :] == PINS
    assert "--only-binary" in command, "nothing is compiled on the machine that deploys"
    assert "--no-deps" in command, "the versions are settled"
    assert "--require-hashes" in command, "and so are the files"
    assert "manylinux2014_aarch64" in command


# When it is built


def test_a_second_bundle_of_the_same_costs_nothing(repository: Path, installed: list[list[str]]) -> None:
    assert bundle(repository) == bundle(repository)
    assert len(installed) == 1


def test_a_changed_handler_is_another_bundle_of_the_same_packages(repository: Path, installed: list[list[str]]) -> None:
    before = bundle(repository)
    (repository / "lambdas" / "handler.py").write_text("work = 2\n")
    after = bundle(repository)
    assert after != before
    assert (after / "lambdas" / "handler.py").read_text() == "work = 2\n"
    assert (before / "lambdas" / "handler.py").read_text() == "work = 1\n"
    assert len(installed) == 1


@pytest.mark.parametrize(("pin", "matters"), [("botocore==1.2.3", True), ("moto==5.0.0", False)])
def test_only_the_functions_own_requirements_change_the_bundle(
    pin: str, matters: bool, repository: Path, installed: list[list[str]]
) -> None:
    before = bundle(repository)
    (repository / "requirements.txt").write_text(REQUIREMENTS.replace(pin, f"{pin}9"))
    assert (bundle(repository) != before) is matters


def test_a_build_that_breaks_off_leaves_nothing_that_could_be_taken_for_a_bundle(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bundling.subprocess, "run", break_off)
    with pytest.raises(KeyboardInterrupt):
        bundle(repository)
    assert contents(repository / bundling.BUNDLES) == set()


def test_without_a_package_index_the_reason_is_one_sentence(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "WARNING: Retrying\nERROR: Could not find a version that satisfies the requirement boto3==1.2.3\n"
    failed = subprocess.CompletedProcess([], 1, "", said)
    monkeypatch.setattr(bundling.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ConfigurationError, match=r"packages.*installed.* boto3==1\.2\.3$"):
        bundle(repository)


def test_without_pip_the_reason_is_what_python_says(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "/somewhere/python: No module named pip\n")
    monkeypatch.setattr(bundling.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ConfigurationError, match=r"No module named pip$"):
        bundle(repository)


def test_a_stack_that_is_not_deployed_needs_no_bundle(repository: Path, installed: list[list[str]]) -> None:
    app = cdk.App(context={"aws:cdk:bundling-stacks": []})
    function_code(cdk.Stack(app, "Stack"), repository=repository)
    assert installed == []


def test_a_stack_that_is_deployed_gets_the_bundle(repository: Path, installed: list[list[str]]) -> None:
    function_code(cdk.Stack(cdk.App(), "Stack"), repository=repository)
    assert len(installed) == 1


# What comes out, with the real pip


@pytest.mark.slow
def test_every_handler_can_be_imported_from_the_bundle_alone() -> None:
    here = bundle(REPOSITORY, target=("--only-binary", ":all:"))
    modules = [function.handler.rpartition(".")[0] for function in FUNCTIONS]
    program = f"""
import sys
sys.path.insert(0, {str(here)!r})
import importlib
for module in {modules!r}:
    assert callable(importlib.import_module(module).lambda_handler), module
from trainflow.nodes.prices import prices
assert prices(), "the archive lacks the prices"
foreign = [name for name, module in sys.modules.items() if "site-packages" in (getattr(module, "__file__", "") or "")]
assert not foreign, foreign
"""
    subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", program], check=True, env={"AWS_DEFAULT_REGION": "us-west-2"}
    )


@pytest.mark.slow
def test_the_bundle_is_for_lambdas_processors_and_within_its_limit() -> None:
    folder = bundle(REPOSITORY)
    libraries = list(folder.rglob("*.so"))
    assert libraries
    assert {int.from_bytes(library.read_bytes()[18:20], "little") for library in libraries} == {ARM64}
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert size < LAMBDA_LIMIT_MB * 1_000_000
