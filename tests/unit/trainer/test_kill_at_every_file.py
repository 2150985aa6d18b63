"""A program killed at any file of a save, or in the middle of one, is given the checkpoint before.

Real libraries write the single files. Folders are trees of files in the order of the library's source, which
`trainer/checkpoints/writers.py` names; test_complete_checkpoints.py has those of the libraries themselves.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import zstandard
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict_saver import save as save_to_folder

from trainer.checkpoints import file_formats
from trainer.checkpoints.patterns import Rules, find, newest_complete

WEIGHTS = {"weight": torch.arange(500.0), "bias": torch.ones(3)}
KILLED = Rules(settled_seconds=60, may_be_cut_off=True)

REMOVED = b"removed"

Entry = tuple[str, bytes]
"""A file below a checkpoint, with its content."""


def torch_bytes(values: Any = WEIGHTS) -> bytes:
    import io

    torch.save(values, buffer := io.BytesIO())
    return buffer.getvalue()


def safetensors_bytes() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [40], "data_offsets": [0, 160]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(160)


def msgpack_bytes() -> bytes:
    """A map of one name to 200 bytes, as `flax.serialization.to_bytes` nests them."""
    return b"\x81" + b"\xa6params" + b"\xc4\xc8" + bytes(range(200))


def database_bytes() -> bytes:
    return b"\x0c\xdb\x3a\x2a" + struct.pack("<Q", 40) + bytes(28)


def table_bytes() -> bytes:
    return bytes(range(100)) + file_formats.TABLE_MAGIC


PT, ST, JSON = torch_bytes(), safetensors_bytes(), b'{"a": 1}'


def deepspeed(step: int) -> list[Entry]:
    said = torch_bytes({"dp_world_size": 3, "mp_world_size": 1, "ds_config": {"zero_optimization": {"stage": 2}}})
    ranks = [(f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", PT) for rank in range(3)]
    return [("mp_rank_00_model_states.pt", said), *ranks, ("../latest", f"step-{step}".encode())]


def megatron(step: int) -> list[Entry]:
    tracker = ("../latest_checkpointed_iteration.txt", str(step).encode())
    return [*((f"mp_rank_0{rank}/model_optim_rng.pt", PT) for rank in range(2)), tracker]


def tensorflow(_step: int) -> list[Entry]:
    return [*((f"ckpt.data-0000{part}-of-00002", bytes(90)) for part in range(2)), ("ckpt.index", table_bytes())]


def orbax(_step: int) -> list[Entry]:
    begun, ended = ({"init_timestamp_nsecs": 4, "commit_timestamp_nsecs": at} for at in (None, 5))
    return [
        ("_CHECKPOINT_METADATA", json.dumps(begun).encode()),
        *(("state/ocdbt.process_0/d/0f", bytes(50)), ("state/_METADATA", JSON)),
        *(("state/manifest.ocdbt", database_bytes()), ("_CHECKPOINT_METADATA", json.dumps(ended).encode())),
    ]


def trainer(_step: int) -> list[Entry]:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    return [
        *(("config.json", JSON), ("model-00001-of-00002.safetensors", ST), ("model-00002-of-00002.safetensors", ST)),
        *(("model.safetensors.index.json", json.dumps(index).encode()), ("training_args.bin", PT)),
        *(("optimizer.pt", PT), ("scheduler.pt", PT), ("rng_state_0.pth", PT), ("trainer_state.json", JSON)),
    ]


def accelerate(_step: int) -> list[Entry]:
    names = ("model.safetensors", "optimizer.bin", "scheduler.bin", "sampler.bin", "random_states_0.pkl")
    return [(name, ST if name.endswith("safetensors") else PT) for name in (*names, "custom_checkpoint_0.pkl")]


def neuronx(_step: int) -> list[Entry]:
    ranks = [f"model/dp_rank_00_tp_rank_0{rank}_pp_rank_00.pt" for rank in range(2)]
    optimizer = [f"optim/dp_rank_00_tp_rank_0{rank}_pp_rank_00.pt" for rank in range(2)]
    return [("checkpoint", b"1"), *((name, PT) for name in (*ranks, *optimizer, "user_content.pt")), ("done", b"1")]


def named(*names: str, content: bytes = PT) -> Callable[[int], list[Entry]]:
    known = {".json": JSON, ".safetensors": ST}
    return lambda _step: [(name, known.get(Path(name).suffix, content)) for name in names]


def nemo(step: int) -> list[Entry]:
    """Its mark is beside the checkpoint until the end (`NeMoModelCheckpoint._save_checkpoint`)."""
    weights = ("weights/common.pt", "weights/__0_0.distcp", "weights/.metadata", "weights/metadata.json")
    mark = f"../step-{step}-unfinished"
    return [(mark, b"begun"), *named(*weights, "context/model.yaml", "context/io.json")(step), (mark, REMOVED)]


def verl(step: int) -> list[Entry]:
    """Each rank's files, the loader's state, then the tracker (verl/trainer/ppo/ray_trainer.py `_save_checkpoint`)."""
    parts = [
        f"actor/{part}_world_size_2_rank_{rank}.pt" for part in ("model", "optim", "extra_state") for rank in (0, 1)
    ]
    tracker = ("../latest_checkpointed_iteration.txt", str(step).encode())
    return [*named(*parts, "actor/huggingface/config.json", "data.pt")(step), tracker]


def cosmos(step: int) -> list[Entry]:
    """Folders of torch.distributed.checkpoint, then the name of the last one (`latest_checkpoint.txt`)."""
    parts = [f"{part}/{file}" for part in ("model", "optim", "trainer") for file in ("__0_0.distcp", ".metadata")]
    return [*named(*parts)(step), ("../latest_checkpoint.txt", f"step-{step}".encode())]


def tracked(step: int) -> list[Entry]:
    """Files of ranks, and the whole path of the last complete folder beside them."""
    return [*named("rank0.pt", "rank1.pt")(step), ("../last_checkpoint", f"/runs/a/step-{step}\n".encode())]


TREES: dict[str, Callable[[int], list[Entry]]] = {
    "transformers' Trainer": trainer,
    "accelerate": accelerate,
    "diffusers' training scripts": named(
        *("unet/config.json", "unet/diffusion_pytorch_model.bin", "optimizer.bin", "scheduler.bin"),
        "random_states_0.pkl",
    ),
    "DeepSpeed": deepspeed,
    "neuronx-distributed": neuronx,
    "optimum-neuron": lambda step: [
        *((f"shards/{name}", content) for name, content in neuronx(step)),
        ("trainer_state.json", JSON),
    ],
    "Megatron-LM": megatron,
    "Megatron-Core": named("common.pt", "__0_0.distcp", "__1_0.distcp", ".metadata", "metadata.json"),
    "NeMo 2": nemo,
    "Lightning's FSDP": named("__0_0.distcp", "__1_0.distcp", ".metadata", "meta.pt"),
    "TensorFlow": tensorflow,
    "Orbax": orbax,
    "Flax": named("checkpoint.msgpack", "optimizer.msgpack", content=msgpack_bytes()),
    "PaddleNLP": named("model_state.pdparams", "optimizer.pdopt", "scheduler.pdparams", "trainer_state.json"),
    "nanotron": named(
        *("config.yaml", "model/model_pp-rank-0-of-1_tp-rank-0-of-1.safetensors", "optimizer/optimizer.pt"),
        *("lr_scheduler/lr_scheduler.pt", "checkpoint_metadata.json"),
    ),
    "AXLearn": named("gda/model/w", "gda/learner/w", "index", content=b"raw"),
    "verl": verl,
    "Cosmos": cosmos,
    "ColossalAI": named(
        *(
            "modeling/config.json",
            "modeling/model-00001-of-00002.safetensors",
            "modeling/model-00002-of-00002.safetensors",
        ),
        *("optimizer/states.bin", "optimizer/param_groups.bin", "lr_scheduler", "running_states.json"),
    ),
    "torchtune": named(
        *("ft-model-00001-of-00002.safetensors", "ft-model-00002-of-00002.safetensors"),
        *("model.safetensors.index.json", "config.json", "recipe_state/recipe_state.pt"),
    ),
    "OLMo": named("config.yaml", "model_and_optim/__0_0.distcp", "model_and_optim/.metadata", "train/rank0.pt"),
    "a loop with a tracker": tracked,
    "a loop of torch.save": named("model.pt", "optimizer.pt", "scheduler.pt"),
    "a loop of an unknown format": named("weights.raw", "optimizer.raw", content=bytes(range(250))),
}


def write(folder: Path, entries: list[Entry]) -> None:
    for name, content in entries:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        if content == REMOVED:
            (folder / name).unlink()


def kills(entries: list[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """What is on the disk when a program is killed before, and in the middle of, each file."""
    for place, (name, content) in enumerate(entries):
        yield f"before {name}", entries[:place]
        if not name.startswith("..") and len(content) > 3:
            yield f"in {name}", [*entries[:place], (name, content[: len(content) // 2])]


def chosen(folder: Path, pattern: str = "step-{step}") -> str | None:
    found, _ = newest_complete(find(pattern, folder), KILLED)
    return found.path.name if found else None


@pytest.mark.parametrize("writer", TREES)
@pytest.mark.parametrize("num_before", [1, 2, 3])
def test_a_program_killed_at_any_file_of_a_tree_resumes_from_the_checkpoint_before(
    writer: str, num_before: int, tmp_path: Path
) -> None:
    make = TREES[writer]
    before = range(10, 10 * num_before + 1, 10)
    last = 10 * num_before + 10
    if num_before == 1 and "unknown" in writer:
        pytest.skip("the second line of defence is there for it: the attempt after this one takes the one before")
    for moment, left in kills(make(last)):
        shutil.rmtree(folder := tmp_path / "run", ignore_errors=True)
        for step in before:
            write(folder / f"step-{step}", make(step))
        (folder / f"step-{last}").mkdir(parents=True)
        write(folder / f"step-{last}", left)
        assert chosen(folder) == f"step-{10 * num_before}", moment
    write(folder / f"step-{last}", make(last))
    assert chosen(folder) == f"step-{last}"


def save_npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, a=np.arange(300.0), b=np.ones(9))


def save_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=np.arange(1000.0))


def save_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("create table weights (value real)")
        database.executemany("insert into weights values (?)", [(float(number),) for number in range(900)])
    database.close()


def save_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights", os.urandom(900))


def lz4_frame() -> bytes:
    """An uncompressed block of 60 bytes and the end mark (lz4_Frame_format.md)."""
    return b"\x04\x22\x4d\x18\x60\x40\x82" + struct.pack("<I", 0x80000000 | 60) + bytes(60) + bytes(4)


FILES: dict[str, Callable[[Path], Any]] = {
    "torch.save": lambda path: torch.save(WEIGHTS, path),
    "torch.save before 1.6": lambda path: torch.save(WEIGHTS, path, _use_new_zipfile_serialization=False),
    "safetensors": lambda path: save_file(WEIGHTS, path),
    "npz": save_npz,
    "HDF5": save_hdf5,
    "zip": save_zip,
    "SQLite": save_database,
    "Zstandard": lambda path: path.write_bytes(
        zstandard.ZstdCompressor(write_checksum=True).compress(os.urandom(3000))
    ),
    "LZ4": lambda path: path.write_bytes(lz4_frame()),
    "Flax": lambda path: path.with_suffix(".msgpack").write_bytes(msgpack_bytes()),
    "gzip": lambda path: path.write_bytes(zlib.compress(os.urandom(900), wbits=31)),
}


@pytest.mark.parametrize("writer", FILES)
def test_a_program_killed_at_any_byte_of_a_file_resumes_from_the_checkpoint_before(writer: str, tmp_path: Path) -> None:
    for step in (10, 20):
        FILES[writer](tmp_path / f"step-{step}")
    (whole,) = tmp_path.glob("step-20*")
    pattern, content = f"step-{{step}}{whole.suffix}", whole.read_bytes()
    assert chosen(tmp_path, pattern) == whole.name
    before = whole.name.replace("20", "10")
    for length in sorted({*range(4, min(len(content), 80)), *range(80, len(content), 97), len(content) - 1}):
        whole.write_bytes(content[:length])
        assert chosen(tmp_path, pattern) == before, f"{length} of {len(content)} bytes"


def test_a_real_distributed_checkpoint_is_resumed_only_with_all_its_files(tmp_path: Path) -> None:
    for step in (10, 20):
        save_to_folder(
            {"w": torch.ones(40), "n": {"step": step}}, checkpoint_id=str(tmp_path / f"step-{step}"), no_dist=True
        )
    files = {file.name: file.read_bytes() for file in (tmp_path / "step-20").iterdir()}
    entries = sorted(files.items(), key=lambda entry: entry[0] == ".metadata")
    for moment, left in kills(entries):
        shutil.rmtree(tmp_path / "step-20")
        (tmp_path / "step-20").mkdir()
        write(tmp_path / "step-20", left)
        assert chosen(tmp_path) == "step-10", moment


@pytest.mark.parametrize("spelling", ["{}-of-{}", "{:05d}-of-{:05d}", "{}_of_{}", "{}.of.{}", "{}of{}", "{} OF {}"])
@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_a_set_of_files_is_complete_with_all_of_them_however_their_numbers_are_written(
    spelling: str, count: int, tmp_path: Path
) -> None:
    for step in (10, 20):
        names = [f"w_{spelling.format(number, count)}.pt" for number in range(1, count + 1)]
        write(tmp_path / f"step-{step}", [(name, PT) for name in names])
    assert chosen(tmp_path) == "step-20"
    (tmp_path / "step-20" / names[0]).unlink()
    assert chosen(tmp_path) == "step-10"


def test_files_of_one_step_that_are_a_set_count_together(tmp_path: Path) -> None:
    for step in (10, 20):
        write(tmp_path, [(f"ckpt-{step}-{part}-of-2.pt", PT) for part in (1, 2)])
    assert chosen(tmp_path, "ckpt-{step}-*") in ("ckpt-20-1-of-2.pt", "ckpt-20-2-of-2.pt")
    (tmp_path / "ckpt-20-2-of-2.pt").write_bytes(PT[:99])
    assert chosen(tmp_path, "ckpt-{step}-*") in ("ckpt-10-1-of-2.pt", "ckpt-10-2-of-2.pt")


def test_names_that_differ_by_chance_are_no_reason_to_pass_over(tmp_path: Path) -> None:
    """A database of TensorStore gives its files random names."""
    for step, name in ((10, "a1b2c3d4e5"), (20, "weights-zebra"), (30, "weights-apple")):
        write(tmp_path / f"step-{step}", [(f"d/{name}", bytes(80)), ("model.pt", PT)])
    assert chosen(tmp_path) == "step-30"


def test_a_program_that_stopped_writing_a_file_is_compared_with_its_newest_checkpoints(tmp_path: Path) -> None:
    write(tmp_path / "step-10", [("model.pt", PT), ("best.pt", PT)])
    for step in (20, 30):
        write(tmp_path / f"step-{step}", [("model.pt", PT)])
    assert chosen(tmp_path) == "step-30"


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("epoch_10.pth", "epoch_10.pth"),
        ("/runs/a/epoch_10.pth\n", "epoch_10.pth"),
        ("10", "epoch_10.pth"),
        ("epoch_20.pth", "epoch_20.pth"),
        ("best_model_3.pth", "epoch_20.pth"),  # of other files
        ("", "epoch_20.pth"),
        ("v2.0", "epoch_20.pth"),
    ],
)
def test_a_file_that_names_the_last_complete_checkpoint_counts_if_it_names_one_of_these(
    text: str, taken: str, tmp_path: Path
) -> None:
    for epoch in (10, 20):
        (tmp_path / f"epoch_{epoch}.pth").write_bytes(PT)
    (tmp_path / "last_checkpoint").write_text(text)
    assert chosen(tmp_path, "epoch_{step}.pth") == taken
