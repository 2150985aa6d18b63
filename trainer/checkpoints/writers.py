"""The libraries that write checkpoints: the files that show each, and the file that it writes last.

Each entry is taken from the library's source, which it names by repository, file and commit. To support another
library, add an entry here; `layouts.py` has what one entry cannot say.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A library's order of writing, in one folder."""

    name: str
    source: str
    """Place of its order of writing: repository, file, function, commit or version."""
    begins: str
    """Names of files and folders that it writes first; the folder is its own if one is there. A part in parentheses may
    be repeated in `last`."""
    last: str
    """Names of the file that it writes after all others, as an expression; `{0}` is the part of the first name."""
    shown: str
    """The same for people."""
    only: str = ".*"
    """All names that it writes; a folder with another one is of another program."""
    folder: str = ".*"
    """Names of its folders."""
    is_inner: bool = False
    """Whether its folder may be one inside of the checkpoint's."""

    def lacks(self, folder: str, names: Set[str]) -> str | None:
        """The last file, for people, if a folder of this library lacks it; None for other folders.

        Args:
            folder: Name of the folder.
            names: Names in it.
        """
        begun = [found for name in names if (found := re.fullmatch(self.begins, name))]
        if not begun or not re.fullmatch(self.folder, folder):
            return None
        if not all(re.fullmatch(self.only, name, re.DOTALL) for name in names):
            return None
        for found in begun:
            part = re.escape(found[1]) if found.re.groups and found[1] else ""
            last = re.compile(self.last.replace("{0}", part))
            if not any(last.fullmatch(name) for name in names):
                return self.shown.replace("{0}", found[1] if part else "")
        return None


_WEIGHTS = (
    r"(?:model|pytorch_model|adapter_model|diffusion_pytorch_model)(?:_\d+)?(?:[-.]\d+-of-\d+)?\.(?:safetensors|bin)"
    r"|pytorch_model_fsdp(?:_\d+)?(?:\.bin)?"
)
"""Names of weights as `save_pretrained`, the Trainer and accelerate give them, which write them first."""

_BEFORE_THE_LAST = (
    r".*\.(?:index\.json|txt|py|md|jinja|model)|(?:adapter_|generation_)?config\.json"
    r"|(?:tokenizer|vocab|added_tokens|special_tokens_map|\w*processor_config|\w*tokenizer_config)\.json"
    r"|(?:optimizer|scheduler|scaler|sampler|dl_state_dict)(?:_\d+)?\.(?:pt|bin)|optimizer_\d+|rng_state(?:_\d+)?\.pth"
    r"|latest|global_step\d+"
)
"""Names of what the Trainer and accelerate write between the weights and their last file."""

TRAINER_STATE = "trainer_state.json"

CERTAIN = (
    Writer(
        name="torch.distributed.checkpoint",
        source="pytorch/pytorch torch/distributed/checkpoint/filesystem.py FileSystemWriter.finish, 2.13.0",
        begins=r".*\.distcp",
        last=r"\.metadata",
        shown=".metadata",
    ),
    Writer(
        name="TensorFlow",
        source="tensorflow/tensorflow core/util/tensor_bundle/tensor_bundle.cc MergeBundles, 00f0938a: the index last",
        begins=r"(.+)\.data-\d+-of-\d+",
        last=r"{0}\.index",
        shown="{0}.index",
    ),
)
"""Libraries whose files nothing else has."""

