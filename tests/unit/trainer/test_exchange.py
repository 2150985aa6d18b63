"""Weights go to Hugging Face and come back, and the logits stay the same to the last bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers.models.bert.configuration_bert import BertConfig
from transformers.models.bert.modeling_bert import BertForPreTraining, BertModel

from tests.unit.trainer.test_learning import TINY
from trainer import exchange
from trainer.checkpoints import checkpoint, checkpoint_files
from trainer.checkpoints.checkpoint import Progress
from trainer.checkpoints.fingerprint import Fingerprint
from trainer.pretraining import hugging_face
from trainer.pretraining.batches import MicroBatch
from trainer.pretraining.bert import BertPretraining
from trainer.pretraining.config import ModelConfig
from trainer.runtime.environment import Environment
from trainer.runtime.errors import CheckpointInvalid, CheckpointNotFound, ConfigInvalid

TOKENS = torch.arange(5, 15).reshape(1, 10)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        answer = model.eval()(TOKENS)
    return torch.cat([answer.prediction_logits.flatten(), answer.seq_relationship_logits.flatten()])


def our_logits(model: BertPretraining) -> torch.Tensor:
    nothing = torch.zeros_like(TOKENS)
    batch = MicroBatch(TOKENS, nothing, torch.ones_like(TOKENS), nothing, nothing, nothing[:, 0])
    with torch.no_grad():
        table_VH = model.eval().bert.embeddings.word_embeddings.weight
        heads, hidden_BSH = model.cls, model.bert.hidden_states(batch, table_VH)
        pooled_BH = model.bert.pooler(hidden_BSH)
        return torch.cat(
            [heads.predictions(hidden_BSH, table_VH).flatten(), heads.seq_relationship(pooled_BH).flatten()]
        )


def trained(run_dir: Path, *, step: int = 7, dtype: torch.dtype = torch.float32) -> BertPretraining:
    """A run's folder with a checkpoint of a model whose biases are not zero."""
    torch.manual_seed(0)
    model = BertPretraining(TINY)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    model.to(dtype)
    state = {"model": model.state_dict(), "optimizer": None}
    training = Fingerprint(vars(TINY.shape), {"seed": 0, "optimizer": "lamb"})
    checkpoint.write(run_dir, state, Progress(step=step), training)
    return model


def exchanged(direction: str, run_dir: Path, folder: Path, environment: Environment) -> None:
    exchange.main([direction, "--run_dir", str(run_dir), "--folder", str(folder)], environment)


ROUNDING = {torch.float32: 1e-6, torch.bfloat16: 2e-2}
"""Sums in another order."""


@pytest.mark.parametrize("dtype", ROUNDING)
def test_logits_survive_the_way_to_hugging_face_and_back(
    tmp_path: Path, outside_a_pod: Environment, dtype: torch.dtype
) -> None:
    model = trained(tmp_path / "run", dtype=dtype)
    exchanged("export", tmp_path / "run", tmp_path / "hf", outside_a_pod)
    theirs = BertForPreTraining.from_pretrained(tmp_path / "hf", dtype="auto")
    assert theirs.dtype is dtype
    written = model.state_dict()
    assert all(torch.equal(value, written[name]) for name, value in theirs.state_dict().items())
    torch.testing.assert_close(logits(theirs), our_logits(model), rtol=ROUNDING[dtype], atol=ROUNDING[dtype])

    exchanged("import", tmp_path / "new", tmp_path / "hf", outside_a_pod)
    found = checkpoint_files.newest_verified(tmp_path / "new", say=print)
    assert found is not None
    assert (found.record.step, found.record.model) == (0, vars(TINY.shape))
    ours = BertPretraining(TINY)
    ours.to(dtype).load_state_dict(checkpoint.load(found.path)["model"])
    assert torch.equal(our_logits(ours), our_logits(model))


def test_a_new_training_takes_weights_from_either_kind_of_folder(tmp_path: Path, outside_a_pod: Environment) -> None:
    model = trained(tmp_path / "run")
    exchanged("export", tmp_path / "run", tmp_path / "hf", outside_a_pod)
    for folder in (tmp_path / "run", tmp_path / "hf"):
        found = hugging_face.find(folder, option="initial_weights", say=print)
        weights = hugging_face.read_weights(found, shape=TINY.shape)
        assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())


def test_an_imported_training_does_not_mind_another_seed_or_optimizer(tmp_path: Path) -> None:
    trained(tmp_path, step=0)
    training = Fingerprint(vars(TINY.shape), {"seed": 1, "optimizer": "adamw"})
    assert checkpoint.newest_fitting(tmp_path, training, say=print) is not None


def test_a_running_training_is_not_imported_over(tmp_path: Path, outside_a_pod: Environment) -> None:
    trained(tmp_path / "run")
    exchanged("export", tmp_path / "run", tmp_path / "hf", outside_a_pod)
    with pytest.raises(ConfigInvalid, match="holds checkpoints already"):
        exchanged("import", tmp_path / "run", tmp_path / "hf", outside_a_pod)


def test_weights_of_another_shape_are_refused_by_name(tmp_path: Path) -> None:
    trained(tmp_path)
    found = hugging_face.find(tmp_path, option="initial_weights", say=print)
    with pytest.raises(CheckpointInvalid, match=r"--hidden_size 16 .* 128\b"):
        hugging_face.read_weights(found, shape=ModelConfig(model="tiny").shape)


def test_an_empty_folder_holds_no_weights(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match=r"--initial_weights .* holds neither"):
        hugging_face.find(tmp_path, option="initial_weights", say=print)


def test_a_model_without_its_heads_is_refused(tmp_path: Path) -> None:
    sizes = vars(TINY.shape)
    BertModel(BertConfig(**sizes)).save_pretrained(tmp_path)
    found = hugging_face.find(tmp_path, option="folder", say=print)
    with pytest.raises(CheckpointInvalid, match="lacks 'cls"):
        hugging_face.read_weights(found, shape=TINY.shape)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"hidden_act": "relu"}, "hidden_act 'relu'"), ({"type_vocab_size": 4}, "type_vocab_size 4")],
)
def test_another_kind_of_bert_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**BertConfig().to_dict(), **change}))
    with pytest.raises(CheckpointInvalid, match=words):
        hugging_face.find(tmp_path, option="folder", say=print)


def test_damaged_weights_are_named(tmp_path: Path, outside_a_pod: Environment) -> None:
    trained(tmp_path / "run")
    exchanged("export", tmp_path / "run", tmp_path / "hf", outside_a_pod)
    (tmp_path / "hf" / "model.safetensors").write_bytes(b"no")
    with pytest.raises(CheckpointInvalid, match=r"hf cannot be read"):
        hugging_face.read_weights(hugging_face.find(tmp_path / "hf", option="folder", say=print), shape=TINY.shape)


def test_the_direction_has_to_be_given(outside_a_pod: Environment) -> None:
    with pytest.raises(ConfigInvalid, match="export or import"):
        exchange.main(["--run_dir", "/x"], outside_a_pod)
