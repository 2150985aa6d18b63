"""Checkpoints are written beside the training, and belong to one training only."""

from __future__ import annotations

import math
import pickle
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.wording import wording
from trainer.checkpoints import checkpoint
from trainer.checkpoints.checkpoint import Progress
from trainer.checkpoints.checkpoint_files import CheckpointFile
from trainer.checkpoints.checkpoint_writer import CheckpointWriter
from trainer.checkpoints.fingerprint import Fingerprint
from trainer.checkpoints.host_copy import HostCopy
from trainer.device.cpu import CpuDevice
from trainer.device.distributed import Gang
from trainer.optimizers.building import Groups, Optimizer
from trainer.optimizers.zero import ShardedOptimizer
from trainer.runtime.errors import CheckpointInvalid, ConfigInvalid, StorageFailed

TRAINING = Fingerprint(
    {"num_hidden_layers": 2, "hidden_size": 128},
    {
        "dataset": "100 samples of 16 tokens in 2 shards (123456789abc)",
        "data_order": 1,
        "global_batch_size": 16,
        "precision": "float32",
        "optimizer": "adamw",
        "learning_rate": 4e-4,
        "max_steps": 8,
        "seed": 1,
    },
)


def state(value: float = 1.0) -> dict[str, Any]:
    return {"model": {"weight": torch.full((4,), value)}, "optimizer": {"state": {}, "param_groups": [{"lr": value}]}}


def newest(folder: Path, training: Fingerprint, *, allow_changes: str = "") -> tuple[int | None, list[str]]:
    said: list[str] = []
    found = checkpoint.newest_fitting(folder, training, allow_changes=allow_changes, say=said.append)
    return (found.record.step if found else None), said


def with_settings(**settings: Any) -> Fingerprint:
    return Fingerprint(TRAINING.model, {**TRAINING.settings, **settings})


def of_other_size(hidden_size: int) -> Fingerprint:
    return Fingerprint({**TRAINING.model, "hidden_size": hidden_size}, TRAINING.settings)


def test_each_step_counts_with_its_samples_and_the_first_loss_stays() -> None:
    begun = Progress().after_step(16).after_logging(9.0)
    assert begun == Progress(step=1, samples_seen=16, first_loss=9.0, last_loss=9.0)
    assert begun.after_step(8).after_logging(7.0) == Progress(step=2, samples_seen=24, first_loss=9.0, last_loss=7.0)


def test_before_the_first_step_nothing_was_seen_and_no_loss_is_known() -> None:
    new = Progress()
    assert (new.step, new.samples_seen) == (0, 0)
    assert math.isnan(new.first_loss) and math.isnan(new.last_loss)


def test_a_host_copy_does_not_change_with_what_it_was_taken_of() -> None:
    tied = torch.nn.Parameter(torch.zeros(3))
    live: dict[str, Any] = {
        "model": {"a": tied, "b": tied},
        "groups": [{"lr": 1.0, "betas": (0.9, 0.999)}],
        "step": torch.tensor(1.0),
    }
    copied, wait = HostCopy(CpuDevice()).start(live)
    wait()
    tied.data += 1
    live["groups"][0]["lr"] = 2.0
    live["step"] += 1
    assert torch.equal(copied["model"]["a"], torch.zeros(3))
    assert copied["model"]["a"] is copied["model"]["b"]
    assert (copied["groups"], copied["step"].item()) == ([{"lr": 1.0, "betas": (0.9, 0.999)}], 1.0)


def test_host_memory_is_taken_once() -> None:
    host_copy = HostCopy(CpuDevice())
    first, _ = host_copy.start({"a": torch.zeros(3)})
    second, _ = host_copy.start({"a": torch.ones(3)})
    assert first["a"] is second["a"]
    assert torch.equal(second["a"], torch.ones(3))


def test_memory_can_be_taken_beforehand_and_the_state_stays_as_it_is() -> None:
    host_copy, live = HostCopy(CpuDevice()), {"a": torch.ones(3)}
    host_copy.make_room(live)
    assert torch.equal(live["a"], torch.ones(3))
    copied, wait = host_copy.start(live)
    wait()
    assert torch.equal(copied["a"], torch.ones(3))


