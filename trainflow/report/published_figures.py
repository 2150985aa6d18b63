"""Published throughput of the tutorials' recipes, for the report of a run of the same recipe and of no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainflow.workflow.run_record import RunRecord

PROGRAM = "trainer.pretrain"

SYNONYMS = {
    "batch_size": "micro_batch_size",
    "grad_accum_usteps": "gradient_accumulation_steps",
}
"""Options of the tutorial's script that Trainflow's program takes under its own names, too."""

LIMITS = frozenset({"max_steps", "steps_this_run", "log_steps", "checkpoint_steps", "checkpoint_minutes", "device"})
"""Options that do not change the speed of a step; the device is compared by itself."""


@dataclass(frozen=True, kw_only=True)
class PublishedFigure:
    """Throughput that was published for one recipe."""

    recipe: str
    sequences_per_second: float
    source: str
    url: str
    sequences_per_step: int
    """Global batch."""
    max_steps: int
    """Steps of the whole training where a spec names no other number."""
    arguments: Mapping[str, Any]
    """Options of the recipe; a run of it has these and no other ones."""
    num_nodes: int
    instance_types: frozenset[str]
    processes_per_node: int = 32


FIGURES = (
    PublishedFigure(
        recipe="BERT-large, phase 1, AdamW, two trn1.32xlarge",
        sequences_per_second=6450.0,
        source="log of the TorchX tutorial of AWS Neuron, December 2022: 6,449 to 6,459 sequences/s",
        url="https://awsdocs-neuron.readthedocs-hosted.com/en/latest/frameworks/torch/torch-neuronx/tutorials/training/bert.html",
        sequences_per_step=16 * 32 * 64,
        max_steps=28125,
        arguments={"precision": "pure_bfloat16", "micro_batch_size": 16, "gradient_accumulation_steps": 32},
        num_nodes=2,
        instance_types=frozenset({"trn1.32xlarge"}),
    ),
    PublishedFigure(
        recipe="BERT-large, phase 1, LAMB, weak scaling on 16 nodes",
        sequences_per_second=57408.0,
        source="AWS Neuron's tables of trn1 training performance; they vary with the release, 48,414 to 57,408",
        url="https://awsdocs-neuron.readthedocs-hosted.com/en/latest/about-neuron/benchmarks/trn1/trn1-training-performance.html",
        sequences_per_step=16 * 128 * 512,
        max_steps=7032,
        arguments={"preset": "lamb-phase1", "scaling": "weak"},
        num_nodes=16,
        instance_types=frozenset({"trn1.32xlarge", "trn1n.32xlarge"}),
    ),
)


def published_figure(record: RunRecord) -> PublishedFigure | None:
    """The published figure of the run's recipe; None for every other run, and for one that trained on another device.

    Args:
        record: The record of the run.
    """
    return figure_of_spec(record.spec, instance_type=record.instance_type)


def figure_of_spec(spec: Mapping[str, Any], *, instance_type: str | None = None) -> PublishedFigure | None:
    """The published figure of a spec's recipe; None for every other spec.

    Args:
        spec: The run spec.
        instance_type: Type of the nodes, where it is not the one that the spec names first.
    """
    workload, compute = _object(spec.get("workload")), _object(spec.get("compute"))
    given = {
        SYNONYMS.get(name, name): value
        for name, value in _object(workload.get("arguments")).items()
        if value is not None
    }
    if workload.get("module") != PROGRAM or given.get("device") != "xla":
        return None
    recipe = {name: value for name, value in given.items() if name not in LIMITS}
    instance_type = instance_type or compute.get("instance_type")
    place = (compute.get("num_nodes"), compute.get("processes_per_node"))
    return next(
        (
            figure
            for figure in FIGURES
            if dict(figure.arguments) == recipe
            and place == (figure.num_nodes, figure.processes_per_node)
            and instance_type in figure.instance_types
        ),
        None,
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
