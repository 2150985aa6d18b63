"""Trainings that start in milliseconds: forked from a process that has imported torch and transformers already.

Real processes, each with an interpreter of its own that can be killed; what they skip is the launcher and the imports.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import torch

from tests.unit.trainer.conftest import make_rows, write_shard

DEADLINE_SECONDS = 240
SHAPE: Mapping[str, int] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 50,
    "max_position_embeddings": 16,
}
SMALL_MODEL: Mapping[str, object] = {**SHAPE, "device": "cpu", "compile": "false"}
LINE = re.compile(r"^LOG .* - \((\d+), (\d+)\) step_loss : ([\d.]+) learning_rate : (\S+) throughput : [\d.]+$", re.M)


@dataclass(frozen=True)
class Ended:
    """What a training left behind."""

    code: int
    out: str
    """Output of rank 0, stdout and stderr together."""
    result: Any

    @property
    def losses(self) -> list[float]:
        return [float(line[2]) for line in LINE.findall(self.out)]

    @property
    def steps(self) -> list[int]:
        return [int(line[1]) for line in LINE.findall(self.out)]


@dataclass
class Forked:
    """One training: where it reads and writes, and how to start it."""

    folder: Path
    options: dict[str, object] = field(default_factory=dict)

    @classmethod
    def with_data(cls, folder: Path, **options: object) -> Forked:
        """A training on two shards of 50 samples each."""
        for number in range(2):
            write_shard(folder / "data", number, make_rows(50, seed=number))
        return cls(folder, options)

    def like(self, name: str, **options: object) -> Forked:
        """Another training on the same data, in a folder of its own."""
        folder = self.folder.parent / name
        folder.mkdir()
        (folder / "data").symlink_to(self.folder / "data")
        return Forked(folder, {**self.options, **options})

    def start(
        self,
        world_size: int = 1,
        *,
        processes_per_node: int | None = None,
        max_file_bytes: int | None = None,
        environ: Mapping[str, str] | None = None,
        node_folders: Path | None = None,
        **options: object,
    ) -> Started:
        asked = {**SMALL_MODEL, **self.options, **options}
        per_node = processes_per_node or world_size
        argv = [text for name, value in asked.items() for text in (f"--{name}", str(value))]
        shared = {
            **(environ or {}),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
            "GLOO_SOCKET_IFNAME": "lo",
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(per_node),
            "TRAINFLOW_DATA_DIR": str(self.folder / "data"),
            "TRAINFLOW_RUN_DIR": str(self.folder / "run"),
            "TRAINFLOW_RESULT_FILE": str(self.folder / "result.json"),
        }
        (self.folder / "result.json").unlink(missing_ok=True)
        logs = [self.folder / f"rank-{rank}.log" for rank in range(world_size)]
        processes = []
        for rank, log in enumerate(logs):
            log.write_text("")
            own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank % per_node)}
            if node_folders is not None:
                own["TRAINFLOW_LOCAL_CHECKPOINTS"] = str(node_folders / f"node-{rank // per_node}")
            process = forkserver().Process(target=_train, args=(argv, own, str(log), max_file_bytes))
            process.start()
            processes.append(process)
        return Started(self, processes, logs[0])

    def run(self, world_size: int = 1, **options: Any) -> Ended:
        return self.start(world_size, **options).wait()

    def checkpoint(self, step: int) -> Any:
        return torch.load(self.checkpoint_path(step), weights_only=True)

    def checkpoint_path(self, step: int) -> Path:
        return self.folder / "run" / "checkpoints" / f"step-{step:08d}.pt"

    @property
    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "run" / "checkpoints").iterdir())


@dataclass
class Started:
    """A training under way."""

    training: Forked
    processes: list[ForkServerProcess]
    log: Path

    def wait(self) -> Ended:
        deadline = time.monotonic() + DEADLINE_SECONDS
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        self.kill()
        result_file = self.training.folder / "result.json"
        result = json.loads(result_file.read_text()) if result_file.exists() else None
        codes = [process.exitcode or 0 for process in self.processes]
        return Ended(next((code for code in codes if code), 0), self.log.read_text(), result)

    def wait_for_step(self, step: int) -> None:
        """Wait until rank 0 has logged the step, or has ended."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline and self.processes[0].is_alive():
            logged = LINE.findall(self.log.read_text())
            if logged and int(logged[-1][1]) >= step:
                return
            time.sleep(0.001)

    def kill(self, with_signal: int = signal.SIGKILL) -> None:
        for process in self.processes:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, with_signal)
        if with_signal == signal.SIGKILL:
            for process in self.processes:
                process.join()


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@cache
def forkserver() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, which is in the server
    context.set_forkserver_preload(["trainer.loop.training", "trainer.pretrain", "trainer.device.cpu", "h5py"])
    return context


def _train(argv: list[str], environ: dict[str, str], log: str, max_file_bytes: int | None) -> None:
    import resource
    import sys

    from trainer import pretrain
    from trainer.runtime import program

    os.environ.update(environ)
    with Path(log).open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    if max_file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
    program.leave(program.run(pretrain.main, argv, os.environ))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def small_training(folder: Path, **options: object) -> Forked:
    """A few steps of 8 sequences each."""
    defaults: dict[str, object] = {
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "max_steps": 8,
        "warmup_steps": 2,
        "learning_rate": 1e-2,
    }
    return Forked.with_data(folder / "training", **{**defaults, **options})