def test_a_writer_takes_memory_for_the_state_that_it_will_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(HostCopy, "make_room", lambda _copy, of: taken.append(of))
    live = state()
    with CheckpointWriter(lambda _content, _progress: None, CpuDevice()) as writer:
        writer.prepare(live)
    assert [each is live for each in taken] == [True]


def test_the_training_goes_on_while_a_checkpoint_is_written() -> None:
    may_write, written = threading.Event(), []

    def write(content: Any, progress: Progress) -> CheckpointFile | None:
        may_write.wait(30)
        written.append((progress.step, content["model"]["weight"].tolist()))
        return None

    live, began = state(1.0), time.perf_counter()
    with CheckpointWriter(write, CpuDevice()) as writer:
        writer.submit(live, Progress(step=1))
        live["model"]["weight"] += 1  # the training goes on
        assert written == []
        may_write.set()
        writer.submit(live, Progress(step=2))  # waits until the first is written: it needs its memory
        assert written[0] == (1, [1.0] * 4)
    assert written == [(1, [1.0] * 4), (2, [2.0] * 4)]
    assert len(writer.stops) == 2
    assert all(0 < stop < time.perf_counter() - began for stop in writer.stops)


def test_memory_is_not_prepared_while_a_copy_in_it_is_written() -> None:
    """Preparing it writes zeros."""
    may_write, written = threading.Event(), []

    def write(content: Any, _progress: Progress) -> CheckpointFile | None:
        may_write.wait(30)
        written.append(content["model"]["weight"].tolist())
        return None

    with CheckpointWriter(write, CpuDevice()) as writer:
        writer.submit(state(), Progress(step=1))
        writer.prepare(state())
        assert writer._pending is not None
        assert not futures.wait([writer._pending], timeout=0.1).done
        may_write.set()
    assert written == [[1.0] * 4]


def test_a_checkpoint_that_could_not_be_written_stops_the_training() -> None:
    def write(_content: Any, _progress: Progress) -> CheckpointFile | None:
        raise StorageFailed("No room.")

    with pytest.raises(StorageFailed), CheckpointWriter(write, CpuDevice()) as writer:
        writer.submit(state(), Progress(step=1))

    with CheckpointWriter(write, CpuDevice()) as writer:
        writer.submit(state(), Progress(step=1))
        with pytest.raises(StorageFailed):
            writer.wait()


def test_an_error_of_the_training_itself_is_not_replaced_by_that_of_its_last_checkpoint() -> None:
    def write(_content: Any, _progress: Progress) -> CheckpointFile | None:
        raise StorageFailed("No room.")

    with pytest.raises(ZeroDivisionError), CheckpointWriter(write, CpuDevice()) as writer:
        writer.submit(state(), Progress(step=1))
        raise ZeroDivisionError


def test_an_error_of_the_thread_is_raised_as_soon_as_it_is_there_and_not_waited_for() -> None:
    may_fail = threading.Event()

    def write(_content: Any, _progress: Progress) -> CheckpointFile | None:
        may_fail.wait(30)
        raise StorageFailed("No room.")

    with CheckpointWriter(write, CpuDevice()) as writer:
        writer.check()
        writer.submit(state(), Progress(step=1))
        writer.check()
        assert writer._pending is not None
        failed = threading.Event()
        writer._pending.add_done_callback(lambda _pending: failed.set())
        may_fail.set()
        assert failed.wait(30)
        with pytest.raises(StorageFailed):
            writer.check()


def test_the_newest_checkpoint_is_the_last_one_that_was_written(tmp_path: Path) -> None:
    def write(content: Any, progress: Progress) -> CheckpointFile | None:
        return checkpoint.write(tmp_path, content, progress, TRAINING)

    names = []
    with CheckpointWriter(write, CpuDevice()) as writer:
        assert writer.newest is None
        for step in (1, 2):
            writer.submit(state(), Progress(step=step))
            writer.wait()
            writer.prepare(state())  # writes none
            writer.wait()
            names += [writer.newest.path.name] if writer.newest is not None else []
    assert names == ["step-00000001.pt", "step-00000002.pt"]


