"""Export weights to Hugging Face's format, or import them.

`python -m trainer.exchange export --run_dir DIR --folder DIR` writes the newest verified checkpoint as a folder that
`BertForPreTraining.from_pretrained` loads; `… import` makes such a folder the checkpoint of step 0 that a training in
`run_dir` starts from. Weights stay the same in both directions; logits differ by rounding only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.checkpoints import checkpoint_files
from trainer.pretraining import hugging_face
from trainer.runtime import arguments, program
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid, StorageFailed

DIRECTIONS = ("export", "import")


@dataclass(frozen=True, kw_only=True)
class ExchangeConfig:
    """The run's folder and Hugging Face's folder."""

    run_dir: Path
    """A training's output folder, with its checkpoints."""
    folder: Path
    """A folder as Hugging Face's `save_pretrained` writes it and `from_pretrained` reads it."""


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
        CheckpointNotFound: If the run does not have a verified checkpoint.
        StorageFailed: If the folder cannot be written.
    """
    found = hugging_face.checkpoint_in(run_dir, option="run_dir", say=_say)
    model = hugging_face.new_model(found.shape)
    weights = hugging_face.read_weights(found, shape=found.shape)
    model.to(next(iter(weights.values())).dtype).load_state_dict(weights)
    try:
        model.save_pretrained(folder)
    except OSError as error:
        raise StorageFailed(f"--folder {folder} cannot be written ({error}); give another folder.") from error
    return {"checkpoint": str(found.path), "folder": str(folder)}


def import_weights(folder: Path, run_dir: Path) -> Mapping[str, Any]:
    """Write Hugging Face's model as the first checkpoint of a training.

    Raises:
        CheckpointNotFound: If the folder does not contain a model.
        CheckpointInvalid: If it is not a BERT for pretraining of the trainer's kind.
        ConfigInvalid: If the training has begun already.
    """
    from trainer.checkpoints import checkpoint
    from trainer.checkpoints.checkpoint import Progress
    from trainer.checkpoints.fingerprint import Fingerprint

    found = hugging_face.hugging_face_in(folder, option="folder")
    if list((run_dir / checkpoint_files.FOLDER).glob("step-*.pt")):
        raise ConfigInvalid(f"--run_dir {run_dir} holds checkpoints already; give the folder of a new training.")
    state = {"model": hugging_face.read_weights(found, shape=found.shape), "optimizer": None}
    written = checkpoint.write(run_dir, state, Progress(), Fingerprint(vars(found.shape), settings={}))
    return {"checkpoint": str(written.path), "folder": str(folder)}


def _say(sentence: str) -> None:
    print(sentence, flush=True)


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
