"""Facts about the training in rank 0's log: steps, checkpoints, or that steps are missing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any

from trainflow.client.observe.steps import StepsInOrder
from trainflow.errors import InvalidRunSpec
from trainflow.observed.pod import Pod
from trainflow.observed.step import Step
from trainflow.progress.missing_steps import StepWatch, missing_steps_warning
from trainflow.progress.reader import ProgressReader, lines_apart, unparsable_warning
from trainflow.progress.steps_again import RepetitionWatch
from trainflow.protocol.checkpoint_line import CheckpointReport, parse_checkpoint_line
from trainflow.protocol.checkpoint_pattern import CheckpointPattern
from trainflow.protocol.lost_files import LOST_FILES, LostFiles, parse_lost_files_line
from trainflow.protocol.reported_checkpoints import Reported, newer, reported, unmatched_warning
from trainflow.protocol.restart_line import RESTARTED, Restarted, parse_restarted_line
from trainflow.record.restarts import ignored_warning
from trainflow.record.results import lost_files_warning
from trainflow.spec.run_spec import stored_run_spec
from trainflow.spec.total_steps import total_steps
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import InPlaceRestart, LinesSinceStep, MetricsCursor, Stage, StepsAgain

MAX_FOLLOWED_GANG = 16
"""Pods of one job whose logs are all followed. Of a larger gang only rank 0's and those of failed pods are."""


def may_hold_rank0(pod: Pod) -> bool:
    """Whether a pod may hold rank 0, the only rank that prints steps. In an elastic gang any pod may."""
    return pod.stage == Stage.TRAINING and (pod.index == 0 or pod.elastic)


