"""Every requirements file can be installed from the public index, on everything that README names."""

from __future__ import annotations

import re
import subprocess
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import yaml

from requirements.resolve import COMPILED, OLDEST_PYTHON, resolve, resolve_cached

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LINUX = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
MACOS = "aarch64-apple-darwin"
CUDA = re.compile(r"nvidia-.+|cuda-.+|triton")
"""What torch from the public index brings along on Linux. The build without CUDA needs none of it."""

XLA = "requirements/tools/xla.txt"
NEURON_BASE = "requirements/tools/neuron-base.txt"
EVERYWHERE = [compiled.output for compiled in COMPILED if compiled.output not in (XLA, NEURON_BASE)]

QUESTIONS_AT_ONCE = 8

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", re.M)
HASHES = re.compile(r"( --hash=sha256:[0-9a-f]{64})+")


@cache
def asked() -> dict[tuple[str, str, str], Future[str]]:
    """What everything needs everywhere, by file, platform and Python.

    The index is asked several questions at a time: they are little work, and their answers take long to come.
    """
    pool = ThreadPoolExecutor(QUESTIONS_AT_ONCE)
    return {
        (file, platform, python): pool.submit(resolve_cached, file, platform=platform, python=python)
        for file, platform, python in product(EVERYWHERE, (*LINUX, MACOS), PYTHONS)
    }


def pins(text: str) -> dict[str, str]:
    return {name.lower().replace("_", "-"): version for name, version in PIN.findall(text)}


def pinned(file: str) -> dict[str, str]:
    return pins(Path(file).read_text())


def requirements(file: str) -> list[tuple[str, str]]:
    """The requirements of a file, each with its options."""
    lines = Path(file).read_text().replace("\\\n", " ").splitlines()
    words = [line.split("#")[0].split() for line in lines]
    return [(first, "".join(f" {option}" for option in options)) for first, *options in filter(None, words)]


@pytest.mark.parametrize("file", [compiled.output for compiled in COMPILED])
def test_everything_is_pinned_to_a_version_that_the_public_index_can_have(file: str) -> None:
    assert [pin for pin, _ in requirements(file) if not PIN.fullmatch(pin)] == []
    # A local version (`2.13.0+cpu`) may not be uploaded to the public index (PEP 440).
    assert [name for name, version in pinned(file).items() if "+" in version] == []


@pytest.mark.parametrize("file", [compiled.output for compiled in COMPILED if compiled.hashes])
def test_everything_that_is_installed_is_checked_by_its_hash(file: str) -> None:
    assert [pin for pin, hashes in requirements(file) if not HASHES.fullmatch(hashes)] == []


def test_every_installation_from_a_requirements_file_asks_for_hashes() -> None:
    """But those of torch alone, whose build for processors is on an index of its own, and of what it brings along."""
    recipes = [Path("Makefile"), Path("trainer/images/cpu.Dockerfile"), Path("trainer/images/tools.Dockerfile")]
    lines = [line for recipe in recipes for line in recipe.read_text().splitlines()]
    installs = [
        line for line in lines if re.search(r"(PIP_INSTALL\)|PIP_CHECKED\)|pip install).* (-r|--requirement) ", line)
    ]
    assert len(installs) == 10
    unchecked = [line for line in installs if not re.search(r"PIP_CHECKED|--require-hashes", line)]
    assert [line for line in unchecked if "torch.txt" not in line] == []
    assert "PIP_CHECKED = $(PIP_INSTALL) --no-deps --require-hashes" in lines


@pytest.mark.parametrize("file", EVERYWHERE)
def test_importing_the_kubernetes_client_builds_no_grammars(file: str) -> None:
    """It imports jsonschema for its validation. Beside rfc3987-syntax, an option of jsonschema's, that takes three CPU
    seconds more, in every process of the command, the twin and the tests."""
    assert "rfc3987-syntax" not in pinned(file)


def test_everything_that_is_installed_is_audited() -> None:
    asked = subprocess.run(["make", "-n", "audit"], capture_output=True, text=True, check=True).stdout
    audited = re.findall(r"--requirement (\S+)", asked)
    assert sorted(audited) == sorted(compiled.output for compiled in COMPILED if compiled.hashes)


