"""Checkpoints of the field's libraries, really written by them, are complete as they were left and not when cut off."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict_saver import save as save_to_folder
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

from trainer.checkpoints.patterns import Rules, find, is_complete, newest_complete
from trainer.checkpoints.writers import TRAINER_STATE

LONG_AGO = 1_000_000.0
"""Age in seconds at which a file of an unknown format is complete, so that only the content can say no."""

WEIGHTS = {"weight": torch.arange(1000.0), "half": torch.ones(5, dtype=torch.bfloat16), "bias": torch.arange(4)[1:]}


def complete(path: Path, *, marker: str | None = None, age: float = LONG_AGO) -> bool:
    newest = max(file.stat().st_mtime for file in (path, *path.rglob("*")))
    return is_complete(path, marker=marker, settled_seconds=60, now=newest + age)


def chosen(folder: Path, pattern: str = "step-{step}") -> str | None:
    found, _ = newest_complete(find(pattern, folder), Rules(settled_seconds=60, now=float("inf")))
    return found.path.name if found else None


def write_hdf5(path: Path, version: Any) -> None:
    with h5py.File(path, "w", libver=version) as file:
        for name in ("a", "b"):
            file.create_dataset(name, data=np.arange(1000.0))


def write_tar(path: Path, mode: Any) -> None:
    (path.parent / "inside").write_bytes(os.urandom(3000))
    with tarfile.open(path, mode) as archive:
        archive.add(path.parent / "inside", "weights")
    (path.parent / "inside").unlink()


FILES: dict[str, Callable[[Path], Any]] = {
    **{
        f"torch{suffix}": lambda path: torch.save(WEIGHTS, path)
        for suffix in (".pt", ".pth.tar", ".tar", ".ckpt", ".pkl", ".model", ".t7", ".pdparams", "")
    },
    **{
        f"old-torch{suffix}": lambda path: torch.save(WEIGHTS, path, _use_new_zipfile_serialization=False)
        for suffix in (".pt", ".pth.tar", "")
    },
    "old-module.pth": lambda path: torch.save(
        {"net": torch.nn.Sequential(torch.nn.Linear(30, 3)), "lr": 1e-3}, path, _use_new_zipfile_serialization=False
    ),
    "tensors.safetensors": lambda path: save_file({"w": torch.ones(100)}, path),
    "tensors": lambda path: save_file({"w": torch.ones(100)}, path),
    "arrays.npz": lambda path: np.savez(path, a=np.zeros(1000), b=np.ones(3)),
    "array.npy": lambda path: np.save(path, np.zeros((10, 20), dtype=np.float32)),
    "texts.npy": lambda path: np.save(path, np.array(["one", "seventeen"])),
    "earliest.h5": lambda path: write_hdf5(path, "earliest"),
    "latest.h5": lambda path: write_hdf5(path, "latest"),
    "v108.keras": lambda path: write_hdf5(path, ("earliest", "v108")),
    "plain.pkl": lambda path: path.write_bytes(pickle.dumps({"a": list(range(1000)), "b": np.arange(10)})),
    "many.pkl": lambda path: path.write_bytes(pickle.dumps([1, 2]) + pickle.dumps({"a": "b" * 100})),
    "packed.tar": lambda path: write_tar(path, "w"),
    "packed.tgz": lambda path: write_tar(path, "w:gz"),
    "packed.tar.xz": lambda path: write_tar(path, "w:xz"),
    "packed.tar.bz2": lambda path: write_tar(path, "w:bz2"),
    "pickle.gz": lambda path: path.write_bytes(gzip.compress(pickle.dumps(list(range(1000))))),
    "state.json": lambda path: path.write_text(json.dumps({"step": 3})),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_known_format_is_complete_at_once_and_never_when_it_was_cut_off(name: str, tmp_path: Path) -> None:
    FILES[name](path := tmp_path / name)
    if not path.exists():  # NumPy adds its ending
        next(tmp_path.iterdir()).rename(path)
    assert complete(path, age=0)
    whole = path.read_bytes()
    # A tar archive ends with a block of zeros, and is filled up with more of them.
    end = len(whole) if name != "packed.tar" else 512 + 3072 + 512
    # By fewer bytes than these no format is recognised, if the name does not say it either.
    least = 1 if "." in name else 11
    for length in (least, *range(9, 12), end // 3, end // 2, end * 9 // 10, end - 1):
        if not least <= length < end:
            continue
        path.write_bytes(whole[:length])
        assert not complete(path), f"{length} of {len(whole)} bytes"


@pytest.mark.parametrize("name", ["torch.pt", "tensors.safetensors", "arrays.npz", "earliest.h5", "old-torch.pt"])
def test_a_file_whose_room_is_on_the_disk_before_its_content_is_not_complete(name: str, tmp_path: Path) -> None:
    FILES[name](path := tmp_path / name)
    path.write_bytes(bytes(len(path.read_bytes())))
    assert not complete(path)


def test_an_hdf5_file_that_a_killed_process_had_open_is_not_complete(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file.create_dataset("a", data=np.arange(1000.0))
        file.flush()
        shutil.copy(tmp_path / "a.h5", tmp_path / "killed.h5")
    assert not complete(tmp_path / "killed.h5")
    assert complete(tmp_path / "a.h5")


def test_a_pickle_with_arrays_between_its_operations_is_complete_once_nothing_changes(tmp_path: Path) -> None:
    """As joblib writes them; such a file is read by its own library only."""
    (path := tmp_path / "a.pkl").write_bytes(pickle.dumps("joblib.numpy_pickle") + os.urandom(500))
    assert not complete(path, age=59)
    assert complete(path, age=60)


def test_an_old_file_with_storages_of_an_unknown_type_is_complete_once_nothing_changes(tmp_path: Path) -> None:
    torch.save(WEIGHTS, path := tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes().replace(b"FloatStorage", b"OtherStorage"))
    assert not complete(path, age=59)
    assert complete(path, age=60)


def test_no_code_of_a_pickle_is_run_to_judge_it(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "harm"),)

    torch.save({"a": Harmful()}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(Harmful()))
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / ".metadata").write_bytes(pickle.dumps(Harmful()))
    (tmp_path / "step-1" / "__0_0.distcp").write_bytes(b"x")
    assert complete(tmp_path / "old.pt")
    assert complete(tmp_path / "a.pkl")
    complete(tmp_path / "step-1")
    assert not (tmp_path / "harm").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run of transformers' Trainer with two checkpoints."""
    folder = tmp_path_factory.mktemp("trainer")
    train(folder)
    return folder


