"""A later attempt waits for no lock of an attempt that was killed, and takes none from its own gang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.plans import supervised
from trainer.runtime.environment import Environment
from trainer.runtime.node import Node
from trainer.steps import abandoned_locks
from trainflow.protocol.plan import AbandonedLocks, Launch, Plan

HOLDS = """
import os, pathlib, signal, sys
pathlib.Path(sys.argv[1]).parent.mkdir(parents=True, exist_ok=True)
os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""A compiler that is killed while it holds its lock."""

WAITS = """
import os, sys, time
while os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""
"""The same compiler in the next attempt."""

LOCKS = (
    "neuron/neuronxcc-2.21/MODULE_1/model.hlo_module.pb.lock",
    "torch_extensions/py311_cpu/fused/lock",
    "hub/.locks/models--a--b/0123",
    "hub/models--a--b/blobs/0123.lock",
    "datasets/text.lock.soft",
    "modelscope/hub/.lock/A___B",
    "matplotlib/fontlist-v390.json.matplotlib-lock",
    "miopen/db.fslock",
)
"""Names of locks that are files, by the libraries that make them."""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "bert"


def prepare(run_dir: Path, cache: Path, *, rank: int = 0, job: str = "bert-training-2") -> None:
    step = AbandonedLocks(job=job, caches=(str(cache),), results=(str(run_dir),))
    launch = Launch(launcher="torchrun", num_nodes=2, processes=1, port=1, program=("train.py",))
    plan = Plan(abandoned_locks=step, launch=launch)
    environment = Environment(data_dir=None, run_dir=run_dir, result_file=None)
    abandoned_locks.prepare(step, Node(plan=plan, environment=environment, rank=rank))


def make(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_second_attempt_does_not_wait_for_the_lock_of_a_compiler_that_was_killed(tmp_path: Path) -> None:
    run_dir, cache = tmp_path / "run", tmp_path / "cache"
    lock = cache / "graphs" / "neuron" / "model.hlo_module.pb.lock"
    killed = subprocess.run([sys.executable, "-c", HOLDS, str(lock)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert lock.exists()
    step = AbandonedLocks(job="bert-training-2", caches=(str(cache),), results=(str(run_dir),))
    done = subprocess.run(
        supervised(sys.executable, "-c", WAITS, str(lock), abandoned_locks=step),
        env={**os.environ, "TRAINFLOW_RUN_DIR": str(run_dir)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"The lock {lock} of an earlier attempt was removed." in done.stdout


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_of_any_library_is_removed(run_dir: Path, tmp_path: Path, name: str) -> None:
    in_cache, among_results = make(tmp_path / "cache" / name, "host-1 4711\n"), make(run_dir / "code" / name)
    prepare(run_dir, tmp_path / "cache")
    assert not in_cache.exists()
    assert not among_results.exists()


@pytest.mark.parametrize(
    "name", ["model.neff", "block.bin", "clock", "unlock", "locked.json", "uv.lock", ".locks/x/model.bin"]
)
def test_other_files_of_a_cache_stay(run_dir: Path, tmp_path: Path, name: str) -> None:
    file = make(tmp_path / "cache" / name, "x" * 2000)
    prepare(run_dir, tmp_path / "cache")
    assert file.exists()


def test_results_that_are_named_like_locks_stay_unless_they_are_empty(run_dir: Path, tmp_path: Path) -> None:
    result = make(run_dir / "dvc.lock", "stages:\n")
    prepare(run_dir, tmp_path / "cache")
    assert result.exists()


def test_links_are_not_followed_and_stay(run_dir: Path, tmp_path: Path) -> None:
    elsewhere = make(tmp_path / "elsewhere" / "a.lock")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "b.lock").symlink_to(elsewhere)
    (tmp_path / "cache" / "folder").symlink_to(elsewhere.parent)
    prepare(run_dir, tmp_path / "cache")
    assert elsewhere.exists()
    assert (tmp_path / "cache" / "b.lock").is_symlink()


@pytest.mark.parametrize("rank", [1, 2, 4, 6])
def test_only_the_first_node_removes_locks(run_dir: Path, tmp_path: Path, rank: int) -> None:
    lock = make(tmp_path / "cache" / "a.lock")
    prepare(run_dir, tmp_path / "cache", rank=rank)
    assert lock.exists()


def test_a_node_that_comes_late_removes_no_lock_of_its_own_gang(run_dir: Path, tmp_path: Path) -> None:
    prepare(run_dir, tmp_path / "cache")
    held = make(tmp_path / "cache" / "a.lock")
    prepare(run_dir, tmp_path / "cache")
    assert held.exists()
    prepare(run_dir, tmp_path / "cache", job="bert-training-3")
    assert not held.exists()


def test_a_folder_that_does_not_exist_holds_no_lock(run_dir: Path, tmp_path: Path) -> None:
    prepare(run_dir, tmp_path / "cache")
