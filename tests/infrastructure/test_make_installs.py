"""What `make` installs into `.venv`, from a small index: a torch that brings packages which no file names, as the build
with CUDA does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wheels import wheel

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
EDITABLE = (".", "packages/checkout", "packages/kubetwin")
"""What `make` installs from the checkout itself."""

NOWHERE = "http://127.0.0.1:9/"
"""Port 9 is `discard`: nothing listens there."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile beside requirements of three packages, and an index that holds them."""
    index, checkout = tmp_path / "index", tmp_path / "checkout"
    index.mkdir()
    lines = [wheel(index, "torch", "2.13.0", requires="nvidia_cuda"), wheel(index, "other", "1.0")]
    wheel(index, "nvidia_cuda", "13.0")  # no file names it: other platforms lack it
    for name in EDITABLE:
        (checkout / name).mkdir(parents=True, exist_ok=True)
        (checkout / name / "pyproject.toml").write_text(f"[project]\nname = 'a{EDITABLE.index(name)}'\nversion = '1'\n")
        (checkout / name / "setup.cfg").write_text("[options]\npackages =\n")
    shutil.copyfile(REPOSITORY / "Makefile", checkout / "Makefile")
    (checkout / "requirements.txt").write_text("".join(lines))
    return checkout


def install(checkout: Path, *, torch_index: str) -> subprocess.CompletedProcess[str]:
    # The build back end of the editable packages is this environment's: no index is needed for it.
    building = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    recipe = (checkout / "Makefile").read_text().replace("PYTHONWARNINGS=ignore", f"PYTHONPATH='{building}'")
    (checkout / "Makefile").write_text(recipe)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "MAKE", "MFLAGS"))}
    environment = {**kept, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(checkout.parent / "index")}
    command = ["make", ".venv/.installed", f"PYTHON={sys.executable}", f"TORCH_INDEX={torch_index}"]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def installed(checkout: Path) -> set[str]:
    (site,) = (checkout / ".venv" / "lib").glob("python3*/site-packages")
    return {path.stem for path in site.iterdir() if path.suffix == ".py"}


def test_what_torch_brings_along_is_installed_where_its_own_index_is_out_of_reach(checkout: Path) -> None:
    """pip then takes the public index's build, whose CUDA packages have no hash in requirements.txt."""
    done = install(checkout, torch_index=NOWHERE)
    assert done.returncode == 0, done.stderr
    wanted = {"torch", "other", "nvidia_cuda"} if sys.platform == "linux" else {"torch", "other"}
    assert wanted <= installed(checkout)
