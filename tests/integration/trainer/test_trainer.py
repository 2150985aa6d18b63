"""Real processes that train together over gloo, are killed, and go on."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.unit.trainer.conftest import make_rows, write_shard
from trainer.steps import compile_cache
from trainflow.protocol.compile_cache import environment

DEADLINE_SECONDS = 240
SMALL_MODEL = {
    "device": "cpu",  # also where PyTorch/XLA is installed
    "num_hidden_layers": 1,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
    "max_position_embeddings": 16,
}
LINE = re.compile(r"^LOG .* - \((\d+), (\d+)\) step_loss : ([\d.]+) learning_rate : (\S+) throughput : ([\d.]+)$")


@dataclass
class Training:
    """One job of the trainer on this machine: where it reads and writes, and how to start it."""

    folder: Path
    options: dict[str, object] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    def start(self, world_size: int = 1, *prefix: str, **options: object) -> subprocess.Popen[str]:
        asked = {**SMALL_MODEL, "compile": "false", **self.options, **options}
        arguments = [text for name, value in asked.items() for text in (f"--{name}", str(value))]
        launcher = [sys.executable] if world_size == 1 else [*_torchrun(world_size)]
        environ = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **self.environ}
        return subprocess.Popen(
            [*prefix, *launcher, "-m", "trainer.pretrain", *arguments],
            env={
                **environ,
                "TRAINFLOW_DATA_DIR": str(self.folder / "data"),
                "TRAINFLOW_RUN_DIR": str(self.folder / "run"),
                "TRAINFLOW_RESULT_FILE": str(self.result_file),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, world_size: int = 1, *prefix: str, **options: object) -> Ended:
        process = self.start(world_size, *prefix, **options)
        try:
            out, err = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            kill(process)
        return Ended(process.returncode, out, err, self.result)

    @property
    def result_file(self) -> Path:
        return self.folder / "result.json"

    @property
    def result(self) -> Any:
        return json.loads(self.result_file.read_text()) if self.result_file.exists() else None

    def checkpoint(self, step: int) -> Any:
        return torch.load(self.folder / "run" / "checkpoints" / f"step-{step:08d}.pt", weights_only=True)


@dataclass(frozen=True)
class Ended:
    """What a job left behind."""

    code: int
    out: str
    err: str
    result: Any

    @property
    def losses(self) -> dict[int, str]:
        """Loss and learning rate by step, as printed; of a step logged twice the last counts."""
        return {step: text for step, text in map(parsed, self.out.splitlines()) if step}


def parsed(line: str) -> tuple[int, str]:
    found = LINE.match(line)
    return (int(found[2]), f"{found[3]} {found[4]}") if found else (0, "")


def _torchrun(world_size: int) -> list[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", str(world_size)),
        *("--node_rank", "0", "--master_addr", "127.0.0.1", "--master_port", str(port)),
    ]


def workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The ranks that torchrun started."""
    return psutil.Process(process.pid).children(recursive=True)


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL for all of it: workers live in sessions of their own."""
    try:
        everybody = [*workers(process), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        return
    for member in everybody:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue


def lines_until(process: subprocess.Popen[str], step: int) -> list[str]:
    """Read the log up to the line of a step."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if parsed(lines[-1])[0] >= step:
            return lines
        assert time.monotonic() < deadline
    raise AssertionError(f"ended before step {step}: {lines} {process.communicate()[1]}")


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Makes jobs; each has a folder of its own and the same two small shards."""

    def make(name: str = "job", **options: object) -> Training:
        folder = tmp_path / name
        for number in range(2):
            write_shard(folder / "data", number, make_rows(50, seed=number))
        defaults = {"micro_batch_size": 2, "gradient_accumulation_steps": 4, "max_steps": 8, "warmup_steps": 2}
        return Training(folder, {**defaults, "learning_rate": 1e-2, **options})

    yield make


def test_any_number_of_ranks_gives_the_losses_of_one(training: Callable[..., Training]) -> None:
    """Same global batches, dropout on, fewer shards than ranks in the last case."""
    alone = training("alone").run()
    assert alone.code == 0, alone.err
    expected = [float(text.split()[0]) for text in alone.losses.values()]
    assert len(expected) == 8
    for world_size in (2, 4):
        together = training(f"of-{world_size}").run(world_size, gradient_accumulation_steps=4 // world_size)
        assert together.code == 0, together.err
        losses = [float(text.split()[0]) for text in together.losses.values()]
        assert losses == pytest.approx(expected, abs=2e-3)
        assert together.result["result"]["world_size"] == world_size
        assert f"in 2 shards for {world_size} ranks; samples, not shards, are divided" in together.out


def test_a_single_process_reports_what_it_did(training: Callable[..., Training]) -> None:
    job = training(max_steps=5, checkpoint_steps=2)
    ended = job.run(log_steps=2)
    result = ended.result["result"]
    assert (ended.code, sorted(ended.losses)) == (0, [1, 2, 4, 5])
    assert (result["steps"], result["world_size"], result["compiled"]) == (5, 1, False)
    assert result["checkpoint"] == str(job.folder / "run" / "checkpoints" / "step-00000005.pt")
    assert sorted(path.name for path in (job.folder / "run" / "checkpoints").iterdir()) == [
        *("step-00000004.json", "step-00000004.pt"),
        *("step-00000005.json", "step-00000005.pt"),
    ]
    assert list((job.folder / "run" / "tensorboard").glob("events.*"))
    assert "uncompiled: --compile is false" in ended.out


def test_a_killed_training_resumes_as_if_nothing_had_happened(training: Callable[..., Training]) -> None:
    steps = {"max_steps": 24, "checkpoint_steps": 4, "gradient_accumulation_steps": 2}
    undisturbed = training("undisturbed", **steps)
    expected = undisturbed.run(3)
    assert expected.code == 0, expected.err

    disturbed = training("disturbed", **steps)
    process = disturbed.start(3)
    before = lines_until(process, 10)
    kill(process)
    process.communicate()
    resumed = disturbed.run(3)

    assert resumed.code == 0, resumed.err
    assert "verified, after step" in resumed.out
    both = {step: text for step, text in map(parsed, before) if step} | resumed.losses
    assert both == expected.losses
    assert min(resumed.losses) > 1
    for kind in ("model", "optimizer"):
        assert _same(undisturbed.checkpoint(24)[kind], disturbed.checkpoint(24)[kind])
    assert resumed.result["result"]["first_loss"] == expected.result["result"]["first_loss"]


def _same(one: Any, other: Any) -> bool:
    """Equal to the last bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def test_sigterm_writes_a_checkpoint_and_the_next_run_resumes(training: Callable[..., Training]) -> None:
    job = training(max_steps=20000)
    process = job.start(2)
    lines_until(process, 3)
    for rank in workers(process):
        rank.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert job.result["error"] == "Terminated", err
    (step,) = re.findall(r"after step (\d+), which is saved", job.result["message"])
    again = job.run(steps_this_run=2, gradient_accumulation_steps=8)  # one process, and the same global batch
    assert again.code == 0, again.err
    assert sorted(again.losses) == [int(step) + 1, int(step) + 2]