def train(folder: Path, **options: Any) -> None:
    pytest.importorskip("accelerate", reason="transformers' Trainer needs it")
    config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    data = [{"input_ids": torch.arange(4), "labels": torch.arange(4)} for _ in range(8)]
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=4, save_steps=2, use_cpu=True, report_to="none", disable_tqdm=True, **options
    )
    Trainer(BertForMaskedLM(config), arguments, train_dataset=data).train()


@pytest.mark.parametrize("marker", [None, TRAINER_STATE])
def test_a_checkpoint_of_transformers_trainer_is_complete_with_its_last_file_only(
    trained: Path, tmp_path: Path, marker: str | None
) -> None:
    shutil.copytree(trained / "checkpoint-2", tmp_path / "checkpoint-2")
    shutil.copytree(trained / "checkpoint-4", whole := tmp_path / "checkpoint-4")
    assert complete(whole, marker=marker, age=0)
    order = ["model.safetensors", "training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", TRAINER_STATE]
    in_order = sorted(whole.iterdir(), key=lambda file: order.index(file.name) if file.name in order else -1)
    assert [file.name for file in in_order if file.name != "generation_config.json"] == ["config.json", *order]
    cut_off = whole / TRAINER_STATE
    cut_off.write_bytes(cut_off.read_bytes()[:-2])
    for file in reversed(in_order):
        assert not complete(whole, marker=marker), f"killed while it wrote {file.name}"
        assert chosen(tmp_path, "checkpoint-{step}") == "checkpoint-2"
        file.unlink()
    assert chosen(tmp_path, "checkpoint-{step}") == "checkpoint-2"