def test_updates_are_proposed_wherever_something_is_pinned() -> None:
    updates = yaml.safe_load(Path(".github/dependabot.yml").read_text())["updates"]
    asked = {update["package-ecosystem"]: update.get("directories", [update.get("directory")]) for update in updates}
    folders = {f"/{Path(compiled.output).parent}".replace("/.", "/") for compiled in COMPILED}
    assert set(asked["pip"]) == folders
    assert asked["npm"] == ["/"]
    assert Path("package-lock.json").exists()
    assert asked["github-actions"] == ["/"]


def test_a_recipe_names_no_base_that_dependabot_could_update() -> None:
    recipes = list(Path().glob("trainer/images/*.Dockerfile"))
    assert recipes
    for recipe in recipes:
        assert re.findall(r"^FROM (.+)$", recipe.read_text(), re.MULTILINE) == ["${BASE}"]


def test_actions_are_named_by_commit() -> None:
    """A tag of another repository can be moved."""
    used = [line for file in Path(".github/workflows").iterdir() for line in file.read_text().splitlines()]
    actions = [line.split("uses:")[1] for line in used if "uses:" in line]
    assert len(actions) > 1
    assert [action for action in actions if not re.fullmatch(r" \S+@[0-9a-f]{40} # v[0-9.]+", action)] == []


def test_no_requirements_file_is_left_out() -> None:
    files = {str(path) for path in (Path("requirements.txt"), *Path("requirements").rglob("*.txt"))}
    images = {str(path) for path in Path("trainer/images").glob("*.txt")} - {
        "trainer/images/neuron.txt"
    }  # its base pins
    assert {compiled.output for compiled in COMPILED} == files | images


@pytest.mark.index
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("platform", [*LINUX, MACOS])
@pytest.mark.parametrize("file", EVERYWHERE)
def test_wheels_of_exactly_these_versions_are_on_the_public_index(file: str, platform: str, python: str) -> None:
    needed, here = pins(asked()[file, platform, python].result()), pinned(file)
    assert {name: version for name, version in needed.items() if name in here} == here
    unpinned = [name for name in needed if name not in here]
    assert [name for name in unpinned if not (platform in LINUX and CUDA.fullmatch(name))] == []


@pytest.mark.index
def test_xla_needs_linux_on_x86_64_and_python_3_11() -> None:
    """torch-xla 2.9.0 has wheels for Linux x86-64 alone; the versions beside it are those of `make test-trn1`."""
    needed = pins(resolve_cached(XLA, platform=LINUX[0], python="3.11"))
    assert needed == pinned(XLA)


def test_the_minimum_of_python_is_the_same_everywhere() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())
    assert project["project"]["requires-python"] == f">={OLDEST_PYTHON}"
    assert project["tool"]["ruff"]["target-version"] == f"py{OLDEST_PYTHON.replace('.', '')}"
    assert project["tool"]["mypy"]["python_version"] == OLDEST_PYTHON
    assert f"Python {OLDEST_PYTHON}" in Path("README.md").read_text()
    assert f"sys.version_info >= ({OLDEST_PYTHON.replace('.', ', ')})" in Path("Makefile").read_text()


@pytest.mark.index
def test_the_packages_of_the_neuron_base_have_wheels_where_the_image_runs() -> None:
    """Linux on x86-64 with Python 3.12, as the base has it."""
    assert pins(resolve_cached(NEURON_BASE, platform=LINUX[0], python="3.12")) == pinned(NEURON_BASE)


@pytest.mark.index
def test_the_neuron_image_moves_no_package_of_its_base() -> None:
    constrained = ("--no-annotate", "--constraints", NEURON_BASE)
    needed = pins(resolve(("trainer/images/neuron.txt",), platform=LINUX[0], python="3.12", options=constrained))
    base = pinned(NEURON_BASE)
    assert needed
    assert {name: version for name, version in needed.items() if base.get(name, version) != version} == {}