def test_a_single_process_ends_with_143_on_sigterm(training: Callable[..., Training]) -> None:
    process = training(max_steps=20000).start()
    lines_until(process, 2)
    process.terminate()
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 143
    assert "Traceback" not in err


def test_the_ranks_that_outlive_another_do_not_claim_the_cause(training: Callable[..., Training]) -> None:
    job = training(max_steps=20000)
    process = job.start(2)
    lines_until(process, 3)
    victim = next(rank for rank in workers(process) if rank.environ().get("RANK") == "1")
    victim.kill()
    process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode != 0
    assert job.result is None


def test_bad_data_is_told_once_by_the_gang(training: Callable[..., Training]) -> None:
    job = training()
    rows = make_rows(5)
    del rows["segment_ids"]
    write_shard(job.folder / "data", 7, rows)
    ended = job.run(2)
    assert ended.code != 0
    assert ended.err.count("DatasetInvalid: The shard demo_training_7.hdf5 has no array 'segment_ids'") == 1
    assert ended.err.count("Traceback") <= 1  # torchrun's own, about its children
    assert ended.result["error"] == "DatasetInvalid"


def test_a_wrong_vocabulary_is_told_once_by_the_gang(training: Callable[..., Training]) -> None:
    ended = training().run(2, vocab_size=20)
    assert ended.code != 0
    assert ended.err.count("and --vocab_size is 20") == 1
    assert ended.result["error"] == "DatasetInvalid"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"data_dir": "/no/such/folder"}, "DatasetNotFound", "/no/such/folder does not exist"),
        ({"max_position_embeddings": 8}, "ConfigInvalid", "--max_position_embeddings is 8"),
        ({"frobnicate": 1}, "ConfigInvalid", "'--frobnicate' is not an option"),
        ({"output_dir": "/proc/nowhere"}, "StorageFailed", "/proc/nowhere"),
    ],
)
def test_bad_input_ends_with_one_sentence(
    training: Callable[..., Training], options: dict[str, object], error: str, words: str
) -> None:
    ended = training().run(**options)
    assert ended.code in (1, 2)
    assert ended.result["error"] == error
    assert words in ended.result["message"]
    assert "Traceback" not in ended.err


