"""Start a program on each node of a gang without torchrun: `python -m trainer.launch … -- COMMAND`.

With launcher `none` the command is started once on every node and replaces this process. With launcher `mpi` it is
started once for every process, and each finds its ranks in the variables of Open MPI's mpirun and in those of torchrun.
`{rank}` in the command is filled in on each node.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.runtime import program
from trainer.runtime.arguments import divided, parse
from trainer.runtime.commands import SignalForwarding
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid
from trainflow.protocol import variables
from trainflow.protocol.placeholders import filled_by_launcher

GRACE_SECONDS = 30.0
"""Time between SIGTERM and SIGKILL for the other processes after one has failed, as torchrun gives its workers."""

POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class LaunchConfig:
    """The place of this node in its gang."""

    nnodes: int
    """Nodes of the gang."""
    node_rank: int
    """Number of this node, from 0."""
    master_addr: str
    """Host name of node 0."""
    master_port: int
    """Port on node 0 that is free for the gang's own rendezvous."""
    nproc_per_node: int = 0
    """Processes on each node, with the variables of Open MPI; 0 starts the command once, without any ranks."""


def main(argv: Sequence[str], _environment: Environment) -> None:
    """Start the command.

    Raises:
        ConfigInvalid: If there is no command, or it cannot be started.
    """
    own, command = divided(argv)
    if not command:
        raise ConfigInvalid("Give the program behind `--`: python -m trainer.launch … -- python train.py")
    config = parse(LaunchConfig, own, program="trainer.launch")
    sys.stdout.flush()
    if config.nproc_per_node == 0:
        _replace_this_process([filled_by_launcher(word, rank=config.node_rank) for word in command], config)
    sys.exit(_run_all(command, config))


def _replace_this_process(command: list[str], config: LaunchConfig) -> None:
    try:
        os.execvpe(command[0], command, {**os.environ, **_of_node(config)})  # noqa: S606  (the spec's program)
    except OSError as error:
        raise _cannot_start(command[0], error) from error


def _cannot_start(name: str, error: OSError) -> ConfigInvalid:
    return ConfigInvalid(
        f"The program {name!r} cannot be started ({error.strerror}); correct workload.command, or put the program into "
        "the image."
    )


def _of_node(config: LaunchConfig) -> dict[str, str]:
    """Variables that every process of a node has."""
    return {
        variables.NODE_RANK: str(config.node_rank),
        variables.NUM_NODES: str(config.nnodes),
        "MASTER_ADDR": config.master_addr,
        "MASTER_PORT": str(config.master_port),
    }


def environment_of(local_rank: int, config: LaunchConfig) -> dict[str, str]:
    """Variables of one process of launcher `mpi`: Open MPI's (mpirun(1), "Exported Environment Variables") and
    torchrun's."""
    processes = config.nproc_per_node
    rank, size = config.node_rank * processes + local_rank, config.nnodes * processes
    return {
        **_of_node(config),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(processes),
        "OMPI_COMM_WORLD_NODE_RANK": str(local_rank),
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(processes),
    }


def _run_all(command: Sequence[str], config: LaunchConfig) -> int:
    """Start the command once for each process of this node, and end all of them when one fails.

    Returns:
        The exit code of the process that failed first; 0 if all succeeded.
    """
    running: list[subprocess.Popen[bytes]] = []
    signals = SignalForwarding()
    try:
        for local_rank in range(config.nproc_per_node):
            running.append(_started(command, local_rank, config))
    except ConfigInvalid:
        _end(running)
        raise
    signals.forward_to(*running)
    while True:
        codes = [process.poll() for process in running]
        failed = next((code for code in codes if code), None)
        if failed is not None:
            _end(running)
            return failed if failed > 0 else 128 - failed
        if None not in codes:
            return 0
        time.sleep(POLL_SECONDS)


def _started(command: Sequence[str], local_rank: int, config: LaunchConfig) -> subprocess.Popen[bytes]:
    environment = environment_of(local_rank, config)
    words = [filled_by_launcher(word, rank=int(environment["RANK"])) for word in command]
    try:
        return subprocess.Popen(words, env={**os.environ, **environment})
    except OSError as error:
        raise _cannot_start(words[0], error) from error


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
