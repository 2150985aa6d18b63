"""Files that a checkpoint's folder must have, by what its other files say and by the library that wrote it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.checkpoints import file_formats, pickles
from trainer.checkpoints.writers import CERTAIN, LATEST, LIKELY

UNFINISHED = re.compile(
    r"[._-]te?mp([._-][\w.-]*|\d*)$|^\.?tmp[-_.]|^tmp[a-z0-9_]{8}$|[._-]temp[._-][0-9a-f]{8,}"
    r"|[._-](part|partial|incomplete|unfinished|in[-_]?progress|writing|saving|pending|download|_copying_)$"
    r"|\.orbax-checkpoint-tmp|~$",
    re.IGNORECASE,
)
"""Names that writers give to files and folders until they are complete."""

ONE_OF_MANY = re.compile(
    r"(?P<before>.*?)(?P<number>\d+)[-_. ]?of[-_. ]?(?P<count>\d+)(?P<after>.*)", re.IGNORECASE | re.DOTALL
)
"""Name of one file of several, such as `model-00001-of-00003.safetensors` or `part1of3`."""

MAX_METADATA = 64 * 1024 * 1024
"""Largest `.metadata` whose content is compared with the files, in bytes."""

MAX_NAME = 255
"""Characters of a file name."""

MAX_TEXT = 4096
"""Bytes of a file beside the checkpoints that are read: it holds a name."""

ORBAX_METADATA = "_CHECKPOINT_METADATA"
"""File of Orbax with the times when a checkpoint was begun and committed."""

DEEPSPEED_OPTIMIZER = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_?optim_states\.pt")
DEEPSPEED_SHARD = re.compile(r"zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt")
DEEPSPEED_MODEL = re.compile(r"(?:zero_pp_rank_\d+_)?mp_rank_\d+_model_states\.pt")
"""Files of DeepSpeed's engine (deepspeed/runtime/engine.py, `_get_zero_ckpt_name`, `_get_ckpt_name`)."""

DEEPSPEED_LATEST = "latest"
"""File beside DeepSpeed's folders that names the last complete one; rank 0 writes it after all ranks have written."""

NEURONX_BEGUN, NEURONX_DONE = "checkpoint", "done"
"""First and last file of neuronx-distributed, both with the text `1` (aws-neuron/neuronx-distributed src/
neuronx_distributed/trainer/checkpoint.py, `CheckpointIOState`, 0f2a90f6)."""

_NUMBERED = re.compile(r"(|.*\D)(\d{1,15})((?:\.[A-Za-z]\w*)*)", re.DOTALL)
"""A name that ends with a number, before the suffixes of a file."""

RANK_FOLDER = re.compile(r"(?:mp|tp)_rank_\d+(?:_pp_rank_\d+)?(?:_\d+)?")
"""Folder of one rank of NeMo and Megatron-LM."""


def what_is_missing(path: Path, inside: Sequence[Path]) -> str | None:
    """The file that a checkpoint lacks according to its own files, as a clause; None if none is known to be missing.

    Args:
        path: The checkpoint, a file or a folder.
        inside: All files and folders below it.

    Raises:
        OSError: If a file cannot be read.
    """
    names: dict[Path, set[str]] = {path: set()} if path.is_dir() else {}
    for each in inside:
        names.setdefault(each.parent, set()).add(each.name)
    return next(_missing(path, inside, names), None)


def last_file_missing(path: Path) -> str | None:
    """The last file of a library that may have written a folder, for people, if it is not there.

    So does the whole checkpoint of a program that saves weights and nothing else.
    """
    names = {each.name for each in path.iterdir()}
    if _is_committed_by_orbax(names):
        return None
    inner = [(each.name, {one.name for one in each.iterdir()}) for each in path.iterdir() if each.is_dir()]
    missing = (
        writer.lacks(*folder)
        for writer in LIKELY
        for folder in ((path.name, names), *(inner if writer.is_inner else ()))
    )
    return next(filter(None, missing), None)


def _is_committed_by_orbax(names: set[str]) -> bool:
    """Whether it is Orbax's with a mark of its own, beside folders with others' files."""
    return ORBAX_METADATA in names or "commit_success.txt" in names


