"""One attempt at a program: types the commands of the documentation, and keeps all that is shown with its time."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.gallery.data_makers import MAKERS
from benchmarks.gallery.programs import Program

DEADLINE_SECONDS = 600.0
"""A run takes two to four minutes on two busy cores."""
SETTLE_SECONDS = 1.0
"""Time between the first checkpoint and the kill; the program goes on meanwhile."""
LIVE_STEPS = 3
"""Live steps before the kill of a program without checkpoints."""
UNSEEN_SECONDS = 30.0
"""Time until a program that shows no step is killed; five times as long if it should write a checkpoint."""

STEP = re.compile(r"^\[ *[\d:]+\] step ([\d,]+)")
RESTART = re.compile(r"^\[ *[\d:]+\] restart \d+")
ENDED_POD = re.compile(r"^\[ *[\d:]+\] pod \S+-training-\d+-\S+ Succeeded")


@dataclass(frozen=True)
class Typed:
    """A command and its answer."""

    command: str
    status: int
    output: str


@dataclass(frozen=True)
class Line:
    """A line of `trainflow run`, and the wall time when it was read."""

    seen_at: float
    text: str


@dataclass
class Attempt:
    """Evidence of one program's run."""

    program: str
    typed: list[Typed] = field(default_factory=list)
    spec_text: str = ""
    """The spec as `init` wrote it."""
    lines: list[Line] = field(default_factory=list)
    killed: str = ""
    """Process that was killed, and why then; empty if none was."""
    record: dict[str, Any] = field(default_factory=dict)
    report: str = ""
    logs: dict[str, str] = field(default_factory=dict)
    """Logs of the training's pods, by file name."""
    first_line_at: float | None = None
    """Wall time of the program's first line."""
    published: list[str] = field(default_factory=list)
    """Published files, below the run's folder."""

    def to_json(self) -> str:
        """The evidence as JSON, for a person who asks why a cell is not green."""
        return json.dumps(asdict(self), indent=1)


def attempt(program: Program, checkouts: Path, folder: Path) -> Attempt:
    """Type the commands for a program in a copy of its project.

    Args:
        program: The program.
        checkouts: Folder with a checkout of each repository.
        folder: New folder for the copy, its data and the run.
    """
    project = folder / program.project
    made = Attempt(program.name)
    shutil.copytree(checkouts / program.checkout / program.folder, project)
    for data in program.data:
        MAKERS[data.make](project / data.at)
    nodes = ["--nodes", str(program.num_nodes), "--processes", "1"]
    if _typed(made, project, "init", "--from", program.script, *nodes).status != 0:
        return made
    made.spec_text = (project / "spec.yaml").read_text(encoding="utf-8")
    small = override(program, yaml.safe_load(made.spec_text))
    (project / "small.yaml").write_text(yaml.safe_dump(small), encoding="utf-8")
    _typed(made, project, "validate", "spec.yaml", "--override", "small.yaml")
    if not program.needs:
        _followed(made, program, project)
        _read(made, project)
    return made


