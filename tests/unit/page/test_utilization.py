"""The page shows how busy a run's nodes are, as far as its place knows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_runs import recorded
from replay import snapshot_at

from tests.wording import wording
from trainflow.client.observe.utilization import Utilization
from trainflow.client.place import PlaceRefused
from trainflow.observed.run_state import RunState
from trainflow.page.curves import RunCurves
from trainflow.page.library import RunNow
from trainflow.page.utilization import Busy, NodesOfRun
from trainflow.page.view import figures, pod_rows, utilization_of
from trainflow.record.run_states import state_of_record
from trainflow.report import render_report
from trainflow.workflow.run_record import NodesBusy

RUN = recorded("succeeded")
BEGIN = RUN.history.events[0]["timestamp"]
HALFWAY = snapshot_at(RUN, BEGIN + (RUN.end - BEGIN) * 0.7)
NODE = next(pod.node for pod in HALFWAY.pods if pod.node and not pod.finished)
KNOWN = Utilization(of="NeuronCores", by_node={str(NODE): 87.4})


class Place:
    """A place that knows how busy nodes are, or may not say it."""

    def __init__(self) -> None:
        self.answer: Utilization | Exception | None = KNOWN
        self.asked: list[Collection[str]] = []

    def node_utilization(self, run_id: str, nodes: Collection[str]) -> Utilization | None:
        self.asked.append(nodes)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def settled(nodes: NodesOfRun, snapshot: RunState) -> Busy:
    """What is known when the request has been answered."""
    nodes.busy(snapshot)
    assert nodes._thread is not None
    nodes._thread.join()
    return nodes.busy(snapshot)


def test_the_nodes_of_running_pods_are_asked_about_now_and_then() -> None:
    place = Place()
    nodes = NodesOfRun(place, RUN.run_id)
    assert settled(nodes, HALFWAY) == Busy(KNOWN)
    assert [set(asked) for asked in place.asked] == [{pod.node for pod in HALFWAY.pods if not pod.finished}]


def test_what_was_known_last_stays_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainflow.page.utilization.ASK_SECONDS", 0.0)
    place = Place()
    nodes = NodesOfRun(place, RUN.run_id)
    settled(nodes, HALFWAY)
    assert nodes.busy(replace(HALFWAY, pods=())) == Busy(KNOWN)
    assert len(place.asked) == 2


def test_a_missing_permission_is_one_sentence() -> None:
    place = Place()
    place.answer = PlaceRefused("These credentials may not call cloudwatch:ListMetrics: no.")
    assert settled(NodesOfRun(place, RUN.run_id), HALFWAY) == Busy(
        None, wording("utilization.a_missing_permission_is_one_sentence", "ListMetrics")
    )


def test_a_place_that_knows_nothing_is_not_asked() -> None:
    assert NodesOfRun(object(), RUN.run_id).busy(HALFWAY) == Busy()


def test_it_is_a_key_figure_and_stands_beside_each_pod() -> None:
    figure = figures(HALFWAY, None, KNOWN)[-1]
    assert (figure.label, figure.value, figure.note) == ("NeuronCores busy", "87 %", "of 1 node, in the newest minute")
    two = Utilization(of="GPUs", by_node={"a": 80.0, "b": 90.0})
    assert figures(HALFWAY, None, two)[-1].note == "of 2 nodes, in the newest minute, each from 80 to 90 %"
    rows = {row.pod.name: row.busy for row in pod_rows(HALFWAY, set(), KNOWN)}
    for pod in HALFWAY.pods:
        assert rows[pod.name] == ("87 %" if pod.node == NODE and not pod.finished else "–")


def test_a_run_that_has_ended_has_the_mean_of_its_training() -> None:
    record = RUN.record()
    nodes = [pod.node for pod in record.jobs["training"].pods]
    record = record.model_copy(
        update={"nodes_busy": NodesBusy(of="NeuronCores", by_node={str(nodes[0]): 80.0, str(nodes[1]): 91.0})}
    )
    snapshot = state_of_record(record, ())
    now = RunNow(snapshot=snapshot, known_curves=RunCurves(), steps_version=0, marks=(), log_dir=Path(), can_stop=False)
    utilization = utilization_of(now)
    figure = figures(snapshot, None, utilization)[-1]
    told = ("NeuronCores busy", "86 %", "of 2 nodes, mean of the training, each from 80 to 91 %")
    assert (figure.label, figure.value, figure.note) == told
    busy = {row.pod.name: row.busy for row in pod_rows(snapshot, set(), utilization)}
    trained = [pod.name for pod in record.jobs["training"].pods]
    assert {name: value for name, value in busy.items() if value != "–"} == dict(
        zip(trained, ("80 %", "91 %"), strict=True)
    )
    assert all(text in render_report(record, ()) for text in told)
