"""The numbers: objectives, schedule, metrics line."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.bert.configuration_bert import BertConfig
from transformers.models.bert.modeling_bert import BertForPreTraining

from tests.unit.trainer.conftest import TINY, make_rows
from trainer.optimizers.building import decay_groups
from trainer.optimizers.optimization_config import OptimizationConfig
from trainer.optimizers.schedule import learning_rate
from trainer.pretraining.batches import MicroBatch, as_micro_batch
from trainer.pretraining.bert import BertPretraining
from trainflow.protocol.metrics_line import metrics_line
from trainflow.protocol.step_report import StepFigures


@pytest.fixture(scope="module")
def model() -> BertPretraining:
    torch.manual_seed(0)
    return BertPretraining(TINY)


@pytest.fixture(scope="module")
def batch() -> MicroBatch:
    rows = make_rows(6)
    rows["input_mask"][:3, 10:] = 0
    return as_micro_batch(rows)


def hugging_face(model: BertPretraining) -> Any:
    """Hugging Face's model with the same weights."""
    config = BertConfig(**vars(TINY.shape), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    reference = BertForPreTraining(config).train()
    reference.load_state_dict(model.state_dict())
    return reference


def test_losses_and_gradients_are_those_of_hugging_faces_model_over_the_whole_sequence(
    model: BertPretraining, batch: MicroBatch
) -> None:
    full_labels = torch.full_like(batch.token_ids_BS, -100)
    full_labels[:, 1:3] = batch.masked_labels_BM[:, :2]
    reference = hugging_face(model)
    loss = reference(
        input_ids=batch.token_ids_BS,
        attention_mask=batch.attended_BS,
        token_type_ids=batch.segment_ids_BS,
        labels=full_labels,
        next_sentence_label=batch.is_random_next_B,
    ).loss
    assert sum(model(batch)).item() == pytest.approx(loss.item(), abs=1e-6)
    loss.backward()
    model.zero_grad()
    sum(model(batch)).backward()
    gradients = {name: parameter.grad for name, parameter in reference.named_parameters()}
    assert gradients.keys() == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-6, msg=name)


def test_padding_does_not_change_the_loss(model: BertPretraining, batch: MicroBatch) -> None:
    scribbled = batch.token_ids_BS.clone()
    scribbled[:3, 10:] = 7
    scribbled_loss = sum(model(batch._replace(token_ids_BS=scribbled))).item()
    assert scribbled_loss == pytest.approx(sum(model(batch)).item(), abs=1e-6)


def test_an_untrained_model_guesses(model: BertPretraining, batch: MicroBatch) -> None:
    assert sum(model(batch)).item() == pytest.approx(math.log(50) + math.log(2), abs=0.3)


def test_weights_begin_as_hugging_faces_do() -> None:
    """The same distribution for each of them; which numbers are drawn is the trainer's own affair."""
    ours = dict(BertPretraining(replace(TINY, hidden_size=128, vocab_size=500)).named_parameters())
    shape = replace(TINY, hidden_size=128, vocab_size=500).shape
    theirs = dict(BertForPreTraining(BertConfig(**vars(shape))).named_parameters())
    assert ours.keys() == theirs.keys()
    for name, parameter in ours.items():
        assert parameter.mean().item() == pytest.approx(theirs[name].mean().item(), abs=5e-3), name
        if parameter.numel() > 1000:
            assert parameter.std().item() == pytest.approx(theirs[name].std().item(), rel=0.1), name
    assert torch.all(ours["bert.embeddings.word_embeddings.weight"][0] == 0)


def test_biases_and_layer_norms_are_not_decayed(model: BertPretraining) -> None:
    decayed, kept = decay_groups(model, 0.01)
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert all(parameter.ndim > 1 for parameter in decayed["params"])  # type: ignore[attr-defined]
    assert all(parameter.ndim == 1 for parameter in kept["params"])  # type: ignore[attr-defined]
    assert len(decayed["params"]) + len(kept["params"]) == len(names)  # type: ignore[arg-type]


def test_the_learning_rate_is_the_tutorials() -> None:
    tutorial = OptimizationConfig()
    printed = [f"{learning_rate(step + 1, tutorial):.2e}" for step in (14, 15, 16)]
    assert printed == ["2.80e-06", "3.00e-06", "3.20e-06"]


@given(st.integers(0, 50), st.integers(1, 200))
def test_the_learning_rate_rises_to_its_peak_and_falls_to_zero(warmup_steps: int, max_steps: int) -> None:
    config = OptimizationConfig(warmup_steps=warmup_steps, max_steps=max_steps)
    rates = [learning_rate(step, config) for step in range(1, max_steps + 1)]
    assert rates[: warmup_steps + 1] == sorted(rates[: warmup_steps + 1])
    assert rates[warmup_steps:] == sorted(rates[warmup_steps:], reverse=True)
    assert 0 <= min(rates) <= max(rates) <= config.learning_rate
    if max_steps > warmup_steps:
        assert rates[warmup_steps] == config.learning_rate
        assert learning_rate(max_steps + 1, config) == 0


def test_the_metrics_line_is_the_tutorials_to_the_letter() -> None:
    when = datetime(2022, 12, 21, 0, 51, 1, tzinfo=UTC)
    figures = StepFigures(epoch=0, step=14, loss=10.70112, learning_rate=2.8e-06, sequences_per_second=6449.361)
    assert metrics_line(figures, logged_at=when) == (
        "LOG Wed Dec 21 00:51:01 2022 - (0, 14) step_loss : 10.7011 learning_rate : 2.80e-06 throughput : 6449.36"
    )