def override(program: Program, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the spec that make the program small, and nothing that `init` has to find.

    An override replaces a list, so that the arguments that `init` wrote are repeated behind the program's, where they
    also count after a file of settings.
    """
    workload: dict[str, Any] = dict(program.workload)
    if program.arguments:
        workload["arguments"] = dict(program.arguments)
    if program.positional:
        written = [word for word in spec["workload"].get("positional") or [] if "change-me" not in str(word)]
        workload["positional"] = [*program.positional, *written]
    workload["env"] = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **program.env}
    return {"workload": workload, "compute": {"check_nodes": False}}


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "trainflow", *words]


def _typed(made: Attempt, project: Path, *words: str) -> Typed:
    done = subprocess.run(_command(*words), cwd=project, capture_output=True, text=True, check=False)
    made.typed.append(Typed(f"trainflow {' '.join(words)}", done.returncode, (done.stdout + done.stderr)[-4000:]))
    return made.typed[-1]


def _followed(made: Attempt, program: Program, project: Path) -> None:
    words = ("run", "spec.yaml", "--local", "--override", "small.yaml", "--no-page")
    with subprocess.Popen(
        _command(*words), cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as run:
        reader = threading.Thread(target=_keep_lines, args=(run, made.lines), daemon=True)
        reader.start()
        deadline = time.monotonic() + DEADLINE_SECONDS
        killing = _Killing(program, run.pid, made)
        while run.poll() is None and time.monotonic() < deadline:
            place_downloads(program, project)
            if not made.killed:
                with suppress(OSError, psutil.Error):  # processes come and go while they are looked at
                    killing.poll()
            time.sleep(0.5)
        if run.poll() is None:
            run.send_signal(signal.SIGTERM)
            made.killed += f"; stopped after {DEADLINE_SECONDS:.0f} s"
        with suppress(subprocess.TimeoutExpired):
            run.wait(60)
        if run.poll() is None:
            run.kill()
        reader.join(10)
    output = "\n".join(line.text for line in made.lines)
    made.typed.append(Typed(f"trainflow {' '.join(words)}", run.returncode, output[-4000:]))


def place_downloads(program: Program, project: Path) -> None:
    """Put data that the program would download beside its folder there, because the gallery uses no network.

    Such data is outside of the packed code, and the run's folder exists only after the run's start.
    """
    runs = project / ".trainflow/volumes/runs"
    for workspace in (*runs.glob("*/workspace"), *runs.glob("*/.trainflow/workspace/[0-9]*")):
        for data in program.data:
            target = workspace.parent / Path(data.at).relative_to("..") if data.at.startswith("../") else None
            if target is not None and not target.exists():
                shutil.copytree(project / data.at, target)


def _keep_lines(run: subprocess.Popen[str], lines: list[Line]) -> None:
    assert run.stdout is not None
    for text in run.stdout:
        lines.append(Line(time.time(), text.rstrip("\n")))


class _Killing:
    """Kills the process of the highest rank once: after the first checkpoint, or after the first live steps."""

    def __init__(self, program: Program, command_pid: int, made: Attempt) -> None:
        self._program, self._made = program, made
        self._command = psutil.Process(command_pid)
        self._found_at: float | None = None
        self._appeared_at: float | None = None

    def poll(self) -> None:
        workers = sorted(self._workers(), key=lambda worker: (worker[0], -worker[1]))  # its own loaders are younger
        if not workers:
            return
        self._appeared_at = self._appeared_at or time.monotonic()
        reason = self._reason(workers)
        if reason is None:
            return
        self._found_at = self._found_at or time.monotonic()
        if time.monotonic() - self._found_at < SETTLE_SECONDS:
            return
        rank, pid = workers[-1]
        os.kill(pid, signal.SIGKILL)
        self._made.killed = f"rank {rank} got SIGKILL {reason}"

    def _reason(self, workers: Sequence[tuple[int, int]]) -> str | None:
        assert self._appeared_at is not None
        steps = sum(1 for line in self._made.lines if STEP.match(line.text))
        alive = time.monotonic() - self._appeared_at
        glob = self._program.checkpoint
        if glob is not None:
            found = next((path for _, pid in workers for path in _written(pid, glob)), None)
            if found is not None:
                return f"after its first checkpoint, {found}"
            return f"without a checkpoint for {alive:.0f} s" if alive > 5 * UNSEEN_SECONDS else None
        if steps >= LIVE_STEPS:
            return f"after {steps} live steps"
        return f"without a live step for {alive:.0f} s" if alive > UNSEEN_SECONDS else None

    def _workers(self) -> Iterator[tuple[int, int]]:
        """Rank and process of each Python process of the program."""
        script = Path(self._program.script).name
        for process in self._command.children(recursive=True):
            words = process.cmdline()
            if not any(Path(word).name == script for word in words[1:3]) or "python" not in Path(words[0]).name:
                continue
            environment = process.environ()
            if environment.get("TRAINFLOW_STAGE") == "training":
                rank = environment.get("RANK") or environment.get("TRAINFLOW_NODE_RANK") or "0"
                yield int(rank), process.pid


def _written(pid: int, glob: str) -> Iterator[str]:
    """Files that match, in the program's working folder or in the run's folder, as the program sees them."""
    environment = psutil.Process(pid).environ()
    seen = Path(f"/proc/{pid}/root")
    folders = {str(Path(f"/proc/{pid}/cwd").readlink()), environment.get("TRAINFLOW_RUN_DIR", "")}
    for folder in folders:
        if folder:
            inside = seen / folder.lstrip("/")
            yield from (str(path.relative_to(inside)) for path in inside.glob(glob))


def _read(made: Attempt, project: Path) -> None:
    latest = project / "out/latest"
    with suppress(OSError, ValueError):
        made.record = json.loads((latest / "run.json").read_text(encoding="utf-8"))
    with suppress(OSError):
        made.report = (latest / "report.html").read_text(encoding="utf-8")
    for log in sorted(latest.glob("logs/*-training-*.log")):
        made.logs[log.name] = log.read_text(encoding="utf-8", errors="replace")[-200_000:]
    made.first_line_at = _first_line(latest)
    artifacts = project / ".trainflow/s3/trainflow-artifacts/runs" / str(made.record.get("run_id"))
    made.published = sorted(path.relative_to(artifacts).as_posix() for path in artifacts.rglob("*") if path.is_file())


def _first_line(latest: Path) -> float | None:
    """Wall time of the first line of the first attempt's rank 0."""
    for times in sorted(latest.glob("logs/*-training-1-0-*.times")):
        for line in times.read_text(encoding="utf-8").splitlines():
            return datetime.fromisoformat(line.split()[0]).timestamp()
    return None
