"""BERT's weights in a checkpoint or in a folder of Hugging Face's: found, checked against a shape, and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.checkpoints import checkpoint_files
from trainer.checkpoints.checkpoint_files import CheckpointFile
from trainer.pretraining.config import ModelConfig, ModelShape
from trainer.runtime.errors import CheckpointInvalid, CheckpointNotFound

if TYPE_CHECKING:
    import torch
    from transformers.models.bert.modeling_bert import BertForPreTraining

HUGGING_FACE_CONFIG = "config.json"


@dataclass(frozen=True)
class Found:
    """Weights that exist."""

    path: Path
    """A checkpoint file, or a folder of Hugging Face's."""
    shape: ModelShape
    checkpoint: CheckpointFile | None = None
    """The verified checkpoint; None for a folder of Hugging Face's."""


def find(source: Path, *, option: str, say: Callable[[str], None]) -> Found:
    """Find weights in a training's output folder or in a folder of Hugging Face's.

    Raises:
        CheckpointNotFound: If the folder holds neither.
    """
    if (source / HUGGING_FACE_CONFIG).is_file():
        return hugging_face_in(source, option=option)
    return checkpoint_in(source, option=option, say=say)


def read_weights(found: Found, *, shape: ModelShape) -> Mapping[str, torch.Tensor]:
    """The weights by their names, in host memory.

    Args:
        found: The weights' location.
        shape: The shape of the model that loads them.

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
    from trainer.checkpoints import checkpoint

    weights: Mapping[str, torch.Tensor] = checkpoint.load(found.path)["model"]
    return weights


def checkpoint_in(run_dir: Path, *, option: str, say: Callable[[str], None]) -> Found:
    """The newest verified checkpoint of a training's output folder.

    Raises:
        CheckpointNotFound: If the folder holds none.
    """
    newest = checkpoint_files.newest_verified(run_dir, say=say)
    if newest is None:
        raise CheckpointNotFound(
            f"--{option} {run_dir} holds neither a verified checkpoint nor a model with {HUGGING_FACE_CONFIG}; "
            "give a training's output folder or one of Hugging Face's."
        )
    return Found(newest.path, ModelShape(**newest.record.model), newest)


def hugging_face_in(folder: Path, *, option: str) -> Found:
    """A BERT in a folder of Hugging Face's, whose configuration is one that the trainer's own models have.

    Raises:
        CheckpointNotFound: If the folder holds no model.
        CheckpointInvalid: If its configuration cannot be read, or is of another kind of model.
    """
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


def new_model(shape: ModelShape) -> BertForPreTraining:
    """Hugging Face's model of this shape, with random weights."""
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertForPreTraining

    dropout = ModelConfig().dropout
    return BertForPreTraining(
        BertConfig(**vars(shape), hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    )
