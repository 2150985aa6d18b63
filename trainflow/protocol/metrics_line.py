"""The line that rank 0 prints for every logged step.

It is the tutorials' own, so that existing scripts go on working:

    [0]:LOG Wed Dec 21 00:51:01 2022 - (0, 14) step_loss : 10.7011 learning_rate : 2.80e-06 throughput : 6449.36

The prefix in brackets is torchrun's and optional, spaces may be more or fewer, and further fields may follow in the
same form: the tutorial's script ends the line with a space, or, under `--print_grad_norm`, with ` grad-norm : 1.25`.
Throughput is in sequences per second over all ranks. Programs that know more print a report behind it: `step_report`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from trainflow.protocol.step_report import StepFigures

PREFIX = r"(?:\[[^\]]*\]:\s?)?"
"""Prefix that torchrun may put before a line."""

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
_LINE = re.compile(
    rf"^{PREFIX}\s*LOG\s+(?P<logged_at>\w{{3}}\s+\w{{3}}\s+\d{{1,2}}\s+\d{{2}}:\d{{2}}:\d{{2}}\s+\d{{4}})\s*-\s*"
    r"\(\s*(?P<epoch>\d+)\s*,\s*(?P<step>\d+)\s*\)\s*(?P<fields>step_loss\s*:.*)$"
)
_FIELD = re.compile(rf"(?P<name>[A-Za-z][\w./-]{{0,99}})\s*:\s*(?P<value>{_NUMBER})(?=\s|$)")


def metrics_line(figures: StepFigures, *, logged_at: datetime, with_norm: bool = False) -> str:
    """The line of a step, to the letter of the tutorials'.

    Args:
        figures: The step; every figure of the tutorials' has to be known.
        logged_at: Time of the step, in UTC.
        with_norm: Whether the line ends with the gradients' norm.
    """
    norm = f" grad-norm : {figures['grad_norm']}" if with_norm else ""
    return (
        f"LOG {logged_at.ctime()} - ({figures['epoch']}, {figures['step']}) step_loss : {figures['loss']:.4f} "
        f"learning_rate : {figures['learning_rate']:.2e} throughput : {figures['sequences_per_second']:.2f}{norm}"
    )


def metrics_figures(line: str) -> tuple[datetime, dict[str, object]] | None:
    """Time and figures of a metrics line as they are written; None for any other line."""
    found = _LINE.match(line)
    if found is None:
        return None
    fields: dict[str, object] = {each["name"]: each["value"] for each in _FIELD.finditer(found["fields"])}
    if "step_loss" not in fields:  # no number stands behind the colon
        return None
    if "throughput" in fields:
        fields["sequences_per_second"] = fields.pop("throughput")
    try:
        logged_at = datetime.strptime(" ".join(found["logged_at"].split()), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
        epoch = int(found["epoch"])
    except ValueError:  # the 31st of February, or a number of thousands of digits
        return None
    return logged_at, {**fields, "step": found["step"], "epoch": epoch}
