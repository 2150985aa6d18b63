"""Checks that Slurm is installed, and finds its programs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from local.slurm.errors import SlurmMissing

PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sinfo": "slurm-wlm",
    "slurmrestd": "slurmrestd",
}
"""Debian's package of each program."""

JWT_PACKAGE = "slurm-wlm-jwt-plugin"

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Folders of daemons; a user's own PATH often lacks the `sbin` folders."""


def program(name: str) -> str:
    """Path of one of Slurm's programs.

    Raises:
        SlurmMissing: If it is not installed; the message names the packages to install.
    """
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None:
        require()
        raise SlurmMissing(f"there is no program '{name}' on this machine; install it beside Slurm.")
    return path


def require(*, search_path: str = SEARCH_PATH, libraries: Path = Path("/usr/lib")) -> None:
    """Require that all packages of a cluster are installed.

    Args:
        search_path: Folders of programs, as PATH has them.
        libraries: Below it are Debian's folders of Slurm's plugins, one for each architecture.

    Raises:
        SlurmMissing: If packages are missing; the message names them.
    """
    missing = {package for name, package in PACKAGES.items() if shutil.which(name, path=search_path) is None}
    plugins = list(libraries.glob("*/slurm-wlm"))
    if not plugins or not any((folder / "auth_jwt.so").exists() for folder in plugins):
        missing.add(JWT_PACKAGE)
    if missing:
        sudo = "" if os.geteuid() == 0 else "sudo "
        raise SlurmMissing(
            "the twin runs a real Slurm, which is not all here; install Debian's packages: "
            f"{sudo}apt-get install {' '.join(sorted(missing))}"
        )
