"""Images run what they are asked to run: their own test knows every entry point and every package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer.images import smoke

MANIFESTS = Path("tests/assets/manifests")
SCRIPTS = Path("tests/assets/slurm/scripts")
OURS = re.compile(r'-m(?: |", ")(trainer(?:\.\w+)*)')
PIN = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def containers(value: Any) -> list[dict[str, Any]]:
    """Containers anywhere in a manifest, whatever kind of job it is."""
    if isinstance(value, list):
        return [found for each in value for found in containers(each)]
    if not isinstance(value, dict):
        return []
    own = (*value.get("containers", ()), *value.get("initContainers", ()))
    return [*own, *(found for each in value.values() for found in containers(each))]


def run_in(kind: str) -> set[str]:
    """Our programs that the golden manifests run in the tools image, or in the runs' own."""
    found = set()
    for path in MANIFESTS.glob("*.yaml"):
        for container in containers(list(yaml.safe_load_all(path.read_text()))):
            if ("/tools@" in container["image"]) == (kind == "tools"):
                found.update(OURS.findall(" ".join(container["command"])))
    return found


def test_every_program_that_can_be_started_is_on_the_list() -> None:
    started = {
        ".".join(path.with_suffix("").parts).removesuffix(".__main__")
        for path in Path("trainer").rglob("*.py")
        if '__name__ == "__main__"' in path.read_text() or path.name == "__main__.py"
    }
    assert started - {"trainer.images.smoke", "trainer.helpers.start"} == set(smoke.ENTRY_POINTS["slurm"])


@pytest.mark.lengthy
@pytest.mark.parametrize("kind", ["tools", "training"])
def test_what_pods_run_in_an_image_is_what_its_test_imports(kind: str) -> None:
    asked = run_in(kind)
    assert asked and asked <= set(smoke.ENTRY_POINTS[kind])


def test_what_slurms_jobs_run_is_what_the_test_of_their_environment_imports() -> None:
    asked = {found for path in SCRIPTS.glob("*.sh") for found in OURS.findall(path.read_text())}
    assert {"trainer.slurm.ship", "trainer.slurm.finish"} < asked <= set(smoke.ENTRY_POINTS["slurm"])


def test_the_tools_image_has_what_its_programs_import_and_no_torch() -> None:
    needed = {module.split(".")[0] for module in smoke.foreign_modules(smoke.TOOLS)}
    installed = set(PIN.findall(Path("trainer/images/tools.txt").read_text()))
    assert {"awscrt", "boto3", "h5py", "zstandard"} <= needed <= installed
    assert not {"torch", "transformers"} & installed


def test_imports_inside_functions_count_and_those_for_types_do_not(tmp_path: Path) -> None:
    source = tmp_path / "program.py"
    source.write_text(
        "import a.b\nif TYPE_CHECKING:\n    import types_only\ndef f():\n    from c import d\n    import e as f\n"
    )
    assert list(smoke.imported_modules(source)) == [("a.b", ()), ("c", ("d",)), ("e", ())]


def run_smoke(*arguments: str, without: str = "no_such_package") -> subprocess.CompletedProcess[str]:
    """The test of an image, in a Python that lacks a package."""
    program = f"import sys; sys.modules[{without!r}] = None; from trainer.images import smoke; "
    program += "sys.exit(smoke.main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


def test_an_image_with_everything_passes() -> None:
    done = run_smoke("tools")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_image_that_lacks_a_package_is_told_which() -> None:
    done = run_smoke("tools", without="zstandard")
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("The module zstandard cannot be imported (")


def test_an_unknown_kind_is_refused() -> None:
    done = run_smoke("gpu")
    assert (done.returncode, done.stderr) == (2, "usage: python -m trainer.images.smoke tools|training|slurm\n")


def test_a_module_of_ours_that_is_missing_is_told_like_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an image has a part of our packages only, what is missing there is missed by its test."""
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/program.py").write_text("from trainflow.spec import run_spec\n")
    monkeypatch.setattr(smoke, "ROOT", tmp_path)
    assert smoke.modules_of_ours(["trainer.program"]) == {"trainer.program"}
    assert smoke.foreign_modules(["trainer.program"]) == {"trainflow.spec"}
