"""The plan of a gang: what each of its nodes prepares, the order of these steps, and the program that it starts.

The workflow writes one plan for a job. On every node the supervisor (`trainer.supervisor`) reads it, executes the steps
and starts the program. A plan is text for people as well: one line of JSON for each step (docs/architecture.md, "A
gang's command"; docs/decisions/0084-plan-of-a-gang.md).
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from trainflow.protocol.publication import KEPT_GIB

VERSION = 1
"""Version of the document. A supervisor executes plans of its own version only."""

MAX_PIECE = 32_000
"""Characters of a plan in one word of a command: Linux takes 131,071 bytes, and a character has up to 4 (execve(2),
MAX_ARG_STRLEN)."""

Launcher = Literal["torchrun", "none", "mpi"]
"""Program that starts the processes of a node."""

Value = TypeVar("Value")


class PlanInvalid(ValueError):
    """A text is not a plan; the message begins with the field."""


@dataclass(frozen=True, kw_only=True)
class SecretSource:
    """A secret of AWS Secrets Manager."""

    secret: str
    """Name or ARN."""
    key: str | None = None
    """Key of the JSON object that the secret holds; None for the whole text."""


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """Read secrets with the pod's own role into environment variables."""

    variables: Mapping[str, SecretSource]
    """Source of each variable. A plan never holds a value."""


@dataclass(frozen=True, kw_only=True)
class LockedMemory:
    """Require that the process may lock the memory that EFA registers."""

    mebibytes: int


@dataclass(frozen=True, kw_only=True)
class AbandonedLocks:
    """Remove the lock files that processes of an earlier attempt have left."""

    job: str
    """Name of this job: its nodes remove locks once."""
    caches: tuple[str, ...]
    """Folders of files that may be lost."""
    results: tuple[str, ...] = ()
    """Folders of results, where only an empty file can be a lock."""


@dataclass(frozen=True, kw_only=True)
class NodeTest:
    """Test devices and network of the gang's nodes."""

    processes: int
    """Processes on each node."""


@dataclass(frozen=True, kw_only=True)
class CompileCache:
    """Copy a sealed compile cache to this node, and use the copy."""

    source: str
    """Folder of the shared cache."""


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Choose the newest complete checkpoint, the same one on all nodes."""

    path: str
    """Path below the run's folder; `{step}` is a number, `*` any part of a name, `**` any folders."""
    words: tuple[str, ...] = ()
    """Words to add to the program's, with the placeholder `{checkpoint}`."""
    marker: str | None = None
    """Name of a file that only a complete checkpoint's folder has."""
    settled_seconds: float = 60.0
    """A checkpoint of an unknown format is complete if it has not changed for this time."""
    decision: str
    """Name of this job's decision."""
    passed_over: tuple[str, ...] = ()
    """Decisions of earlier jobs, whose programs could not open the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Code:
    """Enter the folder of the run's code, and install what the code requires."""

    folder: str
    """Folder of the code; relative to the working directory on Slurm's nodes."""
    url: str | None = None
    """Archive to fetch into the folder; None where an init container has done so."""
    requirements: str | None = None
    """Requirements file inside the folder."""
    packages: str | None = None
    """Folder of the run's own, with a folder for each set of required packages."""
    shared_packages: str | None = None
    """Folder with the sets of packages that all runs share; None where runs share nothing."""
    writes_shared: bool = False
    """Whether this node installs packages there. In pods, a program of Trainflow's image does (decision 92)."""
    replace_packages: tuple[str, ...] = ()
    """Packages of the image that requirements may replace although its stack depends on them."""
    kept_gib: int = KEPT_GIB
    """In a training, the program works in a copy of the code below the run's folder, whose files outlast the pod. At a
    restart, a node copies at most so many GiB of other nodes' files. With 0, the program works in the code's folder, as
    it does in a precompilation and in the preflight's probe."""

    def __post_init__(self) -> None:
        if (self.requirements is None) != (self.packages is None):
            raise PlanInvalid("code: needs requirements and packages together, or neither.")


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """Fetch what the code requires, for a program of Trainflow's image that installs it for all runs."""

    code: Code


