"""Install what a run has fetched into the shared store: `python -m trainer.helpers.share_packages --own … --store …`.

An init container of the tools image runs this in the preflight's pod, after that of the workload's image which has
fetched the wheels. It runs no code of the user's, and is the only one that writes to the store.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.packages import store
from trainer.runtime import program
from trainer.runtime.arguments import parse
from trainer.runtime.environment import Environment
from trainer.runtime.errors import StorageFailed


@dataclass(frozen=True, kw_only=True)
class ShareConfig:
    """Folders of packages."""

    own: Path
    """The run's own folder of packages, below that of all runs."""
    store: Path
    """Folder of the sets that all runs share."""


def main(argv: Sequence[str], _environment: Environment) -> Mapping[str, Any]:
    """Install and clean up; the sets that were installed and removed."""
    config = parse(ShareConfig, argv, program="trainer.helpers.share_packages")
    try:
        installed = store.install_fetched(config.own, config.store)
        removed = store.clean(config.store, config.own.parents[1])
    except OSError as error:
        raise StorageFailed(f"The store of packages {config.store} cannot be written ({error}).") from error
    return {"installed": installed, "removed": removed}


if __name__ == "__main__":
    program.raise_on_sigterm()
    sys.exit(program.run(main, sys.argv[1:], os.environ))
