"""Start a program with its newest complete checkpoint.

A run that continues others is given their newest checkpoint until it has one of its own. The path is added to the
program's words and put into TRAINFLOW_CHECKPOINT. A line names the checkpoint for the workflow: a newer one than
before shows that the attempt before has got further. All nodes of a gang take the same checkpoint: the first node that
has decided leaves its decision in the run's folder, and the others read it.

A checkpoint that the program of an earlier job could not open is passed over, as long as it is the same: the decision
has the time of its last change. If no other one is left, the job fails, since a run of days must not begin anew without
a word (docs/decisions/0089-fall-back-to-the-checkpoint-before.md).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from trainer.checkpoints.patterns import Found, Rules, changed_at, complete_ones, divided, find
from trainer.runtime.errors import ConfigInvalid, StorageFailed, all_checkpoints_unusable, none_to_continue_from
from trainer.runtime.files import shown
from trainer.runtime.node import SHARED_NOTES, Node, Prepared
from trainflow.protocol import variables
from trainflow.protocol.checkpoint_line import Opening, opening_line, resumed_line
from trainflow.protocol.placeholders import CHECKPOINT, filled_by_workflow
from trainflow.protocol.plan import Resume
from trainflow.protocol.resume_bounds import ResumeBound

NO_BOUNDS: Mapping[Path, ResumeBound] = {}


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The checkpoint that a job's program opens."""

    path: str
    before: str | None
    """The complete one before it; None without another one."""
    number: int
    changed_at: float
    """Time of its last change, in seconds since 1970."""


def prepare(step: Resume, node: Node, *, round_number: int = 0) -> Prepared:
    """Choose the checkpoint.

    Args:
        step: The checkpoints.
        node: This node.
        round_number: Number of the restart in the same pods; each has a decision of its own.

    Raises:
        ConfigInvalid: If the run's folder does not exist.
        StorageFailed: If the decision cannot be written or read.
        CheckpointNotFound: If the run continues others, and none of them has a complete checkpoint, or if the programs
            of earlier jobs could open none.
    """
    run_dir = node.environment.run_dir
    if run_dir is None:
        raise ConfigInvalid(f"{variables.RUN_DIR} is missing; it has to name the run's folder.")
    earlier = node.environment.earlier_folders(run_dir)
    chosen = agreed(step, run_dir, earlier, node.environment.bounds(run_dir), round_number=round_number)
    if chosen is None and step.passed_over:
        raise all_checkpoints_unusable(run_dir)
    if chosen is None and earlier:
        raise none_to_continue_from(earlier)
    if chosen is None:
        return Prepared()
    print(f"Resuming from {shown(chosen.path)}.", flush=True)
    print(resumed_line(chosen.number), flush=True)
    print(opening_line(Opening(path=chosen.path, before=chosen.before)), file=sys.stderr, flush=True)
    words = (filled_by_workflow(word, {CHECKPOINT: chosen.path}, by_launcher=False) for word in step.words)
    return Prepared(variables={variables.CHECKPOINT: chosen.path}, words=tuple(words))


def agreed(
    step: Resume,
    run_dir: Path,
    earlier: Sequence[Path] = (),
    bounds: Mapping[Path, ResumeBound] = NO_BOUNDS,
    *,
    round_number: int = 0,
) -> Decision | None:
    """The checkpoint that this gang resumes from; None to begin anew.

    Args:
        step: The checkpoints.
        run_dir: The run's folder.
        earlier: Folders of the runs that it continues, the newest first: used until the run has its own checkpoint.
        bounds: Bounds for the checkpoints in these folders.
        round_number: Number of the restart in the same pods.

    Raises:
        StorageFailed: If the decision cannot be written or read.
    """
    notes = run_dir / SHARED_NOTES
    newest = decision = notes / f"{step.decision}.json"
    if round_number:
        decision = notes / f"{step.decision}.round-{round_number}.json"
    try:
        notes.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=notes, encoding="utf-8") as proposal:
            now = Path(proposal.name).stat().st_mtime
            unusable = [found for name in step.passed_over if (found := read(notes / f"{name}.json")) is not None]
            chosen = choose(step, (run_dir, *earlier), unusable, now=now, bounds=bounds)
            json.dump(None if chosen is None else asdict(chosen), proposal)
            proposal.flush()
            os.fsync(proposal.fileno())
            with suppress(FileExistsError):  # another node was first
                os.link(proposal.name, decision)
        if round_number:
            _replace(newest, decision)  # later jobs read the decision of the newest round
        return read(decision)
    except (OSError, ValueError, TypeError) as error:
        raise StorageFailed(f"{decision} cannot be written or read ({error}); check the run's folder.") from error