@dataclass(frozen=True, kw_only=True)
class Precompile:
    """Run the program so that it only compiles, and seal the cache."""

    retry_failed: bool = False
    """Whether graphs that failed before are compiled again."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Print the steps that the program writes to files. Without files, print that files of the run have changed."""

    tensorboard: str | None = None
    """Folder of TensorBoard event files, relative to the run's folder."""
    trainer_state: str | None = None
    """Glob of Hugging Face's trainer_state.json, relative to the run's folder."""
    search: bool = False
    """Whether to look for files with steps below the run's folder and the working folder: the program's log may show
    none."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Report the exception of the rank that failed first, files that the program leaves in its working folder, and the
    stacks of ranks that stand still."""

    volumes: tuple[str, ...] = ()
    """Mount paths of the spec's volumes: files there are not lost."""
    quiet_seconds: float = 60.0
    """Stacks are reported when no rank of the node has moved for this time."""


@dataclass(frozen=True, kw_only=True)
class Restart:
    """Start the program again in the same pods when a signal has ended one of its ranks."""

    job: str
    """Name of the job, for the votes of its nodes."""


@dataclass(frozen=True, kw_only=True)
class Elastic:
    """Rendezvous of a gang that may shrink: its ranks are assigned at run time."""

    min_nodes: int
    max_nodes: int
    store: str
    """Host and port of the store, as `host:port`."""
    id: str
    max_restarts: int


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Start the program."""

    launcher: Launcher
    num_nodes: int
    processes: int
    """Processes on each node; launcher `none` starts one, whatever this says."""
    port: int
    """Port of the rendezvous on the first node."""
    elastic: Elastic | None = None
    max_steps: int | None = None
    """Most steps of the optimizer: a Python program is ended after them; None without a limit."""
    is_python: bool = True
    """Whether the words follow `python`, as `train.py` and `-m train` do."""
    program: tuple[str, ...]
    """The program and its words; launchers other than torchrun fill in `{rank}`."""

    def __post_init__(self) -> None:
        if not self.program:
            raise PlanInvalid("launch.program: needs the program's name.")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Examine whether the program can run; the preflight does so before it asks for nodes."""

    words: tuple[str, ...]
    """Words of `trainer.probe`."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The steps of one job's nodes. They are executed in the order of these fields; the reason stands below each."""

    secrets: Secrets | None = None
    """First: every later step has these variables, as it has those of Kubernetes Secrets. The packages' index may need
    one."""
    locked_memory: LockedMemory | None = None
    """Before all that takes time: the check takes none, and EFA would fail late, inside the first step."""
    abandoned_locks: AbandonedLocks | None = None
    """Before every step that the nodes of a gang meet in: from then on locks may be their own."""
    node_test: NodeTest | None = None
    """Before anything is copied or installed for a gang that may have to leave a node. The test runs with the image's
    own packages, so it comes before the code's are on the path."""
    compile_cache: CompileCache | None = None
    """After the test, whose own graphs are not the training's."""
    resume: Resume | None = None
    """After all that may take long, so that the newest checkpoint is still the newest when the program starts."""
    code: Code | None = None
    """Last of the preparations: it changes the working folder and the search paths, which are the program's only. Its
    packages are installed already, since the preflight's probe has the same step."""
    precompile: Precompile | None = None
    """Around the program: its output is read, and the cache is sealed after it."""
    progress: Progress | None = None
    """Beside the program, from its start to its end: functions read the log and no file system."""
    report: Report | None = None
    """Beside the program, and after it: files that it has left can be found only then. Not on Slurm's nodes: Slurm
    signals every process of a job itself, so a parent would pass on each signal once more."""
    restart: Restart | None = None
    """Around the program only: what is beside it and the preparations stay, except for the choice of the checkpoint.
    Not on Slurm's nodes, whose supervisor is replaced by the program."""
    launch: Launch | None = None
    probe: Probe | None = None
    fetch: Fetch | None = None
    """In place of a program, in an init container of the preflight's pod."""

    def __post_init__(self) -> None:
        if sum(end is not None for end in (self.launch, self.probe, self.fetch)) != 1:
            raise PlanInvalid("launch: a plan needs either this or 'probe' or 'fetch'.")
        if self.node_test is not None and (self.launch is None or self.launch.elastic is not None):
            raise PlanInvalid("node_test: needs 'launch' without 'elastic', whose nodes come and go.")

        if self.restart is not None and (self.launch is None or self.launch.elastic or self.precompile):
            raise PlanInvalid("restart: needs 'launch' without 'elastic', and no 'precompile'.")

    @property
    def steps(self) -> Iterator[Any]:
        """The steps of this plan in their order."""
        steps = (getattr(self, field.name) for field in dataclasses.fields(self))
        return (step for step in steps if step is not None)


