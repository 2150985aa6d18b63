"""Files that a checkpoint's folder must have, by what its other files say and by the library that wrote it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.checkpoints import pickles

UNFINISHED = re.compile(
    r"\.te?mp([._-]\w+|\d*)$|[-_]te?mp$|^\.?tmp[-_.]|\.(part|partial|incomplete)$|[-.]unfinished$|\.orbax-checkpoint-tmp"
)
"""Names that writers give to files and folders until they are complete."""

ONE_OF_MANY = re.compile(r"(?P<before>.*?)(?P<number>\d+)[-_]of[-_](?P<count>\d+)(?P<after>.*)")
"""Name of one file of several, such as `model-00001-of-00003.safetensors`."""

MAX_METADATA = 64 * 1024 * 1024
"""Largest `.metadata` whose content is compared with the files, in bytes."""

TRAINER_STATE = "trainer_state.json"
"""Last file of a checkpoint of transformers' Trainer (`Trainer._save_checkpoint`)."""

TRAINER_ARGUMENTS = "training_args.bin"
"""File of the same Trainer's, which it writes after the model."""

WEIGHTS = re.compile(
    r"(model|pytorch_model|adapter_model|diffusion_pytorch_model)(_\d+)?([-.]\d+-of-\d+)?\.(safetensors|bin)|pytorch_model_fsdp(_\d+)?(\.bin)?"
)
"""Names of weights as `save_pretrained`, the Trainer and accelerate give them, which write them first."""

CONFIGURATIONS = {"config.json", "adapter_config.json"}
"""Files that `save_pretrained` writes before or after the weights, depending on the version."""

BEFORE_THE_LAST = re.compile(
    r".*\.(index\.json|txt|py|md|jinja|model)|(adapter_|generation_)?config\.json"
    r"|(tokenizer|vocab|added_tokens|special_tokens_map|\w*processor_config|\w*tokenizer_config)\.json"
    r"|(optimizer|scheduler|scaler|sampler|dl_state_dict)(_\d+)?\.(pt|bin)|optimizer_\d+|rng_state(_\d+)?\.pth"
    r"|latest|global_step\d+"
)
"""Names of what the Trainer and accelerate write between the weights and their last file."""

ACCELERATE_STATE = re.compile(r"random_states_\d+\.pkl")
"""Last file of accelerate's `save_state` (accelerate/checkpointing.py, `save_accelerator_state`)."""

ORBAX_METADATA = "_CHECKPOINT_METADATA"
"""File of Orbax with the times when a checkpoint was begun and committed."""

ORBAX_COMMIT = "commit_success.txt"
"""Last file of Orbax on storage without renaming (orbax/checkpoint/path/atomicity.py)."""

DEEPSPEED_OPTIMIZER = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_?optim_states\.pt")
DEEPSPEED_SHARD = re.compile(r"zero_pp_rank_(\d+)_mp_rank_(\d+)_model_states\.pt")
DEEPSPEED_MODEL = re.compile(r"(?:zero_pp_rank_\d+_)?mp_rank_\d+_model_states\.pt")
"""Files of DeepSpeed's engine (deepspeed/runtime/engine.py, `_get_zero_ckpt_name`, `_get_ckpt_name`)."""

DEEPSPEED_LATEST = "latest"
"""File beside DeepSpeed's folders that names the last complete one; rank 0 writes it after all ranks have written."""

MEGATRON_LATEST = "latest_checkpointed_iteration.txt"
"""The same of Megatron-LM."""


def what_is_missing(path: Path, inside: Sequence[Path]) -> str | None:
    """The file that a folder lacks according to its own files, as a clause; None if no file is known to be missing.

    Args:
        path: The checkpoint's folder.
        inside: All files and folders below it.

    Raises:
        OSError: If a file cannot be read.
    """
    names: dict[Path, set[str]] = defaultdict(set)
    for each in inside:
        names[each.parent].add(each.name)
    return next(_missing(path, inside, names), None)


def lacks_its_last_file(path: Path) -> bool:
    """Whether a folder holds what the Trainer or accelerate write first, and neither their last file nor others.

    So does the whole checkpoint of a program that saves weights and nothing else.
    """
    names = {each.name for each in path.iterdir()}
    if TRAINER_STATE in names or any(map(ACCELERATE_STATE.fullmatch, names)):
        return False
    if TRAINER_ARGUMENTS in names or _is_orbax_without_mark(path, names):
        return True
    begins = bool(names & CONFIGURATIONS) or any(map(WEIGHTS.fullmatch, names))
    return begins and all(WEIGHTS.fullmatch(name) or BEFORE_THE_LAST.fullmatch(name) for name in names)


