"""Start a program with its newest complete checkpoint.

A run that continues others is given their newest checkpoint until it has one of its own. The path is added to the
program's words and put into TRAINFLOW_CHECKPOINT. A line names the checkpoint for the workflow: a newer one than
before shows that the attempt before has got further. All nodes of a gang take the same checkpoint: the first node that
has decided leaves its decision in the run's folder, and the others read it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainer.checkpoints.patterns import Rules, find, newest_complete
from trainer.runtime.errors import ConfigInvalid, StorageFailed, none_to_continue_from
from trainer.runtime.node import SHARED_NOTES, Node, Prepared
from trainflow.protocol import variables
from trainflow.protocol.checkpoint_line import resumed_line
from trainflow.protocol.placeholders import CHECKPOINT, filled_by_workflow
from trainflow.protocol.plan import Resume


def prepare(step: Resume, node: Node) -> Prepared:
    """Choose the checkpoint.

    Raises:
        ConfigInvalid: If there is no folder of the run.
        StorageFailed: If the decision cannot be written or read.
        CheckpointNotFound: If the run continues others, and none of them has a complete checkpoint.
    """
    run_dir = node.environment.run_dir
    if run_dir is None:
        raise ConfigInvalid(f"{variables.RUN_DIR} is missing; it has to name the run's folder.")
    earlier = node.environment.earlier_folders(run_dir)
    chosen = agreed(step, run_dir, earlier)
    if chosen is None and earlier:
        raise none_to_continue_from(earlier)
    if chosen is None:
        return Prepared()
    print(f"Resuming from {chosen}.", flush=True)
    for number in numbers(step, Path(chosen), (run_dir, *earlier)):
        print(resumed_line(number), flush=True)
    words = (filled_by_workflow(word, {CHECKPOINT: chosen}, by_launcher=False) for word in step.words)
    return Prepared(variables={variables.CHECKPOINT: chosen}, words=tuple(words))


def agreed(step: Resume, run_dir: Path, earlier: Sequence[Path] = ()) -> str | None:
    """The checkpoint that this gang resumes from; None to begin anew.

    Args:
        step: The checkpoints.
        run_dir: The run's folder.
        earlier: Folders of the runs that it continues, the newest first: theirs count while it has none of its own.

    Raises:
        StorageFailed: If the decision cannot be written or read.
    """
    decision = run_dir / SHARED_NOTES / f"{step.decision}.json"
    try:
        decision.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=decision.parent, encoding="utf-8") as proposal:
            now = Path(proposal.name).stat().st_mtime
            found_in = (newest(step, folder, now=now) for folder in (run_dir, *earlier))
            chosen = next((path for path in found_in if path is not None), None)
            json.dump(None if chosen is None else str(chosen), proposal)
            proposal.flush()
            os.fsync(proposal.fileno())
            with suppress(FileExistsError):  # another node was first
                os.link(proposal.name, decision)
        found: str | None = json.loads(decision.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageFailed(f"{decision} cannot be written or read ({error}); check the run's folder.") from error
    return found


def newest(step: Resume, run_dir: Path, *, now: float) -> Path | None:
    """The newest complete checkpoint; incomplete ones that are newer are named on the way."""
    rules = Rules(marker=step.marker, settled_seconds=step.settled_seconds, now=now)
    chosen, passed_over = newest_complete(find(step.path, run_dir), rules)
    for skipped, reason in passed_over:
        print(f"{skipped.path} is not complete and is passed over: {reason}.", flush=True)
    return None if chosen is None else chosen.path


def numbers(step: Resume, chosen: Path, folders: Sequence[Path]) -> list[int]:
    """The number of the chosen checkpoint among those of its run; empty if it is gone."""
    return [found.number for folder in folders for found in find(step.path, folder) if found.path == chosen][:1]
