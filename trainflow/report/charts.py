"""Curves over training steps, as geometry that the template draws."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from trainflow.observed.step import Step
from trainflow.record.steps import throughput_of
from trainflow.record.wording import count, number, significant
from trainflow.report.scales import WIDTH, Scale, nice_ticks, smoothed, thinned
from trainflow.workflow.run_record import Restart, SavedCheckpoint

HEIGHT = 300.0
"""Units from bottom to top of a drawing."""

MAX_POINTS = 900
"""Most points of a drawn curve; a screen does not have more columns for a chart."""

SMOOTHING_SHARE = 0.04
"""Number of steps on each side that the smoothed curve averages, as a share of all steps."""

TITLES = {
    "tokens_per_second": ("Throughput", "tokens/s"),
    "mfu_percent": ("Model FLOPs utilization", "% of peak"),
    "grad_norm": ("Gradient norm", ""),
    "data_wait_percent": ("Waiting for data", "% of the time"),
    "step_ms_p50": ("Step time, median", "ms"),
    "step_ms_p95": ("Step time, 95th percentile", "ms"),
    "memory_mib": ("Memory of rank 0", "MiB"),
}
"""Titles and units of the further figures of a step that have a fixed meaning. The unit of a
program's own figures is unknown."""

SMOOTHED = frozenset({"tokens_per_second", "grad_norm", "mfu_percent"})
"""Figures that vary from step to step."""

MAX_OWN_CHARTS = 14
"""Most curves of the program's further figures: those of `metric_names.STEP_FIGURES`, and ten of its own."""

Format = Callable[[float], str]


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    percent: float
    label: str


