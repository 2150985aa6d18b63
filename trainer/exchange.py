"""Weights from and to Hugging Face.

`python -m trainer.exchange export --run_dir DIR --folder DIR` writes the newest verified checkpoint as a folder that
`BertForPreTraining.from_pretrained` loads; `… import` makes such a folder the checkpoint of step 0 that a training in
`run_dir` starts from. Weights are the same either way, and logits but for rounding.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer import arguments, checkpoint_files, program
from trainer.checkpoint_files import CheckpointFile
from trainer.config import ModelConfig, ModelShape
from trainer.environment import Environment
from trainer.errors import CheckpointInvalid, CheckpointNotFound, ConfigInvalid, StorageFailed

if TYPE_CHECKING:
    import torch
    from transformers.models.bert.modeling_bert import BertForPreTraining

HUGGING_FACE_CONFIG = "config.json"
DIRECTIONS = ("export", "import")


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig:
    """Where from and where to."""

    run_dir: Path
    """A training's output folder, with its checkpoints."""
    folder: Path
    """A folder as Hugging Face's `save_pretrained` writes it and `from_pretrained` reads it."""


@dataclass(frozen=True)
class Found:
    """Weights that exist."""

    path: Path
    """A checkpoint file, or a folder of Hugging Face's."""
    shape: ModelShape
    checkpoint: CheckpointFile | None = None
    """What the file is, verified; None of a folder."""


def main(argv: Sequence[str], _environment: Environment) -> Mapping[str, Any]:
    """Export or import."""
    program.raise_on_sigterm()
    if not argv or argv[0] not in DIRECTIONS:
        raise ConfigInvalid("The direction is missing; the first argument is either export or import.")
    config = arguments.parse(ExchangeConfig, argv[1:], program=f"trainer.exchange {argv[0]}")
    if argv[0] == "export":
        return export_weights(config.run_dir, config.folder)
    return import_weights(config.folder, config.run_dir)


def export_weights(run_dir: Path, folder: Path) -> Mapping[str, Any]:
    """Write the newest verified checkpoint of a run as Hugging Face's model.

    Raises:
        CheckpointNotFound: If there is none.
        StorageFailed: If the folder cannot be written.
    """
    found = _checkpoint_in(run_dir, option="run_dir", say=_say)
    model = _model(found.shape)
    weights = weights_of(found, shape=found.shape)
    model.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    try:
        model.save_pretrained(folder)
    except OSError as error:
        raise StorageFailed(f"--folder {folder} cannot be written ({error}); give another folder.") from error
    return {"checkpoint": str(found.path), "folder": str(folder)}


def import_weights(folder: Path, run_dir: Path) -> Mapping[str, Any]:
    """Make Hugging Face's model the beginning of a training.

    Raises:
        CheckpointNotFound: If there is no model in the folder.
        CheckpointInvalid: If it is no BERT for pretraining of the kind that the trainer makes.
        ConfigInvalid: If the training has begun already.
    """
    from trainer import checkpoint
    from trainer.checkpoint import Progress
    from trainer.fingerprint import Fingerprint

    found = _hugging_face_in(folder, option="folder")
    if list((run_dir / checkpoint_files.FOLDER).glob("step-*.pt")):
        raise ConfigInvalid(f"--run_dir {run_dir} holds checkpoints already; give the folder of a new training.")
    state = {"model": weights_of(found, shape=found.shape), "optimizer": None}
    written = checkpoint.write(run_dir, state, Progress(), Fingerprint(vars(found.shape), settings={}))
    return {"checkpoint": str(written.path), "folder": str(folder)}


def find(source: Path, *, option: str, say: Callable[[str], None]) -> Found:
    """Weights in a training's output folder or in one of Hugging Face's.

    Raises:
        CheckpointNotFound: If the folder holds neither.
    """
    if (source / HUGGING_FACE_CONFIG).is_file():
        return _hugging_face_in(source, option=option)
    return _checkpoint_in(source, option=option, say=say)


def weights_of(found: Found, *, shape: ModelShape) -> Mapping[str, torch.Tensor]:
    """The weights by their names, in host memory.

    Args:
        found: Where they are.
        shape: What the model that takes them looks like.

    Raises:
        CheckpointInvalid: If they are those of another shape, or the file cannot be read.
    """
    for name, value in vars(found.shape).items():
        if value != vars(shape)[name]:
            raise CheckpointInvalid(
                f"The weights in {found.path} were made with --{name} {value} and this run asks for "
                f"{vars(shape)[name]}; give the same."
            )
    if found.path.is_dir():
        return _read_hugging_face(found.path)
    from trainer import checkpoint

    weights: Mapping[str, torch.Tensor] = checkpoint.load(found.path)["model"]
    return weights


def _checkpoint_in(run_dir: Path, *, option: str, say: Callable[[str], None]) -> Found:
    newest = checkpoint_files.newest_verified(run_dir, say=say)
    if newest is None:
        raise CheckpointNotFound(
            f"--{option} {run_dir} holds neither a verified checkpoint nor a model with {HUGGING_FACE_CONFIG}; "
            "give a training's output folder or one of Hugging Face's."
        )
    return Found(newest.path, ModelShape(**newest.record.model), newest)


def _hugging_face_in(folder: Path, *, option: str) -> Found:
    """A BERT whose configuration is one that the trainer's own models have."""
    if not (folder / HUGGING_FACE_CONFIG).is_file():
        raise CheckpointNotFound(
            f"--{option} {folder} holds no {HUGGING_FACE_CONFIG}; give a folder of Hugging Face's."
        )
    from transformers.models.bert.configuration_bert import BertConfig

    try:
        config = BertConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise CheckpointInvalid(f"{folder / HUGGING_FACE_CONFIG} cannot be read ({error}); export it again.") from error
    ours = BertConfig()
    for name in ("model_type", "hidden_act", "type_vocab_size", "layer_norm_eps"):
        if getattr(config, name) != getattr(ours, name):
            raise CheckpointInvalid(
                f"The model in {folder} has {name} {getattr(config, name)!r} and the trainer's have "
                f"{getattr(ours, name)!r}; only such a BERT can be imported."
            )
    return Found(folder, ModelShape(**{name: getattr(config, name) for name in ModelShape.__dataclass_fields__}))


def _read_hugging_face(folder: Path) -> Mapping[str, torch.Tensor]:
    from transformers.models.bert.modeling_bert import BertForPreTraining

    try:
        # In the precision of the file, which is the default of transformers 5 and not of 4.
        model, loading = BertForPreTraining.from_pretrained(
            folder, local_files_only=True, output_loading_info=True, dtype="auto"
        )
    except Exception as error:
        raise CheckpointInvalid(f"The weights in {folder} cannot be read ({error}); export them again.") from error
    missing = sorted(loading["missing_keys"])
    if missing:
        raise CheckpointInvalid(
            f"The model in {folder} lacks {missing[0]!r}; save a BertForPreTraining, with both of its heads."
        )
    weights: Mapping[str, torch.Tensor] = model.state_dict()
    return weights


def _model(shape: ModelShape) -> BertForPreTraining:
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertForPreTraining

    dropout = ModelConfig().dropout
    return BertForPreTraining(
        BertConfig(**vars(shape), hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    )


def _say(sentence: str) -> None:
    print(sentence, flush=True)


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
