"""Start the program in the folder of the run's code; a training starts in a copy below the run's folder.

The folder becomes the working directory and the first entry of Python's search path, before those of the image. The
required packages come next (`trainer.packages`).
"""

from __future__ import annotations

import os
from pathlib import Path

from trainer.packages import installation
from trainer.packages.installation import Requirements
from trainer.runtime.errors import ConfigInvalid
from trainer.runtime.node import Node, Prepared
from trainflow.protocol import variables
from trainflow.protocol.plan import Code


def prepare(step: Code, node: Node) -> Prepared:
    """Fetch the code where no init container has done so, install what it requires, and change to its folder.

    Raises:
        CodeInvalid: If the code cannot be fetched, or what it requires cannot be installed.
        ConfigInvalid: If the folder cannot be entered.
        StorageFailed: If a folder cannot be written, or the archive cannot be read.
    """
    folder = fetched = Path(step.folder).absolute()
    if step.url is not None:
        from trainer.steps import code  # imports much, and most plans need none of it

        code.fetch(step.url, fetched)
    if step.kept_gib and os.environ.get(variables.STAGE) == variables.TRAINING:
        from trainer.steps import working_folder

        folder = working_folder.entered(step, fetched, node)
    required = requirements(step, fetched)
    packages = [str(each) for each in installation.folders(required)] if required is not None else []
    environ = {
        "PWD": str(folder),
        "PYTHONPATH": _joined(str(folder), *packages, os.environ.get("PYTHONPATH")),
    }
    if packages:
        programs = (f"{each}/bin" for each in packages)
        environ["PATH"] = _joined(*programs, os.environ.get("PATH", os.defpath))
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigInvalid(f"The code's folder {folder} cannot be entered ({error}).") from error
    return Prepared(variables=environ)


def _joined(*folders: str | None) -> str:
    return os.pathsep.join(filter(None, folders))


def requirements(step: Code, folder: Path) -> Requirements | None:
    """The step's requirements, with full paths; None if the code requires nothing.

    Args:
        step: The step.
        folder: Folder of the code.
    """
    if step.requirements is None or step.packages is None:
        return None
    return Requirements(
        file=folder / step.requirements,
        root=folder,
        own=Path(step.packages).absolute(),
        shared=Path(step.shared_packages).absolute() if step.shared_packages is not None else None,
        writes_shared=step.writes_shared,
        replaced=step.replace_packages,
    )


def fetch(step: Code) -> None:
    """Fetch what the code requires, for the program of Trainflow's image that installs it for all runs.

    Raises:
        CodeInvalid: If what the code requires contradicts the image, or cannot be fetched or built.
        StorageFailed: If a folder cannot be written.
    """
    required = requirements(step, Path(step.folder).absolute())
    if required is not None:
        installation.fetch(required)
