"""Measures how the throughput of pretraining grows with the number of ranks: 1, 2, 4 … on this machine.

Weak scaling gives every rank the same work, so that the global batch grows; strong scaling divides one global batch.
Efficiency is the throughput of n ranks over n times that of one. Every rank has one thread, so that one rank does not
take the cores of all. Prints a table and draws `benchmarks/results/scaling.svg`.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import scaling_plot
from benchmarks.result import BenchmarkFailed, Result, this_machine
from trainflow.protocol import variables

PLOT = Path(__file__).parent / "results" / "scaling.svg"

FEWEST_RANKS_AT_MOST = 4
"""Ranks that are measured even where there are not as many cores; such rows are marked."""

ROUNDS = 3
STEPS = 10
MICRO_BATCH_SIZE = 8

MODEL = {
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 4096,
    "max_position_embeddings": 128,
}

KINDS = ("weak", "strong")


@dataclass(frozen=True)
class Throughput:
    """Sequences per second of all ranks together: the median of all rounds."""

    kind: str
    world_size: int
    sequences_per_second: float

    def efficiency(self, alone: float) -> float:
        """Throughput as a share of that of as many single ranks."""
        return self.sequences_per_second / (self.world_size * alone)


def run() -> Result:
    """Trains a small BERT on each number of ranks, in turns.

    Raises:
        BenchmarkFailed: If a training does not succeed.
    """
    world_sizes = sizes(_cores())
    measured: dict[tuple[str, int], list[float]] = {(kind, size): [] for kind in KINDS for size in world_sizes}
    with tempfile.TemporaryDirectory(prefix="trainflow-scaling-") as folder:
        data = _make_data(Path(folder))
        for number in range(ROUNDS):
            for (kind, size), found in measured.items():
                print(f"round {number + 1} of {ROUNDS}: {kind}, {size} ranks …", file=sys.stderr, flush=True)
                accumulation = micro_batches(kind, size, largest=world_sizes[-1])
                found.append(_throughput(data, Path(folder) / f"{kind}-{size}-{number}", size, accumulation))
    rows = [Throughput(kind, size, statistics.median(found)) for (kind, size), found in measured.items()]
    show(rows, _cores())
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    PLOT.write_text(scaling_plot.svg({kind: efficiencies(rows, kind) for kind in KINDS}), encoding="utf-8")
    return summary(rows, this_machine())


def sizes(cores: int) -> list[int]:
    """Powers of two up to the number of cores."""
    largest = max(cores, FEWEST_RANKS_AT_MOST)
    return [2**power for power in range(largest.bit_length()) if 2**power <= largest]


def micro_batches(kind: str, world_size: int, *, largest: int) -> int:
    """Micro-batches of each rank in a step: always 2, or the number that gives every number of ranks the same global
    batch."""
    return 2 if kind == "weak" else 2 * largest // world_size


def efficiencies(rows: list[Throughput], kind: str) -> dict[int, float]:
    """Runs by number of ranks."""
    mine = [row for row in rows if row.kind == kind]
    alone = next(row.sequences_per_second for row in mine if row.world_size == 1)
    return {row.world_size: row.efficiency(alone) for row in mine}


def summary(rows: list[Throughput], machine: Mapping[str, object]) -> Result:
    """Efficiencies as ratios, throughputs beside them."""
    return Result(
        benchmark="scaling",
        ratios={
            f"{kind}_{size}": round(share, 3) for kind in KINDS for size, share in efficiencies(rows, kind).items()
        },
        seconds={f"per_sequence_{row.kind}_{row.world_size}": round(1 / row.sequences_per_second, 5) for row in rows},
        machine=machine,
        details={
            "sequences_per_second": {
                f"{row.kind}_{row.world_size}": round(row.sequences_per_second, 1) for row in rows
            },
            "model": MODEL,
            "micro_batch_size": MICRO_BATCH_SIZE,
            "rounds": ROUNDS,
        },
    )


def show(rows: list[Throughput], cores: int) -> None:
    """The table, on stderr, because stdout belongs to the JSON object."""
    table = Table("scaling", "ranks", "sequences/s", "efficiency", "", title="Pretraining, one thread a rank")
    table.caption = f"* more ranks than the {cores} cores"
    for kind in KINDS:
        shares = efficiencies(rows, kind)
        for row in (row for row in rows if row.kind == kind):
            share = shares[row.world_size]
            ranks = f"{row.world_size}{'*' if row.world_size > cores else ''}"
            table.add_row(kind, ranks, f"{row.sequences_per_second:.1f}", f"{share:.0%}", "█" * round(20 * share))
    Console(stderr=True).print(table)


def _make_data(folder: Path) -> Path:
    corpus = [sys.executable, "-m", "trainer.corpus", "--out", str(folder / "data"), "--passes", "2"]
    _run(corpus, {})
    return folder / "data"


def _throughput(data: Path, run_dir: Path, world_size: int, accumulation: int) -> float:
    options = {
        **MODEL,
        "data_dir": data,
        "output_dir": run_dir,
        "device": "cpu",
        "compile": "false",
        "micro_batch_size": MICRO_BATCH_SIZE,
        "gradient_accumulation_steps": accumulation,
        "max_steps": STEPS,
        "warmup_steps": 1,
        "checkpoint_steps": STEPS,
    }
    result_file = run_dir.with_suffix(".json")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", str(world_size)]
    rendezvous = ["--master_addr", "127.0.0.1", "--master_port", str(_free_port()), "-m", "trainer.pretrain"]
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    _run([*torchrun, *rendezvous, *arguments], {variables.RESULT_FILE: str(result_file)})
    return float(json.loads(result_file.read_text())["result"]["sequences_per_second"])


def _run(command: list[str], environ: Mapping[str, str]) -> None:
    alone = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, env={**os.environ, **alone, **environ}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkFailed(f"'{' '.join(command[:5])} …' ended with {done.returncode}: {done.stderr[-2000:]}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _cores() -> int:
    return int(this_machine()["cores"])
