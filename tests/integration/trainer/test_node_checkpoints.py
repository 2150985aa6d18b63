"""A gang whose nodes keep checkpoints of their own resumes from the newest one that all of them have, or the shared."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from tests.integration.trainer.forked_training import Ended, Forked, Started, same, small_training
from trainer.checkpoints import checkpoint_files

OF_NODES, SHARED = "from memory or disks of the nodes", "verified"


@pytest.fixture
def training(tmp_path: Path) -> Forked:
    return small_training(tmp_path)


def nodes(training: Forked) -> Path:
    return training.folder / "nodes"


def run(training: Forked, *, world_size: int = 4, per_node: int = 2, **options: object) -> Ended:
    return start(training, world_size=world_size, per_node=per_node, **options).wait()


def start(training: Forked, *, world_size: int = 4, per_node: int = 2, **options: object) -> Started:
    return training.start(world_size, processes_per_node=per_node, node_folders=nodes(training), **options)  # type: ignore[arg-type]


def steps(folder: Path) -> list[int]:
    return sorted(checkpoint_files.complete_ones(folder))


def without(folder: Path, step: int) -> None:
    """Remove a checkpoint, as if the process had been killed while it wrote it."""
    (folder / f"checkpoints/step-{step:08d}.json").unlink()


def test_each_node_has_the_same_checkpoint_and_the_gang_ends_with_the_weights_of_a_calm_one(training: Forked) -> None:
    calm = training.like("calm")
    assert calm.run(4, processes_per_node=2).code == 0
    first = run(training, steps_this_run=5, checkpoint_steps=2)
    assert first.code == 0, first.out
    files = [(nodes(training) / f"node-{node}/checkpoints/step-00000005.pt").read_bytes() for node in (0, 1)]
    assert files[0] == files[1] == training.checkpoint_path(5).read_bytes()
    training.checkpoint_path(5).with_suffix(".json").unlink()
    second = run(training)
    assert f"Resuming from step-00000005.pt, {OF_NODES}, after step 5." in second.out, second.out
    assert (second.code, second.steps) == (0, [6, 7, 8])
    assert same(training.checkpoint(8), calm.checkpoint(8))


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_node_that_lacks_the_newest_checkpoint_sends_the_gang_to_the_one_before(
    training: Forked, lacking: int
) -> None:
    assert run(training, steps_this_run=4, checkpoint_steps=2).code == 0
    shutil.rmtree(training.folder / "run/checkpoints")
    without(nodes(training) / f"node-{lacking}", 4)
    ended = run(training)
    assert f"Resuming from step-00000002.pt, {OF_NODES}, after step 2." in ended.out, ended.out
    assert (ended.code, ended.steps) == (0, [3, 4, 5, 6, 7, 8])


def test_a_node_that_was_replaced_sends_the_gang_to_the_shared_storage(training: Forked) -> None:
    assert run(training, steps_this_run=4, checkpoint_steps=2).code == 0
    shutil.rmtree(nodes(training) / "node-1")
    ended = run(training)
    assert f"Resuming from step-00000004.pt, {SHARED}, after step 4." in ended.out, ended.out
    assert (ended.code, ended.steps) == (0, [5, 6, 7, 8])
    assert steps(nodes(training) / "node-1") == [8]


def test_a_divided_optimizer_of_one_node_is_kept_there(training: Forked) -> None:
    assert run(training, world_size=2, zero1="true", steps_this_run=4).code == 0
    shutil.rmtree(training.folder / "run/checkpoints")
    ended = run(training, world_size=2, zero1="true")
    assert f"Resuming from step-00000004.pt, {OF_NODES}, after step 4." in ended.out, ended.out
    assert (ended.code, ended.steps) == (0, [5, 6, 7, 8])


def test_a_divided_optimizer_of_several_nodes_resumes_from_the_shared_storage(training: Forked) -> None:
    assert run(training, zero1="true", steps_this_run=4).code == 0
    ended = run(training, zero1="true")
    assert "Warning: the optimizer's state is divided between the nodes" in ended.out
    assert f"Resuming from step-00000004.pt, {SHARED}, after step 4." in ended.out, ended.out
    assert (ended.code, ended.steps) == (0, [5, 6, 7, 8])


def test_a_full_folder_of_one_node_leaves_checkpoints_on_the_shared_storage(training: Forked) -> None:
    nodes(training).mkdir()
    (nodes(training) / "node-0").write_text("not a folder")
    ended = run(training, steps_this_run=4, checkpoint_steps=2)
    assert ended.code == 0, ended.out
    assert ended.out.count("Warning: this node's folder cannot take the checkpoint of step 2") == 1
    again = run(training)
    assert f"Resuming from step-00000004.pt, {SHARED}, after step 4." in again.out, again.out


def test_sigterm_is_answered_after_the_copy(training: Forked) -> None:
    running = start(training, max_steps=100_000, checkpoint_steps=1_000_000)
    running.wait_for_step(3)
    running.kill(15)
    ended = running.wait()
    assert ended.result["error"] == "Terminated", ended.out
    (step,) = steps(training.folder / "run")
    assert [steps(nodes(training) / f"node-{node}") for node in (0, 1)] == [[step], [step]]
    assert f"after step {step}" in ended.result["message"]


def test_a_training_killed_in_its_copies_ends_with_the_weights_of_a_calm_one(tmp_path: Path) -> None:
    """Large enough that a copy takes some milliseconds: kills meet its file while it has a part of the content."""
    options = {"hidden_size": 256, "intermediate_size": 1024, "vocab_size": 8000, "max_steps": 12}
    training = small_training(tmp_path, **options)
    calm = training.like("calm")
    assert calm.run(2, processes_per_node=1).code == 0
    choose, in_copies, starts = random.Random(109), 0, 0
    folder = training.folder / "run/checkpoints"
    while not training.checkpoint_path(12).with_suffix(".json").exists():
        starts += 1
        running = start(training, world_size=2, per_node=1, checkpoint_steps=1)
        if in_copies == 3 or starts > 12:
            assert running.wait().code == 0
            continue
        if starts > 1:
            running.wait_for_step(1)
        deadline = time.monotonic() + 60
        while not (parts := list(folder.glob(".step-*.pt.*"))) and time.monotonic() < deadline:
            time.sleep(0.0005)
        time.sleep(choose.random() * 0.004)
        running.kill()
        in_copies += any(part.exists() for part in parts)
        log = running.log.read_text()
        assert starts == 1 or "Resuming from" in log or not steps(training.folder / "run"), log
    assert in_copies, "no kill met a copy"
    assert same(training.checkpoint(12), calm.checkpoint(12))
