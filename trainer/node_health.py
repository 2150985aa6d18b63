"""Test a gang's nodes before its training: `python -m trainer.node_health --processes N -- torchrun …`.

The gang is started once with `trainer.node_test` in place of the program, at the next port. If all nodes are healthy,
the command replaces this process; otherwise it ends like the test. Without PyTorch in the image there is no test.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.runtime import program
from trainer.runtime.arguments import divided, parse
from trainer.runtime.commands import NODE_RANK, become, exit_code, launcher_flag, started
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid
from trainflow.protocol import compile_cache

HELPERS = Path(__file__).resolve().parents[1]
"""Folder that `trainer.helpers.install` has made, where it holds a `__main__.py`; else the one of the packages."""


@dataclass(frozen=True, kw_only=True)
class HealthConfig:
    """How the test is started; the gang's place is in the launcher's flags."""

    processes: int
    """Processes on each node."""


def main(argv: Sequence[str], _environment: Environment) -> None:
    """Test the nodes, and replace this process by the command.

    Raises:
        ConfigInvalid: If there is no command, or it names no rendezvous.
    """
    own, command = divided(argv)
    config = parse(HealthConfig, own, program="trainer.node_health")
    if not command:
        raise ConfigInvalid("Give the training's command behind `--`: python -m trainer.node_health … -- torchrun …")
    if importlib.util.find_spec("torch") is None:
        print("The image has no PyTorch, so the nodes are not tested.", flush=True)
        become(command)
    with tempfile.TemporaryDirectory(prefix="node-test-") as folder:
        # Its graphs are none of the training's.
        code = exit_code(started(test_of(command, processes=config.processes), compile_cache.environment(folder)))
    if code:
        sys.exit(code)
    become(command)


def test_of(command: Sequence[str], *, processes: int) -> list[str]:
    """The command that starts the test on this node.

    Raises:
        ConfigInvalid: If the training's command names no rendezvous.
    """
    flags = {name: launcher_flag(command, name) for name in ("--nnodes", NODE_RANK, "--master_addr", "--master_port")}
    missing = [name for name, value in flags.items() if not value]
    port = flags["--master_port"] or ""
    if missing or not port.isdecimal():
        raise ConfigInvalid(f"The training's command has no {', '.join(missing) or 'number as --master_port'}.")
    flags["--master_port"] = str(int(port) + 1)
    words = [word for name, value in flags.items() for word in (name, str(value))]
    is_installed = (HELPERS / "__main__.py").exists()
    test = [str(HELPERS), "node_test"] if is_installed else ["-m", "trainer.node_test"]
    return [sys.executable, "-m", "torch.distributed.run", *words, "--nproc_per_node", str(processes), *test]


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
