"""kubetwin built, installed and run alone: outside of the checkout, with its declared dependencies and nothing else."""

from __future__ import annotations

import importlib.metadata
import json
import os
import select
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubetwin_testing.cluster import WAIT_SECONDS, Cluster, eventually
from packaging.requirements import Requirement

SOURCE = Path(__file__).parents[2]
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
OURS = ("benchmarks", "lambdas", "local", "stacks", "trainer", "trainflow")
"""Packages of the repository that kubetwin lives in."""


def requirements_of(declared: list[str]) -> Iterator[importlib.metadata.Distribution]:
    """The installed distributions of the requirements, and of theirs."""
    pending, seen = list(declared), set()
    while pending:
        requirement = Requirement(pending.pop())
        if requirement.name.lower() in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(requirement.name.lower())
        distribution = importlib.metadata.distribution(requirement.name)
        assert requirement.specifier.contains(distribution.version), f"{requirement} is not installed"
        pending += distribution.requires or []
        yield distribution


def link(distribution: importlib.metadata.Distribution, folder: Path) -> None:
    """Make the files of a distribution importable from a folder."""
    for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        path = folder / name
        if not path.exists():
            path.symlink_to(Path(str(distribution.locate_file(name))))


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with kubetwin from its wheel and its dependencies from the present environment."""
    folder = tmp_path_factory.mktemp("alone")
    source, wheels, home = folder / "source", folder / "wheels", folder / "environment"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("tests", "build", "*.egg-info", "__pycache__"))
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    offline = ("--no-index", "--no-deps")
    run(*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", wheels, source, cwd=folder)
    [wheel] = wheels.iterdir()
    venv.create(home)
    run(*pip, "--python", home / "bin" / "python", "install", *offline, wheel, cwd=folder)
    [packages] = home.glob("lib/python*/site-packages")
    declared = importlib.metadata.Distribution.at(next(packages.glob("kubetwin-*.dist-info"))).requires or []
    for distribution in requirements_of(declared):
        link(distribution, packages)
    return home


@contextmanager
def serving(environment: Path, folder: Path) -> Iterator[Path]:
    """The kubeconfig of a running `kubetwin`."""
    command = [str(environment / "bin" / "kubetwin"), "--state", str(folder), "--until-stdin-closes"]
    process = subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], WAIT_SECONDS)
            assert ready, "nothing was printed"
            yield Path(json.loads(process.stdout.readline())["kubeconfig"])
            process.stdin.close()
            assert process.wait(WAIT_SECONDS) == 0
        finally:
            process.kill()


def test_no_package_of_the_repository_is_importable_and_kubetwin_is_the_installed_one(
    environment: Path, tmp_path: Path
) -> None:
    program = (
        "import importlib.util as u, json, sys; import kubetwin; "
        "print(json.dumps([[n for n in sys.argv[1:] if u.find_spec(n)], kubetwin.__path__[0]]))"
    )
    found, path = json.loads(run(environment / "bin" / "python", "-c", program, *OURS, cwd=tmp_path))
    assert found == []
    assert Path(path).is_relative_to(environment)


@pytest.mark.parametrize("command", [("python", "-m", "kubetwin"), ("kubetwin",)], ids=" ".join)
def test_the_command_explains_itself(environment: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    program, *arguments = command
    printed = run(environment / "bin" / program, *arguments, "--help", cwd=tmp_path)
    assert f"Usage: {' '.join(command)} [OPTIONS] COMMAND" in printed
    assert "--shape" in printed


def test_a_server_with_one_node_answers_and_runs_a_pod(environment: Path, tmp_path: Path) -> None:
    with serving(environment, tmp_path) as kubeconfig:
        cluster = Cluster(kubeconfig, tmp_path, "alone")
        [node] = cluster.api.get("/api/v1/nodes")["items"]
        assert node["metadata"]["name"] == "local-0"
        conditions = {condition["type"]: condition["status"] for condition in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        assert cluster.api.get("/version")["gitVersion"].startswith("v1.36.")
        groups = [group["name"] for group in cluster.api.get("/apis")["groups"]]
        assert {"batch", "jobset.x-k8s.io"} <= set(groups)
        cluster.run("hello", "nslookup localhost >/dev/null && echo hello")
        assert cluster.end_of("hello")["exitCode"] == 0
        assert eventually(lambda: cluster.log("hello"), "the log") == "hello\n"