LIKELY = (
    Writer(
        name="transformers' Trainer",
        source="huggingface/transformers trainer.py Trainer._save_checkpoint, 5.23.0",
        begins=r"training_args\.bin",
        last=re.escape(TRAINER_STATE),
        shown=TRAINER_STATE,
    ),
    Writer(
        name="transformers' Trainer or accelerate",
        source="huggingface/accelerate checkpointing.py save_accelerator_state, 1.15.0",
        begins=rf"{_WEIGHTS}|(?:adapter_)?config\.json",
        last=rf"{re.escape(TRAINER_STATE)}|random_states_\d+\.pkl",
        shown=f"{TRAINER_STATE} of the Trainer, or random_states_0.pkl of accelerate",
        only=rf"{_WEIGHTS}|{_BEFORE_THE_LAST}",
    ),
    Writer(
        name="accelerate",
        source="huggingface/accelerate checkpointing.py save_accelerator_state, 1.15.0",
        begins=r"optimizer\.bin",
        last=rf"random_states_\d+\.pkl|{re.escape(TRAINER_STATE)}",
        shown="random_states_0.pkl",
        only=rf"{_WEIGHTS}|{_BEFORE_THE_LAST}|[\w-]+|custom_checkpoint_\d+\.pkl",
    ),
    Writer(
        name="optimum-neuron's Trainer",
        source="huggingface/optimum-neuron optimum/neuron/trainers/transformers.py _save_checkpoint, as transformers'",
        begins=r"shards",
        last=re.escape(TRAINER_STATE),
        shown=TRAINER_STATE,
        only=rf"shards|{_WEIGHTS}|{_BEFORE_THE_LAST}|training_args\.bin|adapter_\w+|rng_state\S*",
    ),
    Writer(
        name="PaddleNLP's Trainer",
        source="PaddlePaddle/PaddleNLP paddlenlp/trainer/trainer.py Trainer._save_checkpoint, 000c9995",
        begins=r"optimizer(?:[.\w-]*)\.pdopt|model_state(?:[.\w-]*)\.pdparams",
        last=re.escape(TRAINER_STATE),
        shown=TRAINER_STATE,
    ),
    Writer(
        name="Megatron-Core",
        source="NVIDIA/Megatron-LM megatron/core/dist_checkpointing/serialization.py save, 00570959",
        begins=r"common\.pt",
        last=r"metadata\.json",
        shown="metadata.json",
        is_inner=True,
    ),
    Writer(
        name="nanotron",
        source="huggingface/nanotron src/nanotron/serialize/main.py save, 06468b63",
        begins=r"lr_scheduler|random",
        last=r"checkpoint_metadata\.json",
        shown="checkpoint_metadata.json",
        only=r"config\.yaml|model_config\.json|model|optimizer|lr_scheduler|random",
    ),
    Writer(
        name="ColossalAI",
        source="hpcaitech/ColossalAI applications/Colossal-LLaMA/colossal_llama/utils/ckpt_io.py save_checkpoint",
        begins=r"modeling|lr_scheduler",
        last=r"running_states\.json",
        shown="running_states.json",
        only=r"model(?:ing)?|optimizer|lr_scheduler|lora",
    ),
    Writer(
        name="AXLearn",
        source="apple/axlearn axlearn/common/checkpointer.py Checkpointer.save, 02fe9b4c",
        begins=r"gda",
        last=r"index",
        shown="index",
    ),
    Writer(
        name="Levanter",
        source="stanford-crfm/levanter src/levanter/checkpoint.py save_checkpoint, 00ecb15b",
        begins=r"training_key|opt_state",
        last=r"metadata\.json",
        shown="metadata.json",
        only=r"model|opt_state|training_key|step|is_trainable|mp|optimizer",
    ),
    Writer(
        name="diffusers' pipeline",
        source="huggingface/diffusers src/diffusers/pipelines/pipeline_utils.py save_pretrained, 007fbf0b",
        begins=r"unet|transformer|vae",
        last=r"model_index\.json|random_states_\d+\.pkl",
        shown="model_index.json, or random_states_0.pkl of accelerate",
        only=r"unet|unet_ema|transformer|vae|text_encoder(?:_\d)?|tokenizer(?:_\d)?|scheduler|feature_extractor"
        r"|safety_checker|image_encoder|optimizer\.bin|scheduler\.bin|scaler\.pt|sampler\.bin",
    ),
    Writer(
        name="Lightning's sharded strategies",
        source="Lightning-AI/pytorch-lightning src/lightning/fabric/strategies/fsdp.py save_checkpoint, 2.6.6",
        folder=r".*\.ckpt",
        begins=r"\.metadata",
        last=r"meta\.pt",
        shown="meta.pt",
    ),
    Writer(
        name="Orbax before 0.5",
        source="google/orbax checkpoint/orbax/checkpoint/_src/path/atomicity.py, 08ec2b42",
        begins=r"manifest\.ocdbt|_METADATA",
        last=r"_CHECKPOINT_METADATA|commit_success\.txt",
        shown="_CHECKPOINT_METADATA",
        is_inner=True,
    ),
)
"""Libraries whose first files other programs write as well: other checkpoints of the run decide
(docs/decisions/0075-checkpoint-completeness-by-content.md)."""

LATEST = re.compile(r"(?:latest|last)(?:_?checkpoint(?:ed)?)?(?:_iteration)?(?:\.txt)?", re.IGNORECASE)
"""Names of files beside the checkpoints that name the last complete one, by its number, name or path: Megatron-LM
(NVIDIA/Megatron-LM megatron/training/checkpointing.py save_checkpoint, 0032978f), verl with the same name
(trainer/ppo/ray_trainer.py `_save_checkpoint`), nanotron (src/nanotron/trainer.py save_checkpoint, 004a89ca),
DeepSpeed, Cosmos (`latest_checkpoint.txt`), mmengine (hooks/checkpoint_hook.py) and detectron2 (`last_checkpoint`)."""
