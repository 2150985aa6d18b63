"""The log of a Slurm job on its way to S3: every line once, whatever is killed in between."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.trainer.conftest import BUCKET
from trainer.slurm import ship
from trainer.slurm.place import TAIL_LINES, JobFolder, JobObjects
from trainer.slurm.ship import MAX_SEGMENT_BYTES, Shipper
from trainflow.protocol.s3_urls import S3Url

OBJECTS = JobObjects(S3Url(BUCKET, "runs/a/"), "a-training-1")


class FakeS3:
    """Objects in memory; refuses when told to."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.refuses = False

    def put_object(self, *, Key: str, Body: bytes, **_: Any) -> None:
        if self.refuses:
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "PutObject")
        self.objects[Key] = Body

    def lines(self) -> list[tuple[str, str]]:
        """Times and texts of what was shipped, in the order of the segments' names."""
        found = []
        for key in sorted(self.objects):
            if key.startswith("runs/a/logs/"):
                text = self.objects[key].decode().removesuffix("\n")
                found += [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.split("\n")]
        return found


def shipper(s3: Any, log: Path, *, at: float = 1_795_257_600.0) -> Shipper:
    clock = itertools.count(at, 0.5)
    return Shipper(s3, JobFolder(log.parent), OBJECTS, clock=lambda: next(clock))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "0.log"


def test_whole_lines_are_shipped_and_the_last_one_waits_for_its_end(log: Path) -> None:
    s3 = FakeS3()
    shipping = shipper(s3, log)
    assert not shipping.ship()  # there is no log yet
    log.write_bytes(b"one\ntwo\nthr")
    shipping.ship()
    assert [text for _, text in s3.lines()] == ["one", "two"]
    log.write_bytes(b"one\ntwo\nthree")
    shipping.ship()
    assert len(s3.lines()) == 2
    shipping.ship(all_of_it=True)
    assert [text for _, text in s3.lines()] == ["one", "two", "three"]


def test_times_ascend_although_the_clock_does_not(log: Path) -> None:
    s3 = FakeS3()
    log.write_bytes(b"a\n" * 3)
    shipper(s3, log).ship()
    log.write_bytes(b"a\n" * 6)
    _ship_everything(shipper(s3, log, at=0.0))
    times = [at for at, _ in s3.lines()]
    assert times == sorted(set(times))
    assert len(times) == 6


def test_a_segments_name_says_how_far_it_reaches(log: Path) -> None:
    s3 = FakeS3()
    log.write_bytes(b"one\ntwo\n")
    shipper(s3, log).ship()
    assert [key for key in s3.objects if "/logs/" in key] == [
        "runs/a/logs/a-training-1/00001795257600000001-000000000000008.log"
    ]


def test_a_burst_is_cut_into_segments_and_none_of_it_lost(log: Path) -> None:
    s3 = FakeS3()
    lines = [f"{number} {'x' * 997}" for number in range(3000)]
    log.write_text("".join(f"{line}\n" for line in lines))
    _ship_everything(shipper(s3, log))
    assert [text for _, text in s3.lines()] == lines
    assert all(len(body) < 2 * MAX_SEGMENT_BYTES for body in s3.objects.values())
    assert s3.objects["runs/a/tails/a-training-1-0.log"].count(b"\n") == TAIL_LINES


def test_a_line_without_an_end_is_shipped_in_pieces(log: Path) -> None:
    s3 = FakeS3()
    log.write_bytes(b"x" * (MAX_SEGMENT_BYTES + 5))
    _ship_everything(shipper(s3, log), all_of_it=True)
    assert [len(text) for _, text in s3.lines()] == [MAX_SEGMENT_BYTES, 5]


def test_what_s3_refuses_is_shipped_later(log: Path) -> None:
    s3 = FakeS3()
    shipping = shipper(s3, log)
    log.write_bytes(b"one\n")
    s3.refuses = True
    with pytest.raises(ClientError):
        shipping.ship()
    s3.refuses = False
    shipping.ship()
    assert [text for _, text in s3.lines()] == ["one"]