def test_a_checkpoint_of_another_model_is_not_continued(training: Callable[..., Training]) -> None:
    job = training(max_steps=2)
    assert job.run().code == 0
    ended = job.run(intermediate_size=64)
    assert (ended.code, ended.result["error"]) == (2, "CheckpointInvalid")
    assert "--intermediate_size is 64 and the checkpoint was made with 32" in ended.result["message"]


def test_without_a_compiler_precompilation_says_so_and_training_goes_on(training: Callable[..., Training]) -> None:
    job = training(compile="true", max_steps=2)
    job.environ = {"CXX": "/no/such/compiler", "TORCHINDUCTOR_CACHE_DIR": str(job.folder / "cache")}
    precompiled = job.run(1, sys.executable, "-m", "trainer.precompile", "--")
    assert precompiled.code == 0, precompiled.err
    assert precompiled.result == {"result": {"graphs": 0, "succeeded": 0, "failed": 0, "cached": 0}}
    assert "there is no C++ compiler" in precompiled.out
    trained = job.run()
    assert trained.code == 0, trained.err
    assert "uncompiled: there is no C++ compiler" in trained.out
    assert trained.result["result"]["compiled"] is False


def test_a_graph_that_does_not_compile_is_named(training: Callable[..., Training]) -> None:
    job = training(compile="true", max_steps=2)
    broken = job.folder / "c++"
    broken.parent.mkdir(parents=True, exist_ok=True)
    broken.write_text('#!/bin/sh\ncase "$*" in *.cpp* | *.hpp*) exit 1 ;; esac\nexec c++ "$@"\n')
    broken.chmod(0o755)
    job.environ = {"CXX": str(broken), "TORCHINDUCTOR_CACHE_DIR": str(job.folder / "cache")}
    failed = job.run(1, sys.executable, "-m", "trainer.precompile", "--")
    assert failed.code == 1
    assert failed.result["error"] == "GraphCompilationFailed"
    assert re.search(r"1 of 1 graphs failed to compile: \w+ \(\w+\.py:\d+\); read", failed.result["message"])


@pytest.mark.slow
def test_training_takes_its_graphs_from_the_precompile_jobs_cache(training: Callable[..., Training]) -> None:
    job = training(compile="true", max_steps=3, gradient_accumulation_steps=2)
    cache = job.folder / "cache" / "key" / "run"
    job.environ = {"TRAINFLOW_CACHE_DIR": str(cache), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    precompile = (sys.executable, "-m", "trainer.precompile", "--")
    cold = job.run(2, *precompile)
    assert cold.code == 0, cold.err
    assert cold.result["result"] == {"graphs": 1, "succeeded": 1, "failed": 0, "cached": 0}
    assert cold.losses == {}
    assert not (job.folder / "run").exists()
    warm = job.run(2, *precompile)
    assert warm.result["result"]["cached"] == 1
    before = sorted(cache.rglob("*"))
    copy = compile_cache.copy(cache, job.folder)
    job.environ = environment(str(copy))
    trained = job.run(2)
    assert trained.code == 0, trained.err
    assert sorted(cache.rglob("*")) == before
    assert {key: trained.result["result"][key] for key in ("compiled", "graphs", "cached_graphs")} == {
        "compiled": True,
        "graphs": 1,
        "cached_graphs": 1,
    }