def all_parts(path: Path) -> list[Path]:
    """The files that make one checkpoint together with a file: the others of `n-of-m`, and the data of an index."""
    before, _, suffix = path.name.rpartition(".")
    one = ONE_OF_MANY.fullmatch(path.name)
    if one is None and suffix != "index":
        return [path]
    with_name = (each for each in path.parent.iterdir() if each.is_file())
    if one is None:
        return [path, *(each for each in with_name if each.name.startswith(f"{before}.data-"))]
    return [each for each in with_name if _is_of_set(each.name, one)]


def _is_of_set(name: str, one: re.Match[str]) -> bool:
    other = ONE_OF_MANY.fullmatch(name)
    return other is not None and all(other[part] == one[part] for part in ("before", "count", "after"))


def _missing(path: Path, inside: Sequence[Path], names: Mapping[Path, set[str]]) -> Iterator[str]:
    yield from _unfinished(path, inside)
    yield from _behind_the_latest(path)
    if path.is_file():
        yield from _unfinished_set({part.name for part in all_parts(path)})
    for folder, here in names.items():
        yield from _unfinished_set(here)
        yield from _missing_shards(folder, here)
        missing = (writer.lacks(folder.name, here) for writer in CERTAIN)
        yield from (f"{folder.name} has no {last}" for last in missing if last)
        yield from _distributed(folder, here)
        yield from _deepspeed(path, folder, here)
        yield from _orbax(folder, here)
        yield from _neuronx_distributed(folder, here)


def _unfinished(path: Path, inside: Sequence[Path]) -> Iterator[str]:
    """Files under the name of a writer that has not ended, and NeMo's mark beside the checkpoint."""
    yield from (f"{each.name} is the name of an unfinished file" for each in inside if UNFINISHED.search(each.name))
    name = path.name.removesuffix(".nemo").removesuffix(".ckpt").removesuffix("-EMA")
    folders = (path.parent, path.parent.parent) if RANK_FOLDER.fullmatch(path.parent.name) else (path.parent,)
    marks = (folder / f"{name}-unfinished" for folder in folders)
    yield from (f"{mark.name} is beside it" for mark in marks if mark.exists())


def _unfinished_set(here: set[str]) -> Iterator[str]:
    """Describe incomplete grids of ranks: names with two such numbers, where each rank writes only some files."""
    numbers: dict[tuple[str, int, str], set[int]] = defaultdict(set)
    for name in here:
        found = ONE_OF_MANY.fullmatch(name)
        if found and not ONE_OF_MANY.search(found["after"]):
            numbers[found["before"], int(found["count"]), found["after"]].add(int(found["number"]))
    for (before, count, after), there in numbers.items():
        if len(there) < count and not re.search(r"(epoch|step|iter)\w*[-_=]?$", before, re.IGNORECASE):
            yield f"{len(there)} of {count} files {before}*{after} are there"


def _missing_shards(folder: Path, here: set[str]) -> Iterator[str]:
    """Shards and components that an index names: of `save_pretrained`, and of a pipeline of diffusers."""
    for name in sorted(here):
        if not (folder / name).is_file():
            continue
        if name.endswith(".index.json"):
            named: Any = _read_json(folder / name).get("weight_map")
            parts = set(named.values()) if isinstance(named, dict) else set()
        elif name == "model_index.json":
            described = _read_json(folder / name).items()
            parts = {part for part, by in described if isinstance(by, list) and by and by[0] is not None}
        else:
            continue
        missing = sorted(str(part) for part in parts if isinstance(part, str) and not (folder / part).exists())
        if missing:
            yield f"{name} names {missing[0]}, which is missing"


def _read_json(file: Path) -> dict[str, Any]:
    """The object in a file; empty for another content, which is looked at elsewhere."""
    try:
        document = json.loads(file.read_bytes()) if file.stat().st_size <= file_formats.MAX_JSON else {}
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _distributed(folder: Path, here: set[str]) -> Iterator[str]:
    """`torch.distributed.checkpoint` writes `.metadata` last, with the place of every tensor."""
    metadata = folder / ".metadata"
    if metadata.name not in here or not metadata.is_file():
        return
    size = metadata.stat().st_size
    if size == 0:
        yield f"{folder.name}/.metadata is empty"
    if not 0 < size <= MAX_METADATA:
        return
    try:
        ends = pickles.ends_by_file(metadata)
    except ValueError:
        yield f"{folder.name}/.metadata ends too early"
        return
    for name, end in ends.items():
        if not (folder / name).is_file() or (folder / name).stat().st_size < end:
            yield f"{folder.name}/{name} is missing or shorter than .metadata says"