Death = Literal["killed before", "killed after", "failed"]


class Killed(BaseException):
    """Nothing of the process runs any more."""


class DyingS3(FakeS3):
    """An S3 that kills the calling process at some requests, or reports that they failed, before or after it has
    executed them."""

    def __init__(self, deaths: Sequence[Death | None]) -> None:
        super().__init__()
        self.deaths: Iterator[Death | None] = iter(deaths)

    def put_object(self, **request: Any) -> None:
        death = next(self.deaths, None)
        if death == "killed before":
            raise Killed
        super().put_object(**request)
        if death == "killed after":
            raise Killed
        if death == "failed":
            raise ClientError({"Error": {"Code": "InternalError"}}, "PutObject")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("ab\n", max_size=20).map(str.encode), max_size=10),
    st.lists(st.sampled_from(["killed before", "killed after", "failed", None]), max_size=20),
)
def test_a_shipper_that_takes_over_continues_where_the_other_was(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], deaths: list[Death | None]
) -> None:
    s3, log = DyingS3(deaths), tmp_path_factory.mktemp("job") / "0.log"
    shipping, written = shipper(s3, log), b""
    for piece in [*pieces, *[b""] * (len(deaths) + 1)]:
        written += piece
        log.write_bytes(written)
        try:
            _ship_everything(shipping)
        except Killed:
            shipping = shipper(s3, log, at=0.0)
        except ClientError:
            pass  # the same process tries again
    s3.deaths = iter(())
    _ship_everything(shipping, all_of_it=True)
    texts = [text for _, text in s3.lines()]
    assert texts == (written.decode().removesuffix("\n").split("\n") if written else [])


def _ship_everything(shipping: Shipper, *, all_of_it: bool = False) -> None:
    while shipping.ship(all_of_it=all_of_it):
        pass


@pytest.mark.lengthy
def test_a_shipper_that_is_killed_in_the_middle_loses_and_doubles_nothing(s3: Any, tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "trainer.slurm.ship", "--folder", str(tmp_path)),
        *("--job", "a-training-1", "--url", f"s3://{BUCKET}/runs/a/"),
    ]
    lines = [f"line {number}" for number in range(2000)]
    with (tmp_path / "0.log").open("w") as log:
        first = subprocess.Popen(command, env=dict(os.environ))
        log.writelines(f"{line}\n" for line in lines[:1000])
        log.flush()
        while not _shipped(s3):
            assert first.poll() is None
            time.sleep(0.05)
        log.writelines(f"{line}\n" for line in lines[1000:])
        log.flush()
        first.send_signal(signal.SIGKILL)
        first.wait()
    (tmp_path / "ended").touch()
    assert subprocess.run(command, env=dict(os.environ), timeout=60, check=False).returncode == 0
    assert _shipped(s3) == lines


def _shipped(s3: Any) -> list[str]:
    found = s3.list_objects_v2(Bucket=BUCKET, Prefix="runs/a/logs/a-training-1/").get("Contents", ())
    bodies = [s3.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read().decode() for each in found]
    return [line.split(" ", 1)[1] for body in bodies for line in body.splitlines()]


def test_it_gives_up_on_a_bucket_that_takes_nothing_only_after_the_program_has_ended(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0.log").write_text("one\n")
    (tmp_path / "ended").touch()
    monkeypatch.setattr(ship, "GIVES_UP_SECONDS", 0.0)
    monkeypatch.setattr(ship, "FIRST_INTERVAL_SECONDS", 0.0)
    argv = ["--folder", str(tmp_path), "--job", "a-training-1", "--url", "s3://no-such-bucket/runs/a/"]
    with pytest.raises(ship.StorageFailed, match="give the nodes' role s3:PutObject"):
        ship.main(argv, None)  # type: ignore[arg-type]
