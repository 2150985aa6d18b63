"""The key figures of a run's page: how old the last step is, when the training is done, what it costs."""

from __future__ import annotations

from datetime import UTC, timedelta

from trainflow.client.observe.utilization import Utilization
from trainflow.observed.run_state import RunState
from trainflow.page.cost import Forecast
from trainflow.record.restarts_in_words import restarts_in_words
from trainflow.record.situation import (
    Kind,
    age_in_words,
    last_step_age,
    present_seconds_left,
    present_speed,
    situation,
    usual_interval,
)
from trainflow.record.wording import duration, number, significant
from trainflow.report.page import DURING_TRAINING, KeyFigure, busy_figure
from trainflow.workflow.run_record import RunStatus


def figures(snapshot: RunState, cost: Forecast | None, utilization: Utilization | None = None) -> list[KeyFigure]:
    """The numbers at the head of the page, the most urgent first."""
    return [
        *_age_figures(snapshot),
        _time_figure(snapshot),
        *_cost_figures(cost, is_running=snapshot.status is RunStatus.RUNNING),
        *_step_figures(snapshot),
        *_restart_figures(snapshot),
        *_node_figures(snapshot),
        *_busy_figures(utilization, is_mean=snapshot.nodes_busy is not None),
    ]


def _age_figures(snapshot: RunState) -> list[KeyFigure]:
    age, usual = last_step_age(snapshot), usual_interval(snapshot)
    if age is None:
        return []
    tone = "warning" if situation(snapshot).kind is Kind.NO_STEP else ""
    return [KeyFigure("Last step", age_in_words(age), _rhythm(usual), tone)]


def _rhythm(usual: timedelta | None) -> str:
    """The usual time between steps. Logs with times in whole seconds show none between steps of one second."""
    if usual is None:
        return ""
    return f"usually every {duration(usual.total_seconds())}" if usual else "several a second"


def _step_figures(snapshot: RunState) -> list[KeyFigure]:
    if not snapshot.steps:
        return []
    step, total = snapshot.steps[-1], snapshot.total_steps
    share = f"of {total:,}, {min(1.0, step.step / total):.0%}" if total else "of a number that the log does not name"
    found = [KeyFigure("Step", f"{step.step:,}", share)]
    if step.loss is not None:
        first = snapshot.steps[0].loss
        found.append(KeyFigure("Loss", significant(step.loss), f"{significant(first)} at first" if first else ""))
    speed = present_speed(snapshot)
    if speed:
        figure, _, unit = speed.partition(" ")
        of = "median of the latest" if snapshot.throughput is not None else "at the newest step"
        found.append(KeyFigure("Speed", figure, f"{unit}, {of}"))
    return found


def _time_figure(snapshot: RunState) -> KeyFigure:
    if snapshot.status is not RunStatus.RUNNING:
        return KeyFigure("Duration", duration(snapshot.seconds), "from start to end")
    left = present_seconds_left(snapshot)
    if left is None:
        return KeyFigure("Running for", duration(snapshot.seconds), _reason_without_forecast(snapshot))
    done = (snapshot.observed_at + timedelta(seconds=left)).astimezone(UTC)
    return KeyFigure("Training done in", duration(left), f"at {done:%Y-%m-%d %H:%M} UTC, at the present speed")


def _reason_without_forecast(snapshot: RunState) -> str:
    if not snapshot.steps:
        return "no step yet"
    if snapshot.total_steps is None:
        return "its end is not known: neither log nor arguments name the number of steps"
    return "no forecast without a steady rhythm of steps"


def _cost_figures(cost: Forecast | None, *, is_running: bool) -> list[KeyFigure]:
    if cost is None:
        return []
    if cost.so_far is None:
        return [KeyFigure("Node hours", number(cost.node_hours), "nodes times hours; their price is not known")]
    if not is_running:
        return [KeyFigure("Cost, estimated", _usd(cost.so_far), f"{number(cost.node_hours)} hours of nodes")]
    rate = f"{_usd(cost.per_hour or 0.0)} an hour while nodes are held"
    ahead = f"{_usd(cost.at_the_end)} at the end; " if cost.at_the_end is not None else ""
    return [KeyFigure("Cost so far, estimated", _usd(cost.so_far), ahead + rate)]


def _restart_figures(snapshot: RunState) -> list[KeyFigure]:
    if not snapshot.restarts:
        return []
    words = restarts_in_words(snapshot.restarts, snapshot.avoided_nodes)
    return [KeyFigure("Restarts", f"{len(snapshot.restarts):,}", words)]


def _node_figures(snapshot: RunState) -> list[KeyFigure]:
    nodes = sorted({pod.node for pod in snapshot.pods if pod.node and not pod.finished})
    names = ", ".join(nodes[:2]) + (" …" if len(nodes) > 2 else "")
    return [KeyFigure("Nodes", str(len(nodes)), names)] if nodes else []


def _busy_figures(utilization: Utilization | None, *, is_mean: bool) -> list[KeyFigure]:
    if utilization is None:
        return []
    when = DURING_TRAINING if is_mean else "in the newest minute"
    return [busy_figure(utilization.of, utilization.by_node, when)]


def _usd(amount: float) -> str:
    return f"${number(amount)}" if round(amount, 2) or amount == 0 else "< $0.01"


def period(snapshot: RunState) -> str:
    """From when to when a run went on, or for how long it has."""
    if snapshot.started_at is None:
        return "not started yet"
    start = f"{snapshot.started_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if snapshot.ended_at is None:
        return f"since {start}, for {duration(snapshot.seconds)}"
    return f"{start} – {snapshot.ended_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