class TrainingLog:
    """Takes the log line by line; threads may add lines and ask at the same time."""

    def __init__(
        self,
        spec: Callable[[], Mapping[str, Any] | None],
        *,
        behind: MetricsCursor | None = None,
        run_id: str = "",
    ) -> None:
        """Reads nothing yet.

        Args:
            spec: The run spec, which contains the format of steps; None while it is not known yet. Lines wait for it.
            behind: Position after the lines that are known already.
            run_id: The run, whose folder has the same name.
        """
        self._run_id = run_id
        self._spec, self._behind = spec, behind or MetricsCursor()
        self._lock = threading.Lock()
        self._reader: ProgressReader | None = None
        self._watch = StepWatch(self._behind)
        self._pod = self._behind.log.pod if self._behind.log else None
        self._waiting: list[tuple[str | None, LogLine]] = []
        """Lines, with their pods, that came before the spec."""
        self._steps: list[Step] = []
        """Finished steps in the order of the log, repeated ones included."""
        self._in_order = StepsInOrder()
        self._checkpoints: list[CheckpointReport] = []
        self._restarts: list[InPlaceRestart] = []
        self._repetitions = RepetitionWatch(self._behind)
        self._lost_files = self._behind.lost_files
        self._pattern: CheckpointPattern | None = None
        self._reported = self._behind.reported_checkpoint

    def read(self, line: LogLine, pod: str | None = None) -> None:
        """Take the next line of a pod."""
        with self._lock:
            self._waiting.append((pod, line))
            self._read_waiting()

    def lines(self) -> list[Step]:
        """Every step that was printed, in the order of the log."""
        with self._lock:
            self._read_waiting()
            return self._printed()

    def steps(self) -> tuple[Step, ...]:
        """The steps in their order, repeated ones once."""
        with self._lock:
            self._read_waiting()
            return self._in_order.all()

    def checkpoints(self) -> list[CheckpointReport]:
        """The checkpoints that were reported, in the order of the log."""
        with self._lock:
            self._read_waiting()
            return list(self._checkpoints)

    def restarts(self) -> list[InPlaceRestart]:
        """The restarts in the pods, in the order of the log, with those that were known before."""
        with self._lock:
            self._read_waiting()
            known = [each.place for each in self._behind.in_place]
            return [*self._behind.in_place, *(each for each in self._restarts if each.place not in known)]

    def steps_again(self) -> list[StepsAgain]:
        """The places where a restarted program went back to a step, with those that were known before."""
        with self._lock:
            self._read_waiting()
            return [*self._behind.steps_again, *self._repetitions.found]

    def lost_files(self) -> LostFiles | None:
        """The files that the program has left in its working folder, as the newest such line says."""
        with self._lock:
            self._read_waiting()
            return self._lost_files

    def since_step(self, now: datetime | None = None) -> LinesSinceStep:
        """The lines since the newest step."""
        with self._lock:
            self._read_waiting()
            return self._watch.polled(now)

    def warnings(self, now: datetime | None = None) -> list[str]:
        """Warnings about steps that the log lacks although the spec announces them, unreadable lines of steps, and lost
        files.

        Args:
            now: Current time, for logs that go on; None for one that has ended.
        """
        missing = self.since_step(now).missing
        with self._lock:
            read_now = self._reader.num_unparsable if self._reader else 0
        said = None
        if missing is not None:
            with suppress(InvalidRunSpec):
                said = missing_steps_warning(stored_run_spec(self._spec() or {}).progress, missing)
        unparsable = unparsable_warning(self._behind.lines_unparsable + read_now)
        lost = lost_files_warning(self._lost_files) if self._lost_files else None
        unmatched = unmatched_warning(self._reported, self._pattern.text) if self._pattern else None
        ignored = ignored_warning(self._behind.ignored, self._pattern.text) if self._pattern else None
        return [each for each in (said, unparsable, unmatched, ignored, lost) if each]

    def reported_checkpoint(self) -> Reported | None:
        """A checkpoint that the log reports, compared with the spec's pattern."""
        with self._lock:
            self._read_waiting()
            return self._reported

    def _read_waiting(self) -> None:
        if self._reader is None and self._waiting and (spec := self._spec()) is not None:
            self._reader, self._pattern = _reader(spec, self._behind), _pattern(spec)
        if self._reader is None:
            return
        for pod, line in self._waiting:
            if pod != self._pod:
                if self._pod is not None:
                    self._repetitions.begin(held=self._reader.held)
                self._pod = pod
                self._watch.begin(None)
            if self._pattern is not None:
                self._reported = newer(self._reported, reported(line.text, self._pattern, self._run_id))
            saved = parse_checkpoint_line(line.text, line.logged_at)
            if saved is not None:
                self._checkpoints.append(saved)
                continue
            if LOST_FILES in line.text and (lost := parse_lost_files_line(line.text)) is not None:
                self._lost_files = lost
                continue
            if RESTARTED in line.text and (said := parse_restarted_line(line.text)) is not None:
                self._restarts.append(self._restart(said, line))
                self._repetitions.begin(line.logged_at, self._reader.held)
                continue
            before, found_before = self._reader.held, self._reader.num_found
            read = self._reader.read(line)
            self._repetitions.add(read, line.logged_at)
            for step in read:
                self._steps.append(step)
                self._in_order.add(step)
            if (held := self._reader.held) is not None and held is not before:
                self._in_order.add(held)
            if self._reader.num_found == found_before:
                self._watch.add(line)
            else:
                self._watch.found(line, self._reader.last_step)
        self._waiting.clear()

    def _restart(self, said: Restarted, line: LogLine) -> InPlaceRestart:
        printed = [self._behind.last_step, *(step.step for step in self._printed())]
        last_step = max((step for step in printed if step is not None), default=None)
        return InPlaceRestart(**asdict(said), at=line.logged_at, last_step=last_step)

    def _printed(self) -> list[Step]:
        held = self._reader.held if self._reader else None
        return [*self._steps, held] if held else list(self._steps)


def _pattern(spec: Mapping[str, Any]) -> CheckpointPattern | None:
    checkpoint = spec.get("checkpoint")
    path = checkpoint.get("path") if isinstance(checkpoint, Mapping) else None
    return CheckpointPattern(path) if isinstance(path, str) else None


def _reader(spec: Mapping[str, Any], behind: MetricsCursor) -> ProgressReader:
    try:
        valid = stored_run_spec(spec)
    except InvalidRunSpec:
        return ProgressReader("auto")
    total = total_steps(spec, behind.first_step)
    return ProgressReader(valid.progress, lines_apart=lines_apart(valid), total=total, behind=behind)
