"""`trainflow run` in the environments that callers have: each case is the command itself, in a process of its own."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.test_stranger import git

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"
"""Port 9 is `discard`: nothing listens there."""

SHORT = """
workload: {arguments: {max_steps: 2, warmup_steps: 1, checkpoint_steps: 2, compile: false}}
compute: {num_nodes: 1, processes_per_node: 1}
precompile: {enabled: false}
"""
COMPILED = """
workload: {arguments: {max_steps: 2, warmup_steps: 1, checkpoint_steps: 2}}
compute: {num_nodes: 1, processes_per_node: 1}
precompile: {steps: 1}
"""
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True)
class Case:
    """What differs from this machine."""

    variables: dict[str, str] = field(default_factory=dict)
    """`{tmp}` stands for a fresh folder."""
    without: tuple[str, ...] = ()
    prepare: Callable[[], object] | None = None
    """Called in the child before the command starts."""


CASES = {
    "behind a proxy": Case(
        {spelling: NOWHERE for name in PROXIES for spelling in (name, name.upper())} | {"NO_PROXY": "example.com"}
    ),
    "an AWS profile that is missing": Case({"AWS_PROFILE": "missing", "AWS_DEFAULT_PROFILE": "missing"}),
    "AWS files that are no files": Case({"AWS_CONFIG_FILE": "{tmp}", "AWS_SHARED_CREDENTIALS_FILE": "{tmp}/none"}),
    "AWS settings that make no sense": Case(
        {
            "AWS_ENDPOINT_URL": NOWHERE,
            "AWS_ENDPOINT_URL_S3": NOWHERE,
            "AWS_CA_BUNDLE": "/nowhere",
            "AWS_MAX_ATTEMPTS": "many",
            "AWS_RETRY_MODE": "never",
            "AWS_REGION": "mars-1",
            "AWS_DEFAULT_REGION": "mars-1",
            "AWS_ACCESS_KEY_ID": "x",
        }
    ),
    "another cluster and other certificates": Case(
        {"KUBECONFIG": "/nowhere", "SSL_CERT_FILE": "/nowhere", "REQUESTS_CA_BUNDLE": "/nowhere"}
    ),
    "a long TMPDIR with a space": Case({"TMPDIR": "{tmp}/" + "long folder " * 9}),
    "no HOME": Case(without=("HOME",)),
    "a HOME that cannot be written": Case({"HOME": "/proc"}),
    "the C locale": Case({"LANG": "C", "LC_ALL": "C"}),
    "a terminal that knows ASCII alone": Case({"PYTHONIOENCODING": "ascii"}),
    "a narrow terminal": Case({"COLUMNS": "40"}),
    "another time zone": Case({"TZ": "Pacific/Kiritimati"}),
    "settings for other programs": Case(
        {"OMP_NUM_THREADS": "1000", "PYTHONSTARTUP": "/nowhere", "PYTHONWARNINGS": "default", "PYTHONOPTIMIZE": "1"}
    ),
    "a PATH without git and compilers": Case({"PATH": "/nowhere"}),
    "a strict umask": Case(prepare=lambda: os.umask(0o077)),
    "256 open files": Case(prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))),
}


def trainflow_run(
    checkout: Path, folder: Path, override: str, case: Case = Case(), *, python: Path | None = None
) -> tuple[int, str]:
    """Exit status and output of a run of the demo in the twin."""
    tmp = folder / "own"
    tmp.mkdir()
    (folder / "override.yaml").write_text(override)
    variables = {name: value.replace("{tmp}", str(tmp)) for name, value in case.variables.items()}
    if "TMPDIR" in variables:
        Path(variables["TMPDIR"]).mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name not in case.without} | variables
    done = subprocess.run(
        [
            str((python or Path(sys.executable)).with_name("trainflow")),
            *("run", "runs/demo.yaml", "--local", "--override", str(folder / "override.yaml"), "--time-scale", "60"),
            *("--out", str(folder / "out"), "--home", "home" if checkout != REPOSITORY else str(folder / "home")),
        ],
        cwd=checkout,
        env=environment,
        preexec_fn=case.prepare,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=1200,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("case", CASES.values(), ids=[name.replace(" ", "-") for name in CASES])
def test_a_run_succeeds_with(case: Case, tmp_path: Path) -> None:
    status, output = trainflow_run(REPOSITORY, tmp_path, SHORT, case)
    assert status == 0, output
    assert "Traceback" not in output
    assert "Run succeeded" in output


@pytest.mark.parametrize("name", ["My Projects", "Projekte (über)", "it's here"])
def test_graphs_compile_in_a_checkout_whose_path_is(name: str, tmp_path: Path) -> None:
    checkout = tmp_path / name / "trainflow"
    python = copied_checkout(checkout, Path(sys.executable))
    status, output = trainflow_run(checkout, tmp_path, COMPILED, python=python)
    assert status == 0, output
    assert "Run succeeded" in output


def test_a_run_succeeds_with_the_python_of_this_system(tmp_path: Path) -> None:
    """Debian 12 has 3.11.2; what came with a later 3.11 is missing there, and no static check knows of it."""
    system = Path("/usr/bin/python3")
    if not system.exists() or version(system) != version(Path(sys.executable)):
        pytest.skip("/usr/bin/python3 is missing, or cannot load the packages that are installed for this Python")
    checkout = tmp_path / "trainflow"
    python = copied_checkout(checkout, system)
    suite = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit", "-m", "not slow"]
    done = subprocess.run(
        [str(python), *suite], cwd=checkout, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    status, output = trainflow_run(checkout, tmp_path, SHORT, python=python)
    assert status == 0, output


def version(python: Path) -> str:
    """`3.11` of 3.11.2."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def copied_checkout(target: Path, base: Path) -> Path:
    """The files of this checkout and a virtual environment in another folder; the environment's interpreter.

    The packages are links to the installed ones, so that their paths begin with the folder's, as pip would have it.
    """
    left_out = shutil.ignore_patterns(".*", "node_modules", "out", "cdk.out", "*.egg-info", "__pycache__")
    shutil.copytree(REPOSITORY, target, ignore=left_out, symlinks=True)
    git(target, "init", "--quiet")  # some tests ask for the files that Git has
    git(target, "add", "--all")
    subprocess.run([str(base), "-m", "venv", "--without-pip", str(target / ".venv")], check=True)
    (site,) = (target / ".venv" / "lib").glob("python3*/site-packages")
    installed = [Path(entry) for entry in sys.path if entry.endswith("site-packages") and Path(entry).is_dir()]
    for package in (package for folder in installed for package in folder.iterdir()):
        link = site / package.name
        if not package.name.startswith(("__editable__", "trainflow-", "__pycache__")) and not link.exists():
            link.symlink_to(package)
    (site / "checkout.pth").write_text(f"{target}\n{target}/packages/kubetwin\n")
    python = target / ".venv" / "bin" / "python"
    for name, module in {
        "trainflow": "trainflow.__main__ import main",
        "torchrun": "torch.distributed.run import main",
    }.items():
        script = python.with_name(name)
        # What pip writes for interpreters whose paths hold a space, after distlib.
        head = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"
        script.write_text(f"{head}import sys\nfrom {module} as command\nsys.exit(command())\n")
        script.chmod(0o755)
    return python
