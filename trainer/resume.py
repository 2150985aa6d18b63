"""Start a program with its newest complete checkpoint: `python -m trainer.resume --path 'step-{step}.pt' … -- COMMAND`.

A run that continues others is given their newest checkpoint until it has one of its own. The path is added to the
command line and put into TRAINFLOW_CHECKPOINT. A line tells the workflow which checkpoint it is: a newer one than
before shows that the attempt before has got further. All nodes of a gang take the same checkpoint: the first node that
has decided leaves its decision in the run's folder, and the others read it. The command replaces this process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trainer.checkpoints.patterns import Rules, find, newest_complete
from trainer.runtime import program
from trainer.runtime.arguments import divided, parse
from trainer.runtime.commands import become
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid, StorageFailed, none_to_continue_from
from trainflow.protocol import variables
from trainflow.protocol.checkpoint_line import resumed_line
from trainflow.protocol.placeholders import CHECKPOINT, filled_by_workflow

DECISIONS = ".trainflow"
"""Folder of the run's folder for what the helpers of different nodes tell each other; it is not published."""


@dataclass(frozen=True, kw_only=True)
class ResumeConfig:
    """The checkpoints, and what a program is told about the newest."""

    path: str
    """Path below the run's folder; `{step}` is a number, `*` any part of a name."""
    words: str = "[]"
    """JSON list of the words to add to the command, with the placeholder `{checkpoint}`."""
    marker: str | None = None
    """Name of a file that only a complete checkpoint's folder has."""
    settled_seconds: float = 60.0
    """Time without a change after which a checkpoint of an unknown format is complete."""
    decision: str
    """Name of this job's decision."""


def main(argv: Sequence[str], environment: Environment) -> NoReturn:
    """Choose the checkpoint, and replace this process by the command.

    Raises:
        ConfigInvalid: If there is no command or no folder of the run.
        StorageFailed: If the decision cannot be written or read.
        CheckpointNotFound: If the run continues others, and none of them has a complete checkpoint.
    """
    own, command = divided(argv)
    config = parse(ResumeConfig, own, program="trainer.resume")
    if not command or environment.run_dir is None:
        raise ConfigInvalid(f"Give the program behind `--`, and the run's folder in {variables.RUN_DIR}.")
    earlier = environment.earlier_folders(environment.run_dir)
    chosen = agreed(config, environment.run_dir, earlier)
    if chosen is None and earlier:
        raise none_to_continue_from(earlier)
    variable = {}
    if chosen is not None:
        print(f"Resuming from {chosen}.", flush=True)
        for number in numbers(config, Path(chosen), (environment.run_dir, *earlier)):
            print(resumed_line(number), flush=True)
        variable = {variables.CHECKPOINT: chosen}
        words = [str(word) for word in json.loads(config.words)]
        command += [filled_by_workflow(word, {CHECKPOINT: chosen}, by_launcher=False) for word in words]
    become(command, variable)


def agreed(config: ResumeConfig, run_dir: Path, earlier: Sequence[Path] = ()) -> str | None:
    """The checkpoint that this gang resumes from; None to begin anew.

    Args:
        config: The checkpoints.
        run_dir: The run's folder.
        earlier: Folders of the runs that it continues, the newest first: theirs count while it has none of its own.

    Raises:
        StorageFailed: If the decision cannot be written or read.
    """
    decision = run_dir / DECISIONS / f"{config.decision}.json"
    try:
        decision.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=decision.parent, encoding="utf-8") as proposal:
            now = Path(proposal.name).stat().st_mtime
            found_in = (newest(config, folder, now=now) for folder in (run_dir, *earlier))
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


def newest(config: ResumeConfig, run_dir: Path, *, now: float) -> Path | None:
    """The newest complete checkpoint; incomplete ones that are newer are named on the way."""
    rules = Rules(marker=config.marker, settled_seconds=config.settled_seconds, now=now)
    chosen, passed_over = newest_complete(find(config.path, run_dir), rules)
    for skipped, reason in passed_over:
        print(f"{skipped.path} is not complete and is passed over: {reason}.", flush=True)
    return None if chosen is None else chosen.path


def numbers(config: ResumeConfig, chosen: Path, folders: Sequence[Path]) -> list[int]:
    """The number of the chosen checkpoint among those of its run; empty if it is gone."""
    return [found.number for folder in folders for found in find(config.path, folder) if found.path == chosen][:1]


if __name__ == "__main__":
    program.raise_on_sigterm()
    sys.exit(program.run(main, sys.argv[1:], os.environ))
