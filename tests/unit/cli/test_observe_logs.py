from __future__ import annotations

from pathlib import Path

import pytest
from fake_cluster import FakeCluster, FakeLog
from hypothesis import given
from hypothesis import strategies as st
from polling import eventually

from trainflow.client.log_times import times_file
from trainflow.client.observe.logs import LogFollower, Resumption

STAMP = "2026-11-21T09:30:"


def stamped(second: int, text: str, *, fraction: int = 0) -> str:
    return f"{STAMP}{second:02d}.{fraction:09d}Z {text}\n"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def log(cluster: FakeCluster) -> FakeLog:
    return cluster.logs.setdefault("pod", FakeLog())


def follower_of(cluster: FakeCluster, path: Path, log: FakeLog) -> LogFollower:
    return LogFollower(cluster, pod="pod", container="main", path=path, has_ended=lambda: log.ended)


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_lines_are_written_as_they_come(cluster: FakeCluster, log: FakeLog, tmp_path: Path) -> None:
    path = tmp_path / "pod.log"
    follower = follower_of(cluster, path, log)
    follower.start()

    log.write(stamped(1, "first"))
    eventually(lambda: text_of(path) == "first\n")
    log.write(stamped(2, "second"))
    eventually(lambda: text_of(path) == "first\nsecond\n")

    log.end()
    assert follower.join(10)


def test_the_times_of_the_lines_are_kept_beside_them(cluster: FakeCluster, log: FakeLog, tmp_path: Path) -> None:
    path = tmp_path / "pod.log"
    log.write(stamped(1, "first"), stamped(1, "second", fraction=9), "unable to retrieve\n", stamped(4, "third"))
    log.break_after = [1, 2]
    log.end()
    follower = follower_of(cluster, path, log)

    follower.start()

    assert follower.join(20)
    assert times_file(path).read_text() == f"{STAMP}01Z 0\n{STAMP}04Z {path.read_text().index('third')}\n"


def test_a_broken_connection_loses_no_line_and_doubles_none(cluster: FakeCluster, log: FakeLog, tmp_path: Path) -> None:
    path = tmp_path / "pod.log"
    lines = [stamped(number // 4, f"line {number % 3}", fraction=number) for number in range(40)]
    log.write(*lines)
    log.break_after = [3, 5, 7, 2, 12]
    log.end()
    follower = follower_of(cluster, path, log)

    follower.start()

    assert follower.join(20)
    assert path.read_text() == "".join(f"line {number % 3}\n" for number in range(40))
    assert f"{STAMP}00Z" in log.opened_since


def test_equal_lines_of_the_same_instant_are_as_many_as_were_written(
    cluster: FakeCluster, log: FakeLog, tmp_path: Path
) -> None:
    path = tmp_path / "pod.log"
    log.write(*[stamped(5, "same")] * 6)
    log.break_after = [2, 4]
    log.end()
    follower = follower_of(cluster, path, log)

    follower.start()

    assert follower.join(20)
    assert path.read_text() == "same\n" * 6


def test_a_line_that_was_cut_in_two_is_written_once_and_whole(
    cluster: FakeCluster, log: FakeLog, tmp_path: Path
) -> None:
    path = tmp_path / "pod.log"
    log.write(stamped(1, "first"), stamped(2, "a long second line"), stamped(2, "third"))
    log.break_after = [1, 2]
    log.cut_mid_line = True
    log.end()
    follower = follower_of(cluster, path, log)

    follower.start()

    assert follower.join(20)
    assert path.read_text() == "first\na long second line\nthird\n"


def test_a_last_line_without_its_line_break_is_kept(cluster: FakeCluster, log: FakeLog, tmp_path: Path) -> None:
    path = tmp_path / "pod.log"
    log.write(stamped(1, "first"), stamped(1, "Killed").removesuffix("\n"))
    log.end()
    follower = follower_of(cluster, path, log)

    follower.start()

    assert follower.join(10)
    assert path.read_text() == "first\nKilled\n"
    assert follower.last_lines() == ("first", "Killed")


def test_the_log_of_a_pod_that_is_deleted_under_way_stays(cluster: FakeCluster, log: FakeLog, tmp_path: Path) -> None:
    path = tmp_path / "pod.log"
    log.write(stamped(1, "only"))
    follower = follower_of(cluster, path, log)
    follower.start()
    eventually(lambda: text_of(path) == "only\n")

    log.gone = True
    log.end()

    assert follower.join(10)
    assert path.read_text() == "only\n"


def test_a_pod_deleted_after_an_unfinished_line_keeps_that_line(
    cluster: FakeCluster, log: FakeLog, tmp_path: Path
) -> None:
    path = tmp_path / "pod.log"
    log.write(stamped(1, "first"), stamped(1, "Killed").removesuffix("\n"))
    log.gone_after = 1
    log.end()
    follower = follower_of(cluster, path, log)

    follower.start()

    assert follower.join(10)
    assert path.read_text() == "first\nKilled\n"


def test_a_follower_can_be_stopped_while_it_waits(cluster: FakeCluster, log: FakeLog, tmp_path: Path) -> None:
    follower = follower_of(cluster, tmp_path / "pod.log", log)
    follower.start()
    eventually(lambda: log.opened_since)

    follower.stop()

    assert follower.join(10)


def test_a_log_that_cannot_be_written_is_said_plainly(cluster: FakeCluster, log: FakeLog, tmp_path: Path) -> None:
    log.end()
    follower = follower_of(cluster, tmp_path / "missing" / "pod.log", log)

    follower.start()

    assert follower.join(10)
    assert follower.trouble == f"The log '{tmp_path}/missing/pod.log' cannot be written: No such file or directory."


def test_remarks_of_the_kubelet_without_a_stamp_are_kept() -> None:
    assert Resumption().accept("unable to retrieve container logs") == "unable to retrieve container logs"


def test_stamps_with_an_offset_are_understood() -> None:
    resumption = Resumption()

    assert resumption.accept("2026-11-21T10:30:07.123456789+01:00 text") == "text"
    assert resumption.since == "2026-11-21T09:30:07Z"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), max_size=30),
    st.lists(st.integers(0, 30), max_size=5),
)
def test_however_often_a_log_is_reopened_each_line_is_accepted_once(
    written: list[tuple[int, str]], breaks: list[int]
) -> None:
    seconds = 0
    lines = []
    for pause, text in written:
        seconds += pause
        lines.append((f"2026-11-21T09:{seconds // 60:02d}:{seconds % 60:02d}", text))
    resumption, got = Resumption(), []

    for stop in [*breaks, len(lines)]:
        resumption.reopen()
        since = resumption.since
        served = [(stamp, text) for stamp, text in lines if since is None or stamp >= since[:19]]
        got += [resumption.accept(f"{stamp}.5Z {text}") for stamp, text in served[: max(stop, 0)]]
    resumption.reopen()
    since = resumption.since
    got += [resumption.accept(f"{stamp}.5Z {text}") for stamp, text in lines if since is None or stamp >= since[:19]]

    assert [text for text in got if text is not None] == [text for _, text in lines]