@dataclass(frozen=True)
class Mark:
    """An event at a step."""

    percent: float
    kind: str
    """`restart` or `checkpoint`."""
    title: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One curve, ready to be drawn."""

    key: str
    title: str
    unit: str
    description: str
    """The curve in words, for those who do not see it."""
    raw_path: str
    """SVG path of the values as they were logged."""
    smooth_path: str
    """SVG path of their moving average; empty where the values are smooth by themselves."""
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    points: str
    """JSON list of [x %, y %, label] for the pointer."""
    marks: list[Mark]
    note: str
    """Sentence about values that cannot be drawn; empty without such values."""


def charts(
    steps: Sequence[Step], *, restarts: Sequence[Restart] = (), checkpoints: Sequence[SavedCheckpoint] = ()
) -> list[Chart]:
    """Charts of loss, throughput, learning rate and the program's other figures; those without values are left out.

    Args:
        steps: Logged steps in their order, each once.
        restarts: Marked in every chart at the last step before them.
        checkpoints: Marked in the chart of the loss.
    """
    restarted = [
        (restart.last_step, "restart", f"restart after step {restart.last_step:,}: {restart.error}")
        for restart in restarts
        if restart.last_step is not None
    ]
    saved = [
        (checkpoint.step, "checkpoint", f"checkpoint of step {checkpoint.step:,}")
        for checkpoint in checkpoints
        if checkpoint.step is not None
    ]
    losses = _said((step.step, step.loss) for step in steps)
    speeds = _said((step.step, step.throughput) for step in steps)
    rates = _said((step.step, step.learning_rate) for step in steps)
    names = list(dict.fromkeys(name for step in steps for name in step.metrics))[:MAX_OWN_CHARTS]
    drawn = (
        _chart("loss", "Loss", "", losses, significant, [*saved, *restarted], smooth=True),
        _chart(
            "throughput",
            "Throughput",
            f"{throughput_of(steps)}/s",
            speeds,
            _short,
            restarted,
            smooth=True,
            from_zero=True,
        ),
        _chart("rate", "Learning rate", "", rates, _scientific, restarted, from_zero=True),
        *(
            _chart(f"metric-{place}", *_titled(name), figures, significant, restarted, smooth=name in SMOOTHED)
            for place, name in enumerate(names)
            if (figures := _said((step.step, step.metrics.get(name)) for step in steps))
        ),
    )
    return [chart for chart in drawn if chart is not None]


def _said(points: Iterable[tuple[int, float | None]]) -> list[tuple[float, float]]:
    """The points with a value."""
    return [(step, value) for step, value in points if value is not None]


def _chart(
    key: str,
    title: str,
    unit: str,
    points: Sequence[tuple[float, float]],
    show: Format,
    events: Sequence[tuple[int, str, str]] = (),
    *,
    smooth: bool = False,
    from_zero: bool = False,
) -> Chart | None:
    finite = [value for _, value in points if math.isfinite(value)]
    if not finite:
        return None
    low, high = (min(0.0, *finite) if from_zero else min(finite)), max(finite)
    levels = nice_ticks(low, high, at_most=5)
    y = Scale(levels[0], levels[-1])
    x = Scale(points[0][0], points[-1][0])
    kept = thinned(points, MAX_POINTS)
    reach = max(1, round(len(points) * SMOOTHING_SHARE))
    means = smoothed([value for _, value in points], reach) if smooth and len(points) > 10 else []
    trend = thinned([(step, mean) for (step, _), mean in zip(points, means, strict=False)], MAX_POINTS)
    return Chart(
        key=key,
        title=title,
        unit=unit,
        description=_in_words(title, unit, points, finite, show),
        raw_path=_path(kept, x, y),
        smooth_path=_path(trend, x, y),
        x_ticks=[Tick(x.percent(step), f"{step:,.0f}") for step in _step_ticks(x)],
        y_ticks=[Tick(y.percent(level), show(level)) for level in levels],
        points=json.dumps(
            [
                [x.percent(step), y.percent(value), f"step {step:,.0f}: {show(value)}"]
                for step, value in kept
                if math.isfinite(value)
            ],
            separators=(",", ":"),
        ),
        marks=[Mark(x.percent(step), kind, said) for step, kind, said in events if x.low <= step <= x.high],
        note=_non_finite_note(points),
    )


def _non_finite_note(points: Sequence[tuple[float, float]]) -> str:
    steps = [step for step, value in points if not math.isfinite(value)]
    if not steps:
        return ""
    return f"NaN or infinite at {count(len(steps), 'logged step')}, first at step {steps[0]:,.0f}"


def _titled(name: str) -> tuple[str, str]:
    """Title and unit of a program's figure: the ones of Trainflow's own reports, else its name and no unit."""
    return TITLES.get(name, (name, ""))


def _step_ticks(x: Scale) -> list[float]:
    if x.high <= x.low:
        return [x.low]
    return [tick for tick in nice_ticks(x.low, x.high, at_most=6) if x.low <= tick <= x.high and tick == int(tick)]


def _path(points: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    """SVG path of a curve; values that are not numbers interrupt it. A single point becomes a short dash."""
    commands: list[str] = []
    pen_down = False
    for step, value in points:
        if math.isfinite(value):
            place = f"{x.share(step) * WIDTH:.1f} {(1 - y.share(value)) * HEIGHT:.1f}"
            commands.append(f"{'L' if pen_down else 'M'}{place}")
        pen_down = math.isfinite(value)
    if len(points) == 1 and commands:
        commands.append("h6")
    return "".join(commands)


def _in_words(
    title: str, unit: str, points: Sequence[tuple[float, float]], finite: Sequence[float], show: Format
) -> str:
    first, last = points[0], points[-1]
    return (
        f"{title} from {show(first[1])} at step {first[0]:,.0f} to {show(last[1])} at step {last[0]:,.0f}"
        f"{f' {unit}' if unit else ''}; lowest {show(min(finite))}, highest {show(max(finite))}."
    )


def _short(value: float) -> str:
    return number(value, 0 if abs(value) >= 10 or value == 0 else 1)


def _scientific(value: float) -> str:
    return f"{value:.2g}" if value else "0"
