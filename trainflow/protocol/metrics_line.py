"""The line that rank 0 prints for every logged step.

It is the tutorials' own, so that existing scripts go on working:

    [0]:LOG Wed Dec 21 00:51:01 2022 - (0, 14) step_loss : 10.7011 learning_rate : 2.80e-06 throughput : 6449.36

The prefix in brackets is torchrun's and optional, spaces may be more or fewer, and further fields may follow in the
same form: the tutorial's script ends the line with a space, or, under `--print_grad_norm`, with ` grad-norm : 1.25`.
Throughput is in sequences per second over all ranks. Programs that know more print a report behind it: `step_report`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from trainflow.protocol.metric_aliases import SEQUENCES, by_meaning, counted, number, whole

PREFIX = r"(?:\[[^\]]*\]:\s?)?"
"""Prefix that torchrun may put before a line."""

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_LINE = re.compile(
    rf"^{PREFIX}\s*LOG\s+(?P<logged_at>\w{{3}}\s+\w{{3}}\s+\d{{1,2}}\s+\d{{2}}:\d{{2}}:\d{{2}}\s+\d{{4}})\s*-\s*"
    r"\(\s*(?P<epoch>\d+)\s*,\s*(?P<step>\d+)\s*\)\s*(?P<fields>step_loss\s*:.*)$"
)
_FIELD = re.compile(rf"(?P<name>[A-Za-z][\w./-]{{0,99}})\s*:\s*(?P<value>{_NUMBER})(?=\s|$)")


@dataclass(frozen=True)
class StepMetrics:
    """One logged step. What its program does not say is None."""

    logged_at: datetime
    """Time when rank 0 printed the line, in UTC: from the line, in whole seconds (pods run in UTC), or from the log."""
    epoch: float | None
    step: int
    loss: float | None
    """Mean loss of the step's global batch; in nats in the tutorial's line, may be NaN."""
    learning_rate: float | None
    """Rate that the schedule has come to behind the step, as in the tutorial; the step before took its own with it."""
    throughput: float | None
    """Sequences or samples per second over all ranks, since the last logged step; None where the unit is another or
    unknown."""
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Further figures of the step, by the name that the program gives them."""
    throughput_of: str = SEQUENCES
    """Unit of the throughput: `sequences`, or `samples` if the program reports those."""

    def with_metrics(self, metrics: Mapping[str, float]) -> StepMetrics:
        """The step with more figures."""
        return replace(self, metrics={**self.metrics, **metrics}) if metrics else self


def metrics_line(metrics: StepMetrics, *, grad_norm: float | None = None) -> str:
    """The line of a step, to the letter of the tutorials'.

    Args:
        metrics: The step; every figure of the tutorials' has to be known.
        grad_norm: 2-norm of its gradients; None for a line without it.
    """
    norm = "" if grad_norm is None else f" grad-norm : {grad_norm}"
    return (
        f"LOG {metrics.logged_at.ctime()} - ({metrics.epoch}, {metrics.step}) step_loss : {metrics.loss:.4f} "
        f"learning_rate : {metrics.learning_rate:.2e} throughput : {metrics.throughput:.2f}{norm}"
    )


def parse_metrics_line(line: str) -> StepMetrics | None:
    """The step that a log line reports, or None if it is another line."""
    found = _LINE.match(line)
    if found is None:
        return None
    fields = {each["name"]: each["value"] for each in _FIELD.finditer(found["fields"])}
    if "throughput" in fields:
        fields["sequences_per_second"] = fields.pop("throughput")
    try:
        logged_at = datetime.strptime(" ".join(found["logged_at"].split()), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
        epoch = int(found["epoch"])
    except ValueError:  # the 31st of February, or a number of thousands of digits
        return None
    step = step_metrics({**fields, "step": found["step"], "epoch": epoch}, logged_at=logged_at)
    return step if step is not None and step.loss is not None else None


def step_metrics(values: Mapping[str, object], *, logged_at: datetime) -> StepMetrics | None:
    """The step that these figures describe, under whatever names; None if none of them is the step's number."""
    named = by_meaning(values)
    step = whole(named.pop("step", None))
    if step is None:
        return None
    numbers = {name: read for name, value in named.items() if (read := number(value)) is not None}
    epoch = numbers.pop("epoch", None)
    return StepMetrics(
        logged_at=logged_at,
        epoch=int(epoch) if epoch is not None and epoch.is_integer() else epoch,
        step=step,
        loss=numbers.pop("loss", None),
        learning_rate=numbers.pop("learning_rate", None),
        throughput=numbers.pop("sequences_per_second", None),
        metrics=numbers,
        throughput_of=counted(values),
    )