def to_text(plan: Plan) -> str:
    """The plan as JSON, with a line for each step; fields that have their defaults are left out."""
    steps = {"version": VERSION, **_document(plan)}
    lines = (f"  {json.dumps(name)}: {json.dumps(step, ensure_ascii=False)}" for name, step in steps.items())
    return "{\n" + ",\n".join(lines) + "\n}"


def to_words(plan: Plan) -> list[str]:
    """The plan's text as words of a command: one, or several where it is longer than Linux takes in one."""
    text = to_text(plan)
    return [text[start : start + MAX_PIECE] for start in range(0, len(text), MAX_PIECE)]


def parse_plan(text: str) -> Plan:
    """Parse the text of a plan.

    Raises:
        PlanInvalid: If the text is not a plan of this version; the message names the field.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanInvalid(f"plan: is not JSON ({error}).") from None
    if not isinstance(document, dict):
        raise PlanInvalid("plan: has to be a JSON object.")
    if document.pop("version", None) != VERSION:
        raise PlanInvalid(f"version: has to be {VERSION}; workflow and trainer have to be of the same deployment.")
    plan: Plan = _read(Plan, document, "")
    return plan


def with_texts(step: Value, change: Callable[[str], str]) -> Value:
    """A plan or step with every text changed, such as a path; names of secrets are left as they are."""
    changed: Any = step
    if isinstance(step, str):
        changed = change(step)
    elif isinstance(step, tuple):
        changed = tuple(with_texts(each, change) for each in step)
    elif dataclasses.is_dataclass(step) and not isinstance(step, type):
        values = {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}
        changed = dataclasses.replace(step, **{name: with_texts(value, change) for name, value in values.items()})
    return typing.cast(Value, changed)


def _document(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: _document(each) for field, each in fields if each != field.default}
    if isinstance(value, Mapping):
        return {name: _document(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _read(kind: Any, value: Any, field: str) -> Any:
    """A value of a type that a plan's fields have, from its JSON.

    Raises:
        PlanInvalid: If it has another type.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (kind,) = (each for each in inner if each is not types.NoneType)
        return None if value is None else _read(kind, value, field)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _object(kind, value, field)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(inner[0], each, f"{field}.{number}") for number, each in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {name: _read(inner[1], each, f"{field}.{name}") for name, each in value.items()}
    if value in inner if origin is Literal else _is_scalar(kind, value):
        return value
    expected = " or ".join(map(repr, inner)) if origin is Literal else _NAMES.get(kind, "an object or a list")
    raise PlanInvalid(f"{field or 'plan'}: has to be {expected}, got {json.dumps(value)[:80]}.")


_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def _is_scalar(kind: Any, value: Any) -> bool:
    """Whether a value has one of the plain types. JSON has one type of number, and Python takes true for 1."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return kind in _NAMES and type(value) is kind


def _object(kind: Any, value: Mapping[str, Any], field: str) -> Any:
    def inside(name: str) -> str:
        return f"{field}.{name}" if field else name

    hints, known = typing.get_type_hints(kind), {each.name: each for each in dataclasses.fields(kind)}
    for name in value:
        if name not in known:
            raise PlanInvalid(f"{inside(name)}: is not a field of a plan.")
    for name, each in known.items():
        if each.default is dataclasses.MISSING and name not in value:
            raise PlanInvalid(f"{inside(name)}: is missing.")
    return kind(**{name: _read(hints[name], each, inside(name)) for name, each in value.items()})