def test_a_trainer_that_saves_only_the_model_still_writes_its_last_file(tmp_path: Path) -> None:
    train(tmp_path, save_only_model=True)
    assert complete(tmp_path / "checkpoint-4", age=0)
    (tmp_path / "checkpoint-4" / TRAINER_STATE).unlink()
    assert not complete(tmp_path / "checkpoint-4")
    assert chosen(tmp_path, "checkpoint-{step}") == "checkpoint-2"


def test_what_is_missing_of_sharded_weights_is_noticed(trained: Path, tmp_path: Path) -> None:
    model = BertForMaskedLM.from_pretrained(trained / "checkpoint-4")
    model.save_pretrained(whole := tmp_path / "step-1", max_shard_size="2KB")
    (whole / "own_state.pt").write_bytes((trained / "checkpoint-4" / "optimizer.pt").read_bytes())
    shards = sorted(whole.glob("model-*-of-*.safetensors"))
    assert len(shards) > 2
    assert complete(whole, age=0)
    for shard in shards:
        content = shard.read_bytes()
        shard.unlink()
        assert not complete(whole), shard.name
        shard.write_bytes(content)
    (whole / "model.safetensors.index.json").unlink()
    assert complete(whole)
    shards[-1].unlink()
    assert not complete(whole), "the names say how many there are"


def test_files_of_a_grid_of_ranks_may_be_written_by_some_ranks_only(tmp_path: Path) -> None:
    """As nanotron's: each stage of the pipeline has its own layers."""
    folder = tmp_path / "step-1"
    folder.mkdir()
    save_file({"w": torch.ones(1)}, folder / "layer_pp-rank-1-of-4_tp-rank-0-of-1.safetensors")
    assert complete(folder, age=0)


def save_with_accelerate(folder: Path) -> None:
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    prepared = accelerator.prepare(model, optimizer, schedule)
    assert len(prepared) == 3
    accelerator.save_state(str(folder))


def test_a_state_of_accelerate_is_complete_with_its_random_states(tmp_path: Path) -> None:
    save_with_accelerate(tmp_path / "step-1")
    save_with_accelerate(whole := tmp_path / "step-2")
    assert complete(whole, age=0)
    order = ["model.safetensors", "optimizer.bin", "scheduler.bin", "random_states_0.pkl"]
    assert sorted(file.name for file in whole.iterdir()) == sorted(order)
    for name in reversed(order[1:]):
        (whole / name).unlink()
        assert not complete(whole), f"killed before {name}"
        assert chosen(tmp_path) == "step-1"


def save_distributed(folder: Path) -> None:
    save_to_folder({"w": torch.ones(40), "n": {"step": 5}}, checkpoint_id=str(folder), no_dist=True)