def _replace(file: Path, source: Path) -> None:
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        link = Path(folder) / file.name
        os.link(source, link)
        link.replace(file)


def newest_number(step: Resume, node: Node) -> int | None:
    """Number of the newest complete checkpoint of the run; None without one."""
    run_dir = node.environment.run_dir
    if run_dir is None:
        return None
    rules = Rules(marker=step.marker, settled_seconds=step.settled_seconds, now=time.time(), may_be_cut_off=True)
    found = (each.number for each, reason in complete_ones(find(step.path, run_dir), rules) if reason is None)
    return next(found, None)


def read(decision: Path) -> Decision | None:
    """A decision; None for one to begin anew, and for one that is gone.

    Raises:
        OSError, ValueError, TypeError: If it cannot be read.
    """
    if not decision.exists():
        return None
    said = json.loads(decision.read_text(encoding="utf-8"))
    return None if said is None else Decision(**said)


def choose(
    step: Resume,
    folders: Sequence[Path],
    unusable: Sequence[Decision],
    *,
    now: float,
    bounds: Mapping[Path, ResumeBound] = NO_BOUNDS,
) -> Decision | None:
    """Choose the newest complete checkpoint; those that are passed over are named on the way.

    Args:
        step: The checkpoints.
        folders: The run's folder, and those of the runs that it continues.
        unusable: Checkpoints that could not be opened.
        now: Present time of the file system's clock.
        bounds: Bounds for the checkpoints in the folders.
    """
    chosen = list(islice(_usable(step, folders, unusable, now=now, bounds=bounds), 2))
    if not chosen:
        return None
    before = str(chosen[1].path) if len(chosen) > 1 else None
    return Decision(
        path=str(chosen[0].path), before=before, number=chosen[0].number, changed_at=changed_at(chosen[0].path)
    )


def _usable(
    step: Resume,
    folders: Sequence[Path],
    unusable: Sequence[Decision],
    *,
    now: float,
    bounds: Mapping[Path, ResumeBound],
) -> Iterator[Found]:
    """The complete checkpoints, the newest first. Only those newer than the first one are named when passed over."""
    rules = Rules(marker=step.marker, settled_seconds=step.settled_seconds, now=now, may_be_cut_off=True)
    has_one = False
    for folder in folders:
        within, beyond = divided(find(step.path, folder), bounds.get(folder))
        for found in () if has_one else beyond:
            print(f"{shown(str(found.path))} is passed over: {shown(bounds[folder].reason)}.", flush=True)
        for found, reason in complete_ones(within, rules):
            if reason is None and (could_not := _unusable(found, unusable)):
                print(f"{shown(could_not.path)} is passed over: an earlier attempt could not open it.", flush=True)
            elif reason is None:
                yield found
                has_one = True
            elif not has_one:
                print(f"{shown(str(found.path))} is not complete and is passed over: {shown(reason)}.", flush=True)


def _unusable(found: Found, unusable: Sequence[Decision]) -> Decision | None:
    """The decision for a checkpoint that could not be opened; None if it has been written again since."""
    same = (each for each in unusable if each.path == str(found.path))
    return next((each for each in same if changed_at(found.path) <= each.changed_at), None)
