"""Calls that write to or read from a path, and the argument that is the path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trainflow.client.programs.options import keywords, literal
from trainflow.client.programs.source import dotted, last_name

Kind = Literal["file", "folder", "checkpoint", "read"]
"""Action of a call at a path: writes a file, fills a folder, writes a checkpoint (a file or folder), reads."""

OWNER = -1
"""In place of a position: the path is the object whose method is called, as in `Path(out).mkdir()`."""


@dataclass(frozen=True)
class PathCall:
    """The path among the arguments of a call."""

    kind: Kind
    positions: tuple[int, ...] = (0,)
    names: tuple[str, ...] = ()
    """Names of the path's argument in a call; empty if it is only positional."""
    owners: tuple[str, ...] = ()
    """Modules whose function it is, if the function's name has other meanings."""


_TORCH = ("torch", "xm", "xser", "accelerator", "self.accelerator", "fabric", "self.fabric", "th", "paddle", "trainer")

CALLS: Mapping[str, tuple[PathCall, ...]] = {
    # checkpoints
    "save": (
        PathCall("checkpoint", (1,), ("f", "path"), _TORCH),
        PathCall("checkpoint", (0,), ("file", "checkpoint_id"), ("np", "numpy", "jnp", "onp")),
        PathCall("checkpoint", (0, 1), ("checkpoint_id", "path"), ("dcp", "dist_cp", "DCP", "ocp")),
        PathCall("checkpoint", (0, 1)),
    ),
    **dict.fromkeys(
        ("save_on_master", "save_on_main", "save_on_rank_0"), (PathCall("checkpoint", (1,), ("f", "path")),)
    ),
    "async_save": (PathCall("checkpoint", (1,), ("checkpoint_id",)),),
    "save_file": (PathCall("checkpoint", (1,), ("filename",)),),
    "save_model": (PathCall("checkpoint", (0, 1), ("output_dir", "filename")),),
    "save_pretrained": (PathCall("checkpoint", (0,), ("save_directory",)),),
    "save_state": (PathCall("checkpoint", (0,), ("output_dir",)),),
    "save_weights": (PathCall("checkpoint", (0,), ("filepath",)),),
    "savez": (PathCall("checkpoint", (0,), ("file",)),),
    "savez_compressed": (PathCall("checkpoint", (0,), ("file",)),),
    "save_checkpoint": (PathCall("folder", (0, 1), ("save_dir", "ckpt_dir", "checkpoint_dir", "filepath")),),
    "FileSystemWriter": (PathCall("checkpoint", (0,), ("path",)),),
    **dict.fromkeys(("rename", "replace", "move", "link"), (PathCall("checkpoint", (1,), ("dst",), ("os", "shutil")),)),
    **dict.fromkeys(("copy", "copy2", "copyfile", "copytree"), (PathCall("checkpoint", (1,), ("dst",), ("shutil",)),)),
    # folders of results
    "makedirs": (PathCall("folder", (0,), ("name", "path")),),
    "mkdir": (PathCall("folder", (0, OWNER), ("path",)),),
    "SummaryWriter": (PathCall("folder", (0,), ("log_dir", "logdir")),),
    "create_file_writer": (PathCall("folder", (0,), ("logdir",)),),
    "TensorBoard": (PathCall("folder", (0,), ("log_dir",)),),
    "TensorBoardLogger": (PathCall("folder", (0,), ("save_dir", "root_dir")),),
    "CSVLogger": (PathCall("folder", (0,), ("save_dir", "root_dir")),),
    "WandbLogger": (PathCall("folder", (), ("save_dir", "dir")),),
    "init": (PathCall("folder", (), ("dir",), ("wandb", "swanlab")),),
    "ModelCheckpoint": (PathCall("folder", (), ("dirpath", "filepath")),),
    "DiskSaver": (PathCall("folder", (0,), ("dirname",)),),
    "Trainer": (PathCall("folder", (), ("default_root_dir", "save_folder")),),
    "Accelerator": (PathCall("folder", (), ("project_dir", "logging_dir")),),
    "ProjectConfiguration": (PathCall("folder", (0,), ("project_dir", "logging_dir")),),
    **dict.fromkeys(
        ("TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig"),
        (PathCall("folder", (0,), ("output_dir", "logging_dir")),),
    ),
    "CheckpointManager": (PathCall("folder", (0,), ("directory",)),),
    # other files
    "dump": (PathCall("file", (1,), (), ("joblib", "torch")),),
    **dict.fromkeys(("to_csv", "to_json", "to_parquet", "to_pickle"), (PathCall("file", (0,)),)),
    **dict.fromkeys(("savefig", "savetxt", "imsave", "imwrite"), (PathCall("file", (0,), ("fname",)),)),
    "save_image": (PathCall("file", (1,), ("fp",)),),
    "FileHandler": (PathCall("file", (0,), ("filename",)),),
    "basicConfig": (PathCall("file", (), ("filename",)),),
    **dict.fromkeys(("write_text", "write_bytes"), (PathCall("file", (OWNER,)),)),
    # reading
    "load": (
        PathCall("read", (0,), ("f",), (*_TORCH, "np", "numpy", "jnp")),
        PathCall("read", (0, 1), ("checkpoint_id", "path", "ckpt_path")),
    ),
    **dict.fromkeys(
        ("load_state", "load_checkpoint", "restore_checkpoint", "load_from_checkpoint"),
        (PathCall("read", (0, 1), ("input_dir", "load_dir", "ckpt_dir", "checkpoint_path", "path", "filename")),),
    ),
    **dict.fromkeys(("load_file", "load_weights", "load_model", "restore"), (PathCall("read", (0, 1), ("filename",)),)),
    "from_pretrained": (PathCall("read", (0,), ("pretrained_model_name_or_path",)),),
    **dict.fromkeys(("isfile", "exists", "listdir", "isdir", "scandir"), (PathCall("read", (0,)),)),
    **dict.fromkeys(("glob", "rglob"), (PathCall("read", (0,), (), ("glob",)), PathCall("read", (OWNER,)))),
    "iterdir": (PathCall("read", (OWNER,)),),
    "train": (PathCall("read", (), ("resume_from_checkpoint",)),),
    "fit": (PathCall("read", (), ("ckpt_path",)),),
}
"""Calls by the function's last name. The first entry counts whose owner fits.

Sources: torch 2.13, safetensors 0.6, accelerate 1.11, transformers 5, Lightning 2.6, DeepSpeed 0.18, orbax 0.11.
"""