@pytest.mark.parametrize("inner", ["pytorch_model_fsdp_0", "weights", "a/b"])
def test_a_distributed_checkpoint_inside_of_a_folder_needs_its_metadata_and_all_files(
    inner: str, tmp_path: Path
) -> None:
    folder = tmp_path / "step-1"
    save_distributed(folder / inner)
    (folder / TRAINER_STATE).write_text("{}")
    assert complete(folder, age=0)
    metadata, tensors = folder / inner / ".metadata", folder / inner / "__0_0.distcp"
    whole = metadata.read_bytes(), tensors.read_bytes()
    for length in (0, len(whole[0]) // 2):
        metadata.write_bytes(whole[0][:length])
        assert not complete(folder)
    metadata.unlink()
    assert not complete(folder)
    metadata.write_bytes(whole[0])
    tensors.write_bytes(whole[1][:-1])
    assert not complete(folder), "shorter than the metadata says"
    tensors.unlink()
    assert not complete(folder), "the metadata names it"


def save_as_deepspeed(folder: Path, *, ranks: int, shards: bool = False, prefix: str = "") -> list[Path]:
    """The files of DeepSpeed's engine (`save_checkpoint`), in the order in which rank 0 and the others write them."""
    folder.mkdir(parents=True)
    said = {"module": WEIGHTS, "dp_world_size": ranks, "mp_world_size": 1, "ds_version": "0.18"}
    said |= {"ds_config": {"zero_optimization": {"stage": 3 if shards else 2}}}
    names = [f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" for rank in range(ranks)] if shards else []
    names = names or ["mp_rank_00_model_states.pt"]
    optimizers = [f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(ranks)]
    for name in names:
        torch.save(said, folder / name)
    for name in optimizers:
        torch.save({"optimizer_state_dict": WEIGHTS}, folder / name)
    (folder.parent / "latest").write_text(folder.name)
    return [folder / name for name in (*names, *optimizers)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize(("shards", "prefix"), [(False, ""), (False, "bf16_"), (True, "bf16_")])
def test_a_folder_of_deepspeed_needs_the_files_of_all_ranks(
    ranks: int, shards: bool, prefix: str, tmp_path: Path
) -> None:
    save_as_deepspeed(tmp_path / "global_step1", ranks=ranks)
    files = save_as_deepspeed(tmp_path / "global_step2", ranks=ranks, shards=shards, prefix=prefix)
    pattern = "global_step{step}"
    assert complete(tmp_path / "global_step2", age=0)
    (tmp_path / "latest").unlink()
    assert complete(tmp_path / "global_step2"), "save_latest=False"
    for file in files:
        content = file.read_bytes()
        file.unlink()
        assert chosen(tmp_path, pattern) == "global_step1", f"{file.name} is missing"
        file.write_bytes(content)
    (tmp_path / "latest").write_text("global_step1")
    assert chosen(tmp_path, pattern) == "global_step1", "rank 0 did not get to the last file"


def test_a_trainers_folder_with_deepspeed_needs_what_deepspeed_writes_last(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-2"
    save_as_deepspeed(folder / "global_step2", ranks=2)
    (folder / TRAINER_STATE).write_text("{}")
    assert complete(folder, age=0)
    (folder / "latest").write_text("global_step9")
    assert not complete(folder)
    (folder / "latest").unlink()
    assert not complete(folder)


def test_megatrons_newest_complete_iteration_is_the_one_that_its_last_file_names(tmp_path: Path) -> None:
    for step in (10, 20):
        (folder := tmp_path / f"iter_{step:07d}" / "mp_rank_00").mkdir(parents=True)
        torch.save(WEIGHTS, folder / "model_optim_rng.pt")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    assert chosen(tmp_path, "iter_{step}") == "iter_0000010"
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("20")
    assert chosen(tmp_path, "iter_{step}") == "iter_0000020"


def test_nemos_mark_beside_a_checkpoint_says_that_it_is_unfinished(tmp_path: Path) -> None:
    for name in ("epoch=1-step=20", "epoch=1-step=30.ckpt"):
        torch.save(WEIGHTS, tmp_path / name)
        assert complete(tmp_path / name)
        (tmp_path / f"{name.removesuffix('.ckpt')}-unfinished").touch()
        assert not complete(tmp_path / name)


def save_as_orbax(folder: Path, *, commit: int | None = 5) -> None:
    (folder / "default" / "d").mkdir(parents=True)
    (folder / "default" / "d" / "0123").write_bytes(b"tensorstore")
    (folder / "default" / "manifest.ocdbt").write_bytes(b"\x0c\xdb\x3a\x2a")
    (folder / "default" / "_METADATA").write_text("{}")
    times = {"init_timestamp_nsecs": 4, "commit_timestamp_nsecs": commit}
    (folder / "_CHECKPOINT_METADATA").write_text(json.dumps(times))


def test_a_checkpoint_of_orbax_needs_the_time_of_its_commit(tmp_path: Path) -> None:
    save_as_orbax(tmp_path / "step-1")
    save_as_orbax(tmp_path / "step-2", commit=None)
    assert complete(tmp_path / "step-1")
    assert not complete(tmp_path / "step-2")
    (tmp_path / "step-2" / "_CHECKPOINT_METADATA").unlink()
    assert chosen(tmp_path) == "step-1"
    (tmp_path / "step-1" / "default" / "ocdbt.process_0").mkdir()
    (tmp_path / "step-1" / "default" / "manifest.ocdbt").unlink()
    assert not complete(tmp_path / "step-1"), "the parts of the processes are not merged"


def test_a_folder_of_neuronx_distributed_is_complete_with_its_file_done(tmp_path: Path) -> None:
    (folder := tmp_path / "step_10" / "model").mkdir(parents=True)
    torch.save(WEIGHTS, folder / "dp_rank_00_tp_rank_00_pp_rank_00.pt")
    (tmp_path / "step_10" / "checkpoint").write_text("1")
    assert not complete(tmp_path / "step_10")
    (tmp_path / "step_10" / "done").write_text("1")
    assert complete(tmp_path / "step_10")


@pytest.mark.parametrize(
    "name",
    [
        "optimizer.pt.tmp",
        "optimizer.pt.tmp.4711",
        "tmp-optimizer.pt",
        ".tmp_optimizer",
        "shard.part",
        "shard.incomplete",
        "state-tmp",
        "default.orbax-checkpoint-tmp-17",
    ],
)
def test_a_file_or_folder_with_the_name_of_an_unfinished_one_is_noticed(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    folder.mkdir()
    torch.save(WEIGHTS, folder / "own.pt")
    (folder / "prompt.template").write_text("x")
    (folder / "template.pt").write_bytes((folder / "own.pt").read_bytes())
    assert complete(folder, age=0)
    (folder / name).mkdir()
    assert not complete(folder)
    (folder / name).rmdir()
    (folder / name).write_bytes(b"x")
    assert not complete(folder)


def test_a_loop_of_its_own_that_saves_with_torch_needs_no_mark(tmp_path: Path) -> None:
    (folder := tmp_path / "step-1").mkdir()
    for name in ("model.pt", "optimizer.pt", "scheduler.pt"):
        torch.save(WEIGHTS, folder / name)
    assert complete(folder, age=0)


@pytest.mark.parametrize("older_has_more", [True, False])
def test_weights_only_are_complete_where_the_program_never_saves_more(
    trained: Path, older_has_more: bool, tmp_path: Path
) -> None:
    model = BertForMaskedLM.from_pretrained(trained / "checkpoint-4")
    for step in (1, 2):
        model.save_pretrained(tmp_path / f"step-{step}")
        assert not complete(tmp_path / f"step-{step}"), "by itself it may be cut off"
    if older_has_more:
        shutil.copytree(trained / "checkpoint-4", tmp_path / "step-1", dirs_exist_ok=True)
    assert chosen(tmp_path) == ("step-1" if older_has_more else "step-2")


def test_weights_only_that_a_later_checkpoint_follows_were_finished(trained: Path, tmp_path: Path) -> None:
    """The newest one was cut off after its first file."""
    model = BertForMaskedLM.from_pretrained(trained / "checkpoint-4")
    model.save_pretrained(tmp_path / "step-1")
    torch.save(WEIGHTS, tmp_path / "step-1" / "optimizer.pt")
    (tmp_path / "step-2").mkdir()
    shutil.copy(tmp_path / "step-1" / "model.safetensors", tmp_path / "step-2")
    assert chosen(tmp_path) == "step-1"


def test_a_first_checkpoint_of_weights_only_is_passed_over_with_the_way_to_accept_it(
    trained: Path, tmp_path: Path
) -> None:
    BertForMaskedLM.from_pretrained(trained / "checkpoint-4").save_pretrained(tmp_path / "step-1")
    found, passed_over = newest_complete(find("step-{step}", tmp_path), Rules())
    assert found is None
    ((_, reason),) = passed_over
    assert reason.endswith("if the program writes no other files, name one that it writes last in checkpoint.marker")
    assert complete(tmp_path / "step-1", marker="model.safetensors")


def test_a_marker_that_was_cut_off_is_none(tmp_path: Path) -> None:
    (folder := tmp_path / "step-1").mkdir()
    (folder / TRAINER_STATE).write_text('{"global_step": 1')
    assert not complete(folder, marker=TRAINER_STATE)
    (folder / "DONE").touch()
    assert complete(folder, marker="DONE", age=0)


def test_texts_beside_an_unknown_format_prove_nothing_about_it(tmp_path: Path) -> None:
    (folder := tmp_path / "step-1").mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "flax_model.msgpack").write_bytes(struct.pack("<Q", 3))
    assert not complete(folder, age=59)
    assert complete(folder, age=60)