def _deepspeed(path: Path, folder: Path, here: set[str]) -> Iterator[str]:
    models = sorted(filter(DEEPSPEED_MODEL.fullmatch, here))
    optimizers, shards = _ranks(DEEPSPEED_OPTIMIZER, here), _ranks(DEEPSPEED_SHARD, here)
    if not models and not optimizers:
        return
    said = pickles.saved_by_torch(folder / models[0]) if models else None
    size = _world_size(said)
    for ranks in (optimizers, shards):
        grid = {(pp, mp) for pp in {pp for pp, _ in ranks} for mp in {mp for _, mp in ranks}}
        ends_early = any(set(part) != set(range(max(part) + 1)) for part in zip(*ranks, strict=True))
        if ranks != grid or ends_early or (ranks and size is not None and len(ranks) < size):
            yield f"{folder.name} has {len(ranks)} of {size or 'more'} files of DeepSpeed's ranks"
    if size is not None and not optimizers and _zero_stage(said):
        yield f"{folder.name} has no optimizer states of DeepSpeed's ranks"
    latest = folder.parent / DEEPSPEED_LATEST
    if folder != path or size is None:
        if not latest.is_file():
            yield f"DeepSpeed's file {DEEPSPEED_LATEST}, which is written last, is missing"
        elif folder != path and not (folder.parent / (_read_text(latest) or ".")).is_dir():
            yield f"DeepSpeed's file {DEEPSPEED_LATEST} names a folder that is missing"


def _ranks(pattern: re.Pattern[str], here: set[str]) -> set[tuple[int, int]]:
    found = filter(None, map(pattern.fullmatch, here))
    return {(int(each[1]), int(each[2])) for each in found}


def _world_size(said: Any) -> int | None:
    """Number of DeepSpeed's ranks with states of their own, as a file of the model states says it."""
    if not isinstance(said, dict):
        return None
    sizes = said.get("dp_world_size"), said.get("mp_world_size", 1)
    return sizes[0] * sizes[1] if isinstance(sizes[0], int) and isinstance(sizes[1], int) else None


def _zero_stage(said: Any) -> int:
    """Stage of ZeRO in DeepSpeed's configuration; 0 if it is unknown or off."""
    try:
        return int(said["ds_config"]["zero_optimization"]["stage"])
    except (TypeError, LookupError, ValueError):
        return 0


def _behind_the_latest(path: Path) -> Iterator[str]:
    """A checkpoint with a higher number than the last complete one: cut off, or of an attempt that was given up."""
    own = _NUMBERED.fullmatch(path.name)
    if own is None:
        return
    for latest in (each for each in path.parent.iterdir() if LATEST.fullmatch(each.name)):
        text = _read_text(latest).rpartition("/")[2][-MAX_NAME:]
        complete = _NUMBERED.fullmatch(text)
        names_one = complete and (text.isdecimal() or (complete[1], complete[3]) == (own[1], own[3]))
        if complete and names_one and int(own[2]) > int(complete[2]):
            yield f"{latest.name}, which is written last, still names {text}"


def _read_text(file: Path) -> str:
    """A line of text; empty without the file."""
    if not file.is_file():
        return ""
    with file.open("rb") as content:
        return content.read(MAX_TEXT).decode(errors="replace").replace("\0", "").strip()


def _orbax(folder: Path, here: set[str]) -> Iterator[str]:
    """Orbax enters the time of the commit last and merges the processes' parts before."""
    if ORBAX_METADATA in here:
        try:
            said = json.loads((folder / ORBAX_METADATA).read_bytes())
        except (ValueError, RecursionError):
            said = {"commit_timestamp_nsecs": None}
        if isinstance(said, dict) and said.get("commit_timestamp_nsecs", 1) is None:
            yield f"{folder.name}/{ORBAX_METADATA} has no time of the commit"
    if any(name.startswith("ocdbt.process_") for name in here) and "manifest.ocdbt" not in here:
        yield f"{folder.name} has parts of processes and no manifest.ocdbt"


def _neuronx_distributed(folder: Path, here: set[str]) -> Iterator[str]:
    """neuronx-distributed, and with it optimum-neuron below `shards`, marks a folder as begun and as done."""
    if NEURONX_BEGUN not in here or NEURONX_DONE in here or not (folder / NEURONX_BEGUN).is_file():
        return
    if here & {"model", "optim"} or _read_text(folder / NEURONX_BEGUN) in ("", "1"):
        yield f"neuronx-distributed's file {folder.name}/{NEURONX_DONE} is missing"