READS_BY_NAME = re.compile(r"^_?(load|resume|restore)(_\w+)?_(checkpoint|ckpt|snapshot)$")
"""Names of other functions that read a checkpoint, whatever their parameters are. They count where the program's files
do not contain the function."""

SEARCHES = frozenset({"listdir", "scandir", "glob", "rglob", "iterdir"})
"""Calls that look for what is in a folder."""

TESTS = frozenset({"isfile", "exists", "isdir"}) | SEARCHES
"""Calls that only look whether a path is there."""


def paths_in(call: ast.Call) -> Iterator[tuple[Kind, ast.expr]]:
    """The paths that a call writes to or reads from, each with what is done there."""
    name = last_name(call.func)
    if name == "open":
        yield from _opened(call)
        return
    owner = dotted(call.func).rpartition(".")[0]
    for entry in CALLS.get(name, ()):
        if not entry.owners or owner in entry.owners:
            yield from ((entry.kind, path) for path in _arguments(call, entry))
            return
    if name not in CALLS and READS_BY_NAME.search(name):
        yield from (("read", path) for path in (*call.args, *keywords(call).values()))


def _arguments(call: ast.Call, entry: PathCall) -> Iterator[ast.expr]:
    for position in entry.positions:
        if position == OWNER and isinstance(call.func, ast.Attribute):
            yield call.func.value
        elif 0 <= position < len(call.args) and not isinstance(call.args[position], ast.Starred):
            yield call.args[position]
    given = keywords(call)
    yield from (value for name, value in given.items() if name in entry.names)


def _opened(call: ast.Call) -> Iterator[tuple[Kind, ast.expr]]:
    is_method = isinstance(call.func, ast.Attribute) and dotted(call.func) not in (
        *("io.open", "gzip.open", "codecs.open", "fs.open", "bz2.open", "gfile.open", "tf.io.gfile.open"),
        *("fsspec.open", "smart_open.open"),
    )
    modes = call.args[0 if is_method else 1 :]
    mode = literal(modes[0] if modes else keywords(call).get("mode")) or "r"
    paths = [call.func.value] if is_method and isinstance(call.func, ast.Attribute) else call.args[:1]
    for path in paths:
        yield ("file" if str(mode)[:1] in ("w", "a", "x") else "read"), path