def test_a_checkpoint_is_read_back(tmp_path: Path) -> None:
    progress = Progress(step=5, samples_seen=50, first_loss=9.0, last_loss=8.0)
    written = checkpoint.write(tmp_path, state(3.0), progress, TRAINING)
    assert newest(tmp_path, TRAINING) == (5, [])
    content = checkpoint.load(written.path)
    assert torch.equal(content["model"]["weight"], torch.full((4,), 3.0))
    assert content["optimizer"] == state(3.0)["optimizer"]
    assert str(written.path) in Path("/proc/self/maps").read_text(), "all processes of a node share the file's pages"


def test_no_change_is_allowed_unless_it_is_named(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state(), Progress(step=1), TRAINING)
    said: list[str] = []
    found = checkpoint.newest_fitting(tmp_path, TRAINING, say=said.append)
    assert found is not None
    assert (found.record.step, said) == (1, [])
    with pytest.raises(CheckpointInvalid):
        checkpoint.newest_fitting(tmp_path, with_settings(seed=2), say=said.append)


class RunsWhenItIsRead:
    """What a file of somebody else may hold."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit",)


def test_a_checkpoint_is_data_and_runs_no_code(tmp_path: Path) -> None:
    torch.save({"model": RunsWhenItIsRead()}, tmp_path / "foreign.pt")
    with pytest.raises(pickle.UnpicklingError):
        checkpoint.load(tmp_path / "foreign.pt")


@pytest.mark.parametrize(
    ("training", "words"),
    [
        (with_settings(learning_rate=5e-2), "--learning_rate is 0.05 and the checkpoint was made with 0.0004"),
        (with_settings(seed=2), "--seed is 2 and the checkpoint was made with 1"),
        (with_settings(global_batch_size=8), "--global_batch_size is 8 and the checkpoint was made with 16"),
        (with_settings(precision="bfloat16"), "--precision is bfloat16 and the checkpoint was made with float32"),
        (with_settings(data_order=2), "the version of the data's order is 2 and the checkpoint was made with 1"),
        (
            with_settings(dataset="9 samples"),
            "the data set is 9 samples and the checkpoint was made with 100 samples of 16 tokens in 2 shards "
            "(123456789abc)",
        ),
    ],
)
def test_another_training_is_refused_with_both_values_unless_the_change_is_allowed(
    tmp_path: Path, training: Fingerprint, words: str
) -> None:
    written = checkpoint.write(tmp_path, state(), Progress(step=1), TRAINING)
    with pytest.raises(CheckpointInvalid) as caught:
        newest(tmp_path, training)
    (name,) = (name for name, value in training.settings.items() if TRAINING.settings[name] != value)
    assert str(caught.value) == (
        f"The checkpoint {written.path} is of another training: {words}. Give the same; or allow the change with "
        f"--allow_changes {name} (in a run spec workload.arguments.allow_changes: {name}); or start again with another "
        "--output_dir."
    )

    step, (said,) = newest(tmp_path, training, allow_changes=f"max_steps, {name}")
    assert step == 1
    assert said == f"Resuming although {words}: --allow_changes allows it."


def test_a_folder_that_cannot_be_written_is_named_with_the_step(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(StorageFailed) as failed:
        checkpoint.write(tmp_path, state(), Progress(step=7), TRAINING)
    assert str(failed.value) == (
        f"The checkpoint of step 7 could not be written to {tmp_path} ([Errno 17] File exists: "
        f"'{tmp_path / 'checkpoints'}'); make room or give a folder that can be written. Earlier checkpoints are "
        "intact."
    )


def test_switches_are_named_as_they_are_written_in_a_command(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state(), Progress(step=1), with_settings(nesterov=True))
    with pytest.raises(CheckpointInvalid, match=r"--nesterov .*false.*checkpoint.* true"):
        newest(tmp_path, with_settings(nesterov=False))


def test_of_several_changes_those_that_are_not_allowed_are_refused(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state(), Progress(step=1), TRAINING)
    with pytest.raises(CheckpointInvalid) as caught:
        newest(tmp_path, with_settings(max_steps=9, seed=2, learning_rate=1.0), allow_changes="seed")
    assert "--learning_rate is 1.0 and the checkpoint was made with 0.0004; --max_steps is 9" in str(caught.value)
    assert "--seed" not in str(caught.value)
    assert "--allow_changes learning_rate,max_steps (" in str(caught.value)


@pytest.mark.parametrize(
    ("training", "words"),
    [
        (of_other_size(64), "--hidden_size is 64 and the checkpoint was made with 128"),
        (with_settings(optimizer="lamb"), "--optimizer is lamb and the checkpoint was made with adamw"),
        (
            with_settings(precision="pure_bfloat16"),
            "--precision is pure_bfloat16 and the checkpoint was made with float32",
        ),
    ],
)
def test_a_checkpoint_whose_tensors_do_not_fit_cannot_be_allowed(
    tmp_path: Path, training: Fingerprint, words: str
) -> None:
    checkpoint.write(tmp_path, state(), Progress(step=1), TRAINING)
    with pytest.raises(CheckpointInvalid) as caught:
        newest(tmp_path, training, allow_changes="precision")
    assert str(caught.value) == (
        f"No checkpoint in {tmp_path / 'checkpoints'} can be resumed from (step-00000001.pt: {words}); bring back what "
        "is missing or damaged, give the arguments that it was made with, or start again with another --output_dir or "
        "without that folder."
    )


MISFIT = (
    "with which a checkpoint's tensors would not fit; start a new training in another --output_dir instead, with "
    "--initial_weights if the shape of the model stays."
)
OTHERS = (
    "which checkpoints are not compared by; give some of data_order, dataset, global_batch_size, learning_rate, "
    "max_steps, precision, seed."
)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("learning_rat", f"'learning_rat', {OTHERS}"),
        ("seed,checkpoint_steps", f"'checkpoint_steps', {OTHERS}"),
        ("seed,hidden_size", f"hidden_size, {MISFIT}"),
        ("optimizer", f"optimizer, {MISFIT}"),
    ],
)
def test_only_what_is_compared_and_fits_can_be_allowed(tmp_path: Path, names: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        newest(tmp_path, TRAINING, allow_changes=names)
    assert str(caught.value) == f"--allow_changes names {words}"


def test_weights_before_the_first_step_may_begin_any_training(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state(), Progress(), Fingerprint(TRAINING.model, {}))
    assert newest(tmp_path, with_settings(seed=2, optimizer="lamb")) == (0, [])
    checkpoint.write(tmp_path, state(), Progress(), TRAINING)
    assert newest(tmp_path, with_settings(seed=2, optimizer="lamb")) == (0, []), "their own settings do not count"


def test_a_checkpoint_that_does_not_know_a_setting_says_so(tmp_path: Path) -> None:
    """One of an earlier version: an option that there was not yet has the value that its absence had."""
    checkpoint.write(tmp_path, state(), Progress(step=1), Fingerprint(TRAINING.model, {"seed": 1, "gone": 3}))
    step, (said,) = newest(tmp_path, with_settings())
    assert step == 1
    assert said == (
        wording(
            "checkpoint.a_checkpoint_that_does_not_know_a_setting_says_so",
            "data_order",
            "global_batch_size",
            "learning_rate",
            "max_steps",
        )
    )


def test_of_a_mixed_folder_the_newest_that_fits_is_taken_and_the_others_are_named(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, state(), Progress(step=1), TRAINING)
    checkpoint.write(tmp_path, state(), Progress(step=2), of_other_size(64))
    damaged = checkpoint.write(tmp_path, state(), Progress(step=3), TRAINING)
    damaged.path.write_bytes(damaged.path.read_bytes()[:-1] + b"x")
    step, said = newest(tmp_path, TRAINING)
    assert step == 1
    assert said == [
        wording(
            "checkpoint.of_a_mixed_folder_the_newest_that_fits_is_taken_and_the_others_are_named.1",
            "skipped",
            "checksum",
        ),
        wording(
            "checkpoint.of_a_mixed_folder_the_newest_that_fits_is_taken_and_the_others_are_named.2",
            "hidden_size",
            "128",
            "64",
        ),
    ]


@pytest.mark.parametrize("optimizer", ["torch", "divided"])
def test_what_was_restored_has_left_the_file(tmp_path: Path, optimizer: str) -> None:
    """A file that is mapped keeps its room on the disk after it is deleted."""
    model = torch.nn.Linear(3, 2)
    made = adamw(model, divided=False)  # a divided optimizer's state is gathered before it is written
    model(torch.ones(3)).sum().backward()
    made.step()
    content = {"model": model.state_dict(), "optimizer": made.state_dict()}
    written = checkpoint.write(tmp_path, content, Progress(step=1), TRAINING)
    again = torch.nn.Linear(3, 2)
    restored = adamw(again, divided=optimizer == "divided")
    checkpoint.restore(written, again, restored)
    assert str(written.path) not in Path("/proc/self/maps").read_text()
    assert torch.equal(again.weight, model.weight)
    assert torch.equal(restored.state_dict()["state"][0]["exp_avg"], made.state_dict()["state"][0]["exp_avg"])


def test_weights_alone_leave_the_optimizer_as_it_is(tmp_path: Path) -> None:
    model, again = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    fresh = adamw(again, divided=False)
    content = {"model": model.state_dict(), "optimizer": None}
    written = checkpoint.write(tmp_path, content, Progress(), Fingerprint(TRAINING.model, {}))
    checkpoint.restore(written, again, fresh)
    assert torch.equal(again.weight, model.weight)
    assert fresh.state_dict()["state"] == {}


def test_a_restored_training_goes_on_from_its_step_samples_and_losses(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = adamw(model, divided=False)
    progress = Progress(step=5, samples_seen=50, first_loss=9.0, last_loss=8.0)
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    written = checkpoint.write(tmp_path, content, progress, TRAINING)
    assert checkpoint.restore(written, model, optimizer) == progress
    assert optimizer.param_groups[0]["step"] == 5


def test_what_an_optimizer_keeps_beside_tensors_is_restored_as_it_was(tmp_path: Path) -> None:
    """As some count their steps in plain numbers."""
    model, again = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    made, restored = (torch.optim.SGD(each.parameters(), momentum=0.9) for each in (model, again))
    model(torch.ones(3)).sum().backward()
    made.step()
    made.state[model.bias]["num_skipped"] = 3
    content = {"model": model.state_dict(), "optimizer": made.state_dict()}
    checkpoint.restore(checkpoint.write(tmp_path, content, Progress(step=1), TRAINING), again, restored)
    assert restored.state[again.bias]["num_skipped"] == 3
    assert torch.equal(restored.state[again.bias]["momentum_buffer"], made.state[model.bias]["momentum_buffer"])


def test_a_change_of_the_optimizers_settings_takes_effect(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    before, after = (torch.optim.AdamW(model.parameters(), weight_decay=decay) for decay in (0.01, 0.5))
    model(torch.ones(3)).sum().backward()
    before.step()
    content = {"model": model.state_dict(), "optimizer": before.state_dict()}
    checkpoint.restore(checkpoint.write(tmp_path, content, Progress(step=1), TRAINING), model, after)
    assert after.param_groups[0]["weight_decay"] == 0.5
    assert after.state_dict()["state"].keys() == {0, 1}


def adamw(model: torch.nn.Module, *, divided: bool) -> Optimizer:
    groups: Groups = [{"params": list(model.parameters())}]
    gang = Gang(rank=0, world_size=1, control=None)

    def make(of: Groups) -> torch.optim.Optimizer:
        return torch.optim.AdamW([dict(group) for group in of])

    return ShardedOptimizer(groups, make, gang) if divided else make(groups)
