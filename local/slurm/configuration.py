"""The configuration of a cluster, and the `slurm.conf` that it makes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jinja2

ADDRESS = "127.0.0.1"
"""Address of slurmrestd."""

_TEMPLATES = jinja2.Environment(  # noqa: S701 (no HTML)
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A queue of jobs for some of the nodes."""

    name: str
    num_nodes: int | None = None
    """The first so many nodes; None for all of them."""
    max_minutes: int | None = None
    """Longest time limit of a job; None for no bound."""

    def node_list(self, settings: SlurmSettings) -> str:
        """Names of its nodes, in Slurm's notation."""
        return ",".join(settings.nodes[: self.num_nodes])


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """The configuration of a cluster."""

    num_nodes: int = 16
    """Number of nodes; as many as the largest of the tutorials' runs that fit a laptop. An idle node is a process of 8
    MB."""
    cpus_per_node: int = 128
    """vCPUs that a node reports, as a trn1.32xlarge has. Jobs share the processors of the machine."""
    memory_mib: int = 512 * 1024
    """Memory that a node reports, as a trn1.32xlarge has. It is not enforced."""
    partitions: tuple[Partition, ...] = (
        Partition(name="trn1"),
        Partition(name="short", num_nodes=2, max_minutes=5),
    )
    """The first one is the default."""
    min_job_age_seconds: int = 300
    """Seconds until Slurm forgets a job that has ended: MinJobAge, with its default."""
    node_timeout_seconds: int = 30
    """Seconds until a node that does not answer is down and its jobs have failed (SlurmdTimeout, whose default is 300).
    """

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return tuple(f"n{index}" for index in range(self.num_nodes))


@dataclass(frozen=True, kw_only=True)
class Ports:
    """TCP ports of the daemons."""

    controller: int
    rest: int
    nodes: tuple[int, ...]


def slurm_conf(
    settings: SlurmSettings,
    *,
    host: str,
    address: str,
    user: str,
    ports: Ports,
    folder: Path,
    log_dir: Path,
) -> str:
    """The text of `slurm.conf`.

    Args:
        settings: The cluster.
        host: This machine's name up to the first dot: Slurm's daemons refuse to be another host.
        address: The loopback address of that name, for slurmctld and slurmd.
        user: The user of the daemons.
        ports: The ports of the daemons.
        folder: The folder with the state of the daemons.
        log_dir: The folder of their logs.
    """
    return _TEMPLATES.get_template("slurm.conf.j2").render(
        settings=settings,
        host=host,
        address=address,
        user=user,
        ports=ports,
        nodes=list(zip(settings.nodes, ports.nodes, strict=True)),
        folder=folder,
        log_dir=log_dir,
    )
