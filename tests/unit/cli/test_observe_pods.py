from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_cluster import FakeCluster, event, finished_pod, running_pod
from polling import eventually

from tests.waiting import PATIENCE
from trainflow.client.observe.pods import PodWatcher
from trainflow.errors import ClusterUnavailable
from trainflow.observed.pod import Pod


class Watched:
    """A watcher of a fake cluster, with what it reported."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.reported: list[Pod] = []
        self.watcher = PodWatcher(self.cluster, "run-1", self.reported.append)

    def phases(self) -> dict[str, str]:
        return {pod.name: pod.phase for pod in self.watcher.pods()}


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.watcher.stop()


def test_pods_are_selected_by_their_run(watched: Watched) -> None:
    watched.watcher.start()

    eventually(lambda: watched.cluster.selectors == ["trainflow/run=run-1"])


def test_pods_of_the_first_list_and_of_the_watch_are_seen(watched: Watched) -> None:
    watched.cluster.pods["a"] = running_pod("a")
    watched.watcher.start()
    stream = watched.cluster.watches.get(timeout=PATIENCE)

    stream.lines.put(event("ADDED", running_pod("b")))
    stream.lines.put(event("BOOKMARK", {}))
    stream.lines.put(event("MODIFIED", finished_pod("a")))

    eventually(lambda: watched.phases() == {"a": "Succeeded", "b": "Running"})
    assert [(pod.name, pod.phase) for pod in watched.reported] == [
        ("a", "Running"),
        ("b", "Running"),
        ("a", "Succeeded"),
    ]


def test_a_deleted_pod_is_kept_as_it_was_last(watched: Watched) -> None:
    watched.watcher.start()
    stream = watched.cluster.watches.get(timeout=PATIENCE)

    stream.lines.put(event("ADDED", finished_pod("a", exit_code=3)))
    stream.lines.put(event("DELETED", finished_pod("a", exit_code=3)))

    eventually(lambda: watched.watcher.pods() and watched.watcher.pods()[0].deleted)
    (pod,) = watched.watcher.pods()
    assert (pod.phase, pod.exit_code) == ("Failed", 3)


def test_a_watch_that_is_too_old_is_followed_by_a_new_list(watched: Watched) -> None:
    watched.watcher.start()
    stream = watched.cluster.watches.get(timeout=PATIENCE)
    watched.cluster.pods["late"] = running_pod("late")

    stream.lines.put('{"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}\n')

    eventually(lambda: watched.phases() == {"late": "Running"})
    assert watched.watcher.trouble is None


def test_a_missed_deletion_is_found_by_the_next_list(watched: Watched) -> None:
    watched.cluster.pods["a"] = running_pod("a")
    watched.watcher.start()
    stream = watched.cluster.watches.get(timeout=PATIENCE)
    del watched.cluster.pods["a"]

    stream.lines.put(ClusterUnavailable("connection reset"))

    eventually(lambda: watched.phases() == {"a": "Unknown"})
    assert watched.watcher.pods()[0].message == "deleted while it ran"


def test_a_cluster_that_does_not_answer_is_trouble_until_it_does(watched: Watched) -> None:
    watched.cluster.refusals = [ClusterUnavailable("The Kubernetes API does not answer: refused") for _ in range(2)]
    seen: list[str | None] = []
    watched.cluster.on_list = lambda: seen.append(watched.watcher.trouble)
    watched.watcher.start()

    stream = watched.cluster.watches.get(timeout=PATIENCE)
    stream.lines.put(None)

    assert seen[0] == "The Kubernetes API does not answer: refused"
    eventually(lambda: watched.watcher.trouble is None)


def test_an_event_that_was_cut_off_is_not_believed(watched: Watched) -> None:
    watched.cluster.pods["a"] = running_pod("a")
    watched.watcher.start()
    stream = watched.cluster.watches.get(timeout=PATIENCE)

    stream.lines.put(event("MODIFIED", finished_pod("a"))[:50])

    again = watched.cluster.watches.get(timeout=PATIENCE)
    again.lines.put(event("MODIFIED", finished_pod("a")))
    eventually(lambda: watched.phases() == {"a": "Succeeded"})


def test_stopping_polls_a_last_time(watched: Watched) -> None:
    watched.cluster.pods["a"] = running_pod("a")
    watched.watcher.start()
    watched.cluster.watches.get(timeout=PATIENCE)
    watched.cluster.pods["a"] = finished_pod("a")

    watched.watcher.stop()

    assert watched.phases() == {"a": "Succeeded"}
