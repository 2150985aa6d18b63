"""The processes of a plan's program on one node, under each launcher.

With `torchrun`, one process starts the others. With `none` the program is started once on every node. With `mpi` it is
started once for every process, and each finds its ranks in the variables of Open MPI's mpirun and in those of torchrun.
`none` and `mpi` fill in `{rank}` in the words.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from trainer.runtime.commands import SignalForwarding, exit_code, helper
from trainer.runtime.errors import ConfigInvalid
from trainer.runtime.node import Node
from trainflow.protocol import variables
from trainflow.protocol.placeholders import filled_by_launcher
from trainflow.protocol.plan import Elastic, Launch, Plan, to_words

GRACE_SECONDS = 30.0
"""Time between SIGTERM and SIGKILL for the other processes after one has failed, as torchrun gives its workers."""

POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process to start."""

    words: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables beside those of the supervisor."""

    def with_variables(self, given: Mapping[str, str]) -> Process:
        """The process with further environment variables."""
        return replace(self, variables={**self.variables, **given})


def processes_of(node: Node, added: Sequence[str] = ()) -> list[Process]:
    """The processes that this node starts.

    Args:
        node: The node.
        added: Words behind the program's.
    """
    launch = node.launch
    if launch.launcher == "torchrun":
        return [Process(words=(*_torchrun(node), *_behind_torchrun(launch, added)))]
    python = ("python", "-u") if launch.is_python else ()
    words = (*python, *_program(launch), *added)
    if launch.launcher == "none":
        return [_filled(words, node.rank, _node_variables(node))]
    ranks = (_rank_variables(node, local_rank) for local_rank in range(launch.processes))
    return [_filled(words, int(given["RANK"]), given) for given in ranks]


def one_process_of(node: Node) -> Process:
    """One process that starts all processes of this node, for a program around them."""
    if node.launch.launcher != "mpi":
        (process,) = processes_of(node)
        return process
    place = ("--node_rank", str(node.rank), "--master_addr", node.master_addr)
    plan = Plan(launch=node.launch)
    return Process(words=(sys.executable, *helper("supervisor"), *place, "--", *to_words(plan)))


def _filled(words: Sequence[str], rank: int, given: Mapping[str, str]) -> Process:
    return Process(words=tuple(filled_by_launcher(word, rank=rank) for word in words), variables=given)


def _program(launch: Launch) -> tuple[str, ...]:
    """The program's words as Python or torchrun takes them; Python programs start behind helpers that they need."""
    before: tuple[str, ...] = ()
    if launch.elastic:
        before = helper("announce")
    elif launch.max_steps is not None:
        before = (*helper("limit_steps"), "--steps", str(launch.max_steps), "--")
    return (*before, *launch.program)


def _torchrun(node: Node) -> tuple[str, ...]:
    launch = node.launch
    rendezvous = _elastic_rendezvous(launch.elastic) if launch.elastic else node.rendezvous
    no_python = () if launch.is_python else ("--no-python",)
    return ("torchrun", *rendezvous, "--nproc_per_node", str(launch.processes), *no_python)


def _behind_torchrun(launch: Launch, added: Sequence[str]) -> tuple[str, ...]:
    """The program's words for torchrun, which takes each of them for a `string.Template` and replaces `$$` and
    `${local_rank}` (torch 1.9 to 2.13, `torch.distributed.elastic.utils.api.macros`). Without Python, the first word is
    the program's name, which torchrun starts as it is."""
    words = (*_program(launch), *added)
    unchanged = 0 if launch.is_python else 1
    return (*words[:unchanged], *(word.replace("$", "$$") for word in words[unchanged:]))


def _elastic_rendezvous(elastic: Elastic) -> tuple[str, ...]:
    """Flags for a gang that meets in a store on one of its nodes; the store assigns the ranks."""
    return (
        *("--nnodes", f"{elastic.min_nodes}:{elastic.max_nodes}"),
        *("--rdzv_backend", "c10d", "--rdzv_endpoint", elastic.store, "--rdzv_id", elastic.id),
        *("--max_restarts", str(elastic.max_restarts)),
    )


def _node_variables(node: Node) -> dict[str, str]:
    """Variables that every process of a node has."""
    return {
        variables.NODE_RANK: str(node.rank),
        variables.NUM_NODES: str(node.launch.num_nodes),
        "MASTER_ADDR": node.master_addr,
        "MASTER_PORT": str(node.launch.port),
    }


def _rank_variables(node: Node, local_rank: int) -> dict[str, str]:
    """Variables of one process of launcher `mpi`: Open MPI's (mpirun(1), "Exported Environment Variables") and
    torchrun's."""
    processes = node.launch.processes
    rank, size = node.rank * processes + local_rank, node.launch.num_nodes * processes
    return {
        **_node_variables(node),
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


def replace_supervisor(process: Process) -> NoReturn:
    """Replace the supervisor by a process, which receives its signals and sets its exit code.

    Raises:
        ConfigInvalid: If the program does not exist.
    """
    sys.stdout.flush()
    try:
        os.execvpe(process.words[0], process.words, {**os.environ, **process.variables})  # noqa: S606  (the plan's)
    except OSError as error:
        raise _cannot_start(process, error) from error


def run(
    processes: Sequence[Process],
    watch: Callable[[int], None] | None = None,
    *,
    signals: SignalForwarding | None = None,
    stderr: int | None = None,
) -> int:
    """Start all processes with this process's signals, and end all of them when one fails.

    Args:
        processes: The processes.
        watch: Called with the process id of a process that is the only one.
        signals: Passes on this process's signals; a new one by default.
        stderr: Open file in place of stderr; None for this process's own.

    Returns:
        The exit code of the process that failed first; 0 if all succeeded; 128 and the signal's number for one that was
        killed.

    Raises:
        ConfigInvalid: If the program does not exist.
    """
    running: list[subprocess.Popen[bytes]] = []
    sys.stdout.flush()
    signals = signals or SignalForwarding()
    try:
        running.extend(_started(process, stderr) for process in processes)
    except ConfigInvalid:
        _end(running)
        raise
    signals.forward_to(*running)
    if len(running) == 1:
        if watch is not None:
            watch(running[0].pid)
        return exit_code(running[0])
    code = next(filter(None, _exit_codes(running)), 0)
    _end(running)
    return code


def _started(process: Process, stderr: int | None) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(process.words, env={**os.environ, **process.variables}, stderr=stderr)
    except OSError as error:
        raise _cannot_start(process, error) from error


def _cannot_start(process: Process, error: OSError) -> ConfigInvalid:
    return ConfigInvalid(
        f"The program {process.words[0]!r} cannot be started ({error.strerror}); correct workload.command, or put the "
        "program into the image."
    )


def _exit_codes(running: Sequence[subprocess.Popen[bytes]]) -> Iterator[int]:
    """Exit codes of processes as they end."""
    left = list(running)
    while left:
        for process in [each for each in left if each.poll() is not None]:
            left.remove(process)
            yield exit_code(process)
        time.sleep(POLL_SECONDS)


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