def _is_orbax_without_mark(path: Path, names: set[str]) -> bool:
    """Whether it is Orbax's without a mark of the commit: of an old version, or on storage without renaming."""
    data = ("manifest.ocdbt", "_METADATA")
    if ORBAX_METADATA in names or ORBAX_COMMIT in names:
        return False
    return any((folder / name).exists() for folder in (path, *map(path.joinpath, names)) for name in data)


def kinds(path: Path) -> frozenset[str]:
    """The names in a folder without their numbers, which differ with the step and the number of processes."""
    return frozenset(re.sub(r"\d+", "#", each.name) for each in path.iterdir())


def _missing(path: Path, inside: Sequence[Path], names: Mapping[Path, set[str]]) -> Iterator[str]:
    yield from _unfinished(path, inside)
    yield from _behind_the_latest(path)
    for folder, here in names.items():
        yield from _unfinished_set(here)
        yield from _missing_shards(folder, here)
        yield from _distributed(folder, here)
        yield from _deepspeed(path, folder, here)
        yield from _orbax(folder, here)
        yield from _neuronx_distributed(folder, here)


def _unfinished(path: Path, inside: Sequence[Path]) -> Iterator[str]:
    """Files under the name of a writer that has not ended, and NeMo's mark beside the checkpoint."""
    yield from (f"{each.name} is the name of an unfinished file" for each in inside if UNFINISHED.search(each.name))
    mark = path.with_name(f"{path.name.removesuffix('.ckpt')}-unfinished")
    if mark.exists():
        yield f"{mark.name} is beside it"


def _unfinished_set(here: set[str]) -> Iterator[str]:
    """Describe incomplete grids of ranks: names with two such numbers, where each rank writes only some files."""
    numbers: dict[tuple[str, int, str], set[int]] = defaultdict(set)
    for name in here:
        found = ONE_OF_MANY.fullmatch(name)
        if found and not ONE_OF_MANY.search(found["after"]):
            numbers[found["before"], int(found["count"]), found["after"]].add(int(found["number"]))
    for (before, count, after), there in numbers.items():
        if len(there) < count and not re.search(r"(epoch|step|iter)\w*[-_=]?$", before):
            yield f"{len(there)} of {count} files {before}*{after} are there"


def _missing_shards(folder: Path, here: set[str]) -> Iterator[str]:
    for index in (folder / name for name in sorted(here) if name.endswith(".index.json")):
        try:
            shards = set(json.loads(index.read_bytes())["weight_map"].values())
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            continue  # another file of this name; that it is JSON is looked at elsewhere
        missing = sorted(str(shard) for shard in shards if not (folder / str(shard)).is_file())
        if missing:
            yield f"{index.name} names {missing[0]}, which is missing"


def _distributed(folder: Path, here: set[str]) -> Iterator[str]:
    """`torch.distributed.checkpoint` writes `.metadata` last, with the place of every tensor."""
    metadata = folder / ".metadata"
    if metadata.name not in here:
        if any(name.endswith(".distcp") for name in here):
            yield f"{folder.name} has no .metadata"
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
        elif folder != path and not (folder.parent / latest.read_text(errors="replace").strip()).is_dir():
            yield f"DeepSpeed's file {DEEPSPEED_LATEST} names a folder that is missing"
    if folder == path:
        yield from _is_newer_than(latest, path)


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
    if re.fullmatch(r"iter_\d+", path.name):
        yield from _is_newer_than(path.parent / MEGATRON_LATEST, path)


def _is_newer_than(latest: Path, path: Path) -> Iterator[str]:
    """A checkpoint with a higher number than the last complete one: cut off, or of an attempt that was given up."""
    text = latest.read_text(errors="replace") if latest.is_file() else ""
    complete, own = re.search(r"(\d+)\s*$", text), re.search(r"(\d+)$", path.name)
    if complete and own and int(own[1]) > int(complete[1]):
        yield f"{latest.name}, which is written last, still names {text.strip()}"


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
    """neuronx-distributed begins a folder with the file `checkpoint` and ends it with `done`."""
    if "checkpoint" in here and (folder / "checkpoint").is_file() and here & {"model", "optim"} and "done" not in here:
        yield f"neuronx-distributed's file {folder.name}/done is missing"
