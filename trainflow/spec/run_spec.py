"""The run spec: one YAML or JSON document that says what to train.

Versioned, unknown fields refused, every field with its unit and the reason for its default. The JSON Schema that
editors complete from (`config/run-spec.schema.json`) is generated from these classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from trainflow.deployment.backends import DESCRIPTIONS, MAX_HOST_NAME, BackendDescription, BackendName
from trainflow.errors import InvalidRunSpec
from trainflow.nodes.instances import INSTANCE_TYPES, InstanceType, InstanceTypeName
from trainflow.nodes.node_room import training_pod
from trainflow.protocol import archives
from trainflow.protocol.placeholders import DATA_DIR
from trainflow.protocol.resume_bounds import ResumeBound
from trainflow.protocol.s3_urls import S3Url, parse_s3_url
from trainflow.spec.checkpoint import Checkpoint, KeepLocal
from trainflow.spec.document import FAULTS, canonical, require_plain
from trainflow.spec.empty import empty_dict, empty_list
from trainflow.spec.line_pattern import pattern_problem
from trainflow.spec.progress import Progress
from trainflow.spec.section import FLAG, FOLDER, IN_WORDS, NAME, OBJECT, REGION, SHA256, Section, joined_choices
from trainflow.spec.sentences import sentences, shortened
from trainflow.spec.workload import Workload

MAX_NAME_LENGTH = 30
"""Leaves room in a pod's host name (63 characters, RFC 1123) for the run's hash, stage, attempt and index."""

RUN_HASH_LENGTH = 12
"""Hex digits after a spec's name in the run id."""

MAX_RUN_ID_LENGTH = MAX_NAME_LENGTH + 1 + RUN_HASH_LENGTH
"""A spec's name, a dash and the digits."""

EarlierRun = Annotated[str, Field(pattern=NAME, max_length=MAX_RUN_ID_LENGTH)]
"""Id of a run."""

TeamName = Annotated[str, Field(pattern=NAME, max_length=63)]
"""Name of a team or project. It is a label of pods, which takes 63 characters (Kubernetes documentation, "Labels and
Selectors")."""

MAX_CONTINUED = 20
"""Most runs that one continues: each is a folder to search, and a name in the record."""

LONGEST_JOB = "-precompile-1"
"""Suffix after the run id in the longest name among a run's gangs."""

LONGEST_FOLDER = 63
"""Most characters of `dataset.name`."""

SCHEMA_ID = "urn:trainflow:run-spec:1"
"""Name of the JSON Schema by the format's version, for programs that know several; no address."""


class Elastic(Section):
    """A gang that continues with fewer nodes: `c10d` rendezvous, ranks assigned anew when a node joins or leaves."""

    min_nodes: Annotated[int, Field(ge=1)]
    """Minimum number of nodes. The job waits while it has fewer."""
    max_nodes: Annotated[int, Field(ge=1)]
    """Most nodes that it ever has, even when the job is scaled from outside."""
    max_restarts: Annotated[int, Field(ge=0, le=100)] = 3
    """Number of times that workers restart before the job fails; each restart resumes from the newest checkpoint."""


class Compute(Section):
    """The gang: which nodes, how many, and what launches them."""

    instance_type: InstanceTypeName
    """EC2 instance type of every node."""
    fallback: Annotated[list[InstanceTypeName], Field(max_length=5)] = Field(default_factory=empty_list)
    """Other instance types, tried in this order: the next one as soon as AWS reports that the type before lacks
    capacity, and at the latest after `limits.capacity_timeout_minutes`. All jobs of the run then use it; the nodes of
    the type before are released. Not for backend `slurm`."""
    num_nodes: Annotated[int, Field(ge=1, le=1024)] = 1
    """Nodes of the gang. They start together or not at all. A trn1.2xlarge lacks EFA, so a gang of them has one
    node."""
    spares: Annotated[int, Field(ge=0, le=64)] = 0
    """Further nodes of the type that the run holds, so that its gang is placed at once after the loss of a node. They
    are idle until then, and cost as much as the others. Not for backend `slurm` and elastic gangs."""
    processes_per_node: Annotated[int, Field(ge=1)] = 1
    """Training processes on each node. Neuron supports 1 or 2 on a trn1.2xlarge; 1, 2, 8 or 32 on a trn1.32xlarge and a
    trn1n.32xlarge; 1, 4, 16 or 64 on a trn2.48xlarge. CPU instances take up to one a vCPU."""
    backend: BackendName = "job"
    """Software that runs the gang: `job` is a Kubernetes Indexed Job, `pod` a bare Pod, `slurm` a Slurm job; the others
    need software of that name in the cluster. docs/jobs.md compares them."""
    queue: Annotated[str, Field(pattern=OBJECT)] | None = None
    """Volcano queue, or Slurm partition; the default one if left out. Only for backends `volcano` and `slurm`."""
    priority_class: Annotated[str, Field(pattern=OBJECT)] | None = None
    """PriorityClass of the gang's pods; has to be in the cluster. Where nodes are short, higher ones come first. Not
    for backend `slurm`."""
    check_nodes: bool = True
    """Whether memory and network of a gang's nodes are tested before it trains. The test advises: it avoids a node that
    fails or is much slower while its peers are well, and never ends a run; whatever else happens to it, the gang
    trains. Not for gangs of one node, elastic gangs, images without PyTorch, and the last restart that is allowed; nor
    again after training, if the failure casts no doubt on a node."""
    elastic: Elastic | None = None
    """Goes on when nodes are lost. Only for backend `pytorchjob`; without it every node is needed all the time."""

    @model_validator(mode="after")
    def _every_type_is_named_once(self) -> Self:
        if repeated := sorted(name for name in {*self.types} if self.types.count(name) > 1):
            raise ValueError(f"fallback repeats {repeated[0]}; name each type once, in instance_type or in fallback")
        return self

    @model_validator(mode="after")
    def _processes_fit_the_node(self) -> Self:
        for instance in (INSTANCE_TYPES[name] for name in self.types):
            limit, source = instance.max_processes, self._fallback_note(instance)
            if self.processes_per_node > limit:
                raise ValueError(
                    f"processes_per_node is {self.processes_per_node}, but a {instance.name}{source} has {limit} "
                    f"{instance.process_unit}; use at most {limit}"
                )
            if instance.processes and self.processes_per_node not in instance.processes:
                raise ValueError(
                    f"processes_per_node is {self.processes_per_node}, but Neuron supports "
                    f"{joined_choices(instance.processes)} on a {instance.name}{source}; choose one of them"
                )
        return self

    def _fallback_note(self, instance: InstanceType) -> str:
        """The field that names a type, for a sentence, if that is `fallback`."""
        return "" if instance.name == self.instance_type else " in fallback"

    @model_validator(mode="after")
    def _the_nodes_can_talk(self) -> Self:
        most = self.most_nodes
        for instance in (INSTANCE_TYPES[name] for name in self.types):
            if most == 1 or instance.spans_nodes:
                continue
            field = "num_nodes" if self.num_nodes > 1 else "elastic.max_nodes"
            larger = [name for name, kind in INSTANCE_TYPES.items() if kind.uses_neuron and kind.spans_nodes]
            raise ValueError(
                f"{field} is {most}, but a {instance.name}{self._fallback_note(instance)} has no EFA, without which "
                f"Neuron trains on one node alone; ask for 1 node, or for {joined_choices(larger)}"
            )
        return self

    @model_validator(mode="after")
    def _the_backend_can_do_it(self) -> Self:
        for problem in (
            self._too_many_for_a_pod(),
            self._queue_of_others(),
            self._priority_of_others(),
            self._fallback_of_others(),
            self._elastic_of_others(),
            self._spares_of_others(),
        ):
            if problem:
                raise ValueError(problem)
        return self

    def _too_many_for_a_pod(self) -> str | None:
        if not self.backend_description.single_node or self.num_nodes == 1:
            return None
        asked = f"backend '{self.backend}' is one node, but num_nodes is {self.num_nodes}"
        return f"{asked}; choose 'job', or ask for one node"

    def _queue_of_others(self) -> str | None:
        if self.queue is None or self.backend_description.has_queues:
            return None
        others = _backends_that(lambda backend: backend.has_queues)
        return f"queue is '{self.queue}', but backend '{self.backend}' has no queues; remove it, or choose {others}"

    def _priority_of_others(self) -> str | None:
        if self.priority_class is None or not self.backend_description.needs_slurm:
            return None
        return (
            f"priority_class is '{self.priority_class}', but Slurm has none; remove it, and name a partition of higher "
            "priority as queue"
        )

    def _fallback_of_others(self) -> str | None:
        if not self.fallback or not self.backend_description.needs_slurm:
            return None
        return "fallback is of node groups, but Slurm's jobs wait in a partition; remove it"

    def _elastic_of_others(self) -> str | None:
        if self.elastic is None:
            return None
        if not self.backend_description.runs_elastic_jobs:
            others = _backends_that(lambda backend: backend.runs_elastic_jobs)
            return f"backend '{self.backend}' has no elastic jobs; remove elastic, or choose {others}"
        low, high = self.elastic.min_nodes, self.elastic.max_nodes
        if low > high:
            return f"elastic.min_nodes is {low} and elastic.max_nodes is {high}; swap them"
        if not low <= self.num_nodes <= high:
            return f"num_nodes is {self.num_nodes}, but elastic allows {low} to {high}; choose a number between"
        return None

    def _spares_of_others(self) -> str | None:
        if self.spares == 0 or (self.elastic is None and not self.backend_description.needs_slurm):
            return None
        if self.elastic is not None:
            return f"spares is {self.spares}, but an elastic gang goes on with fewer nodes; remove one of them"
        return f"spares is {self.spares}, but Slurm's jobs wait in a partition, which holds none for a run; remove it"

    @property
    def held_nodes(self) -> int:
        """Nodes that the run holds: those of the gang, and its spares."""
        return self.num_nodes + self.spares

    @property
    def backend_description(self) -> BackendDescription:
        """Description and abilities of the backend."""
        return DESCRIPTIONS[self.backend]

    @property
    def types(self) -> tuple[str, ...]:
        """Instance types, in the order of their use."""
        return (self.instance_type, *self.fallback)

    def with_next_type(self) -> Compute | None:
        """The same gang on the first type of `fallback`; None if it names none."""
        if not self.fallback:
            return None
        following, *others = self.fallback
        return self.model_copy(update={"instance_type": following, "fallback": others})

    @property
    def instance(self) -> InstanceType:
        """The catalogue's entry for the instance type."""
        return INSTANCE_TYPES[self.instance_type]

    @property
    def world_size(self) -> int:
        """Training processes in all."""
        return self.num_nodes * self.processes_per_node

    @property
    def most_nodes(self) -> int:
        """Nodes of the largest gang that the training may have."""
        return self.elastic.max_nodes if self.elastic else self.num_nodes


def _backends_that(can: Callable[[BackendDescription], bool]) -> str:
    """Names of the backends that can do something, for a sentence."""
    return " or ".join(f"'{name}'" for name, backend in DESCRIPTIONS.items() if can(backend))


class Dataset(Section):
    """The data that is staged before anything else starts: an archive, or every object below a prefix."""

    url: str
    """An archive, `s3://bucket/key.tar` or `https://…/name.tar` (or `.tar.gz`, `.tgz`, `.tar.bz2`, `.tar.xz`,
    `.tar.zst`), which is unpacked; or `s3://bucket/prefix/` with a slash at its end for every object below it."""
    name: Annotated[str, Field(pattern=FOLDER)] | None = None
    """Folder below `/data`; runs that name the same folder share one copy, and one that has another `url` is refused.
    Default: from the last part of the archive's or prefix's name, so two of the same name need this field. Has no
    effect on a prefix that the file system is linked to: that data stays where it lies."""
    sha256: Annotated[str, Field(pattern=SHA256)] | None = None
    """Checksum of the archive as `sha256sum` prints it. Required with https://, where nothing else vouches for it."""
    public: bool = False
    """True for a public bucket: requests are not signed, so that no role needs a grant for it."""
    region: Annotated[str, Field(pattern=REGION)] | None = None
    """The bucket's AWS Region. Default: S3 is asked for it."""
    manifest_url: str | None = None
    """`s3://bucket/key` of a list of files and checksums in the form of `sha256sum`: every file has to be as it says.
    It is read as the data set is: `public` and `region` hold for its bucket too."""
    max_expansion: Annotated[float, Field(ge=1, le=1e6)] | None = None
    """Limit for the size of an unpacked archive, as a multiple of its compressed size; a larger one is refused before
    it fills the file system. Default: 100, and 64 MiB in any case."""
    min_shards: Annotated[int, Field(ge=0)] | None = None
    """Fewest `*_training_*.hdf5` shards that it has to hold; each is opened and checked. With 0, whatever it holds is
    not looked into. Default: 1 for `trainer.pretrain`, which reads them, and 0 for every other program."""

    @field_validator("url")
    @classmethod
    def _an_archive_or_a_prefix(cls, url: str) -> str:
        in_s3 = parse_s3_url(url)
        path = in_s3.key if in_s3 else _web_address(url).path
        is_prefix = in_s3 is not None and in_s3.is_prefix
        if not is_prefix and not archives.is_archive(path):
            endings = ", ".join(archives.ENDINGS)
            raise ValueError(f"{url!r} must end in {endings} for an archive, or in s3://…/ for all below a prefix")
        if is_prefix and {"", ".", ".."} & set(path[:-1].split("/")):
            raise ValueError(f"{url!r} must be a prefix of which folders can be made: no part empty, '.' or '..'")
        return url

    @field_validator("manifest_url")
    @classmethod
    def _an_object_in_s3(cls, url: str | None) -> str | None:
        if url is None:
            return None
        place = parse_s3_url(url)
        if place is None or place.is_prefix:
            raise ValueError(f"{url!r} must be s3://bucket/key")
        return url

    @model_validator(mode="after")
    def _vouched_for(self) -> Self:
        if self.in_s3 and self.is_prefix and self.sha256:
            raise ValueError("sha256 is of one archive, but the url is a prefix; use manifest_url, or remove sha256")
        if not self.in_s3 and self.sha256 is None:
            raise ValueError("sha256 is missing, and an https:// archive needs it; add what `sha256sum` prints of it")
        if not self.in_s3 and (self.public or self.region) and self.manifest_url is None:
            raise ValueError("public and region are said of a bucket, but the url is https://; remove them")
        return self

    @property
    def in_s3(self) -> bool:
        """Whether the source is a bucket, and not a web server."""
        return parse_s3_url(self.url) is not None

    @property
    def is_prefix(self) -> bool:
        """Whether it is every object below the URL, and not one archive."""
        return self.url.endswith("/")

    @property
    def bucket(self) -> str:
        """Bucket of an s3:// URL, or host of an https:// URL."""
        in_s3 = parse_s3_url(self.url)
        return in_s3.bucket if in_s3 else _web_address(self.url).netloc

    @property
    def key(self) -> str:
        """Object key of an s3:// URL, or its prefix, or path of an https:// URL."""
        in_s3 = parse_s3_url(self.url)
        return in_s3.key if in_s3 else _web_address(self.url).path.removeprefix("/")

    @property
    def manifest(self) -> S3Url | None:
        """The manifest's object; None for a data set without a manifest."""
        return None if self.manifest_url is None else parse_s3_url(self.manifest_url)

    @property
    def folder(self) -> str:
        """Folder below `/data` that holds the unpacked shards."""
        last = self.key.rstrip("/").rsplit("/", 1)[-1]
        stem = last if self.is_prefix else archives.without_ending(last)
        slug = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
        return self.name or slug[:LONGEST_FOLDER].rstrip("-") or "dataset"


def _web_address(url: str) -> SplitResult:
    """The parts of an https:// URL.

    Raises:
        ValueError: If it is another one, or holds credentials.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.netloc:
        raise ValueError(f"{url!r} must be s3://bucket/key, s3://bucket/prefix/ or https://host/path")
    if "@" in parts.netloc:
        raise ValueError("must hold no user name and no password: specs are kept, logged and shown to everybody")
    return parts


def _is_choice(value: Any) -> Any:
    if not isinstance(value, bool) and value != "auto":
        raise ValueError(f"must be auto, true or false, got {value!r}")
    return value


class Precompile(Section):
    """Compiling the graphs in a job of a few steps, so that the gang does not idle through it."""

    enabled: Annotated[bool | Literal["auto"], BeforeValidator(_is_choice)] = "auto"
    """`auto`: on for Trainflow's own programs, and for Python programs on Neuron devices; off for every other program.
    `trainflow validate` prints the choice."""
    steps_argument: Annotated[str, Field(pattern=FLAG)] | None = None
    """The program's own flag for the number of steps to run. Default: `steps_this_run` for Trainflow's own programs;
    every other Python program is ended after `steps` calls of its optimizer."""
    cacheset: Annotated[str, Field(pattern=FOLDER)] | None = None
    """Begins the name of the cache's folder below `/cache`; what follows is made of all that changes the graphs, so no
    two runs spoil each other's. Another name makes everything be compiled anew. Default: the spec's name."""
    ignore_arguments: Annotated[list[Annotated[str, Field(pattern=FLAG)]], Field(max_length=100)] = Field(
        default_factory=empty_list
    )
    """Arguments of the workload that do not change its graphs, beside those known: docs/compile-cache.md."""
    ignore_dataset: bool = False
    """True if any data set has the same shapes here; otherwise another one makes the graphs be compiled anew."""
    steps: Annotated[int, Field(ge=1, le=100)] = 10
    """Steps that reach every graph of the program (the tutorial's ten)."""


def as_list(value: Any) -> Any:
    """A list of one for a single text; nothing for null; anything else unchanged, for the validator to refuse."""
    return [value] if isinstance(value, str) else [] if value is None else value


def _as_section(value: Any) -> Any:
    return {"enabled": value} if isinstance(value, bool | str) else value


class StopAfter(Section):
    """Losses in a row that are not finite and end a training."""

    stop_after: Annotated[int, Field(ge=1, le=1_000_000)]
    """Logged steps in a row without a finite loss. Programs with scaled losses skip a few such steps, above all the
    first ones; from NaN weights no training comes back."""


def _is_word_or_row(value: Any) -> Any:
    row = value.get("stop_after") if isinstance(value, dict) and len(value) == 1 else None
    if value == "continue" or isinstance(value, StopAfter) or (type(row) is int and 1 <= row <= 1_000_000):
        return value
    raise ValueError(f"must be 'continue' or {{stop_after: N}}, N from 1 to 1,000,000 logged steps, got {value!r}")


class Limits(Section):
    """Time limits, cost limits and polling interval of a run."""

    max_duration_hours: Annotated[float, Field(gt=0, le=8760)] = 72.0
    """Longest time for one job, in hours; the cluster kills it then. BERT-large phase 1 takes 20 to 45."""
    max_total_hours: Annotated[float, Field(gt=0, le=8760)] | None = None
    """Limit for the run's whole duration, in hours: waits, compilation and restarts count. After it, the program is
    asked for a checkpoint, the artifacts are published, and the run fails as DeadlineReached; `trainflow resume`
    continues it."""
    deadline: AwareDatetime | None = None
    """The same at a fixed time, with its zone: `"2027-01-31T18:00:00+01:00"`."""
    max_usd: Annotated[float, Field(gt=0)] | None = None
    """Limit for the estimated cost of the run's nodes, in USD at on-demand prices. The run then ends in the same way,
    as BudgetReached. A run that continues another one begins at zero. Refused for instance types without a known price
    in the Region."""
    capacity_timeout_minutes: Annotated[float, Field(gt=0, le=720)] = 60.0
    """Longest wait for the gang's nodes, in minutes, of each type of `compute.fallback`. Has no effect with
    Slurm, where jobs wait for nodes themselves."""
    gang_timeout_minutes: Annotated[float, Field(gt=0, le=720)] = 30.0
    """Longest time that a submitted gang may have fewer pods running than it needs, in minutes; then it is started
    anew. Covers pulling the image, and waiting in a queue."""
    max_restarts: Annotated[int, Field(ge=0, le=20)] = 2
    """Number of consecutive restarts of a job, from its newest checkpoint, without getting further than before,
    whatever the reason: a lost worker or node, a stall, a gang that did not come together, a node that the test before
    the training names, graphs to compile again. A run that gets further is counted anew: to a later step, without steps
    to a newer checkpoint, or without either for more than six hours; so is one that passes over a checkpoint that it
    cannot open, at most three times."""
    restart_in_place: bool = True
    """Whether a gang whose rank was ended by a signal first starts its program again in the same pods, from the newest
    checkpoint, once without getting further. It counts as one of `max_restarts`. Has no effect with Slurm and in
    elastic gangs."""
    stall_minutes: Annotated[float, Field(gt=0, le=1440)] = 60.0
    """Longest time without a sign of life, in minutes; covers start-up, compilation and checkpoints. Signs are a step,
    a line of the log that differs from those before it, and a changed file of the run. While graphs are compiled:
    longest time without a line, at least three hours. While a data set is being staged, or FSx imports its names:
    longest time without new data."""
    on_non_finite: Annotated[Literal["continue"] | StopAfter, BeforeValidator(_is_word_or_row)] = StopAfter(
        stop_after=10
    )
    """Action on a loss that is NaN or infinite. `stop_after: N` ends the training as LossNotFinite once the newest N
    logged losses are not finite, or if it succeeds with such a loss at its end. `continue` lets it run, and only warns:
    for programs whose loss may be NaN on purpose."""
    blind_minutes: Annotated[float, Field(gt=0, le=10080)] = 60.0
    """Minutes without a successful poll of the job, or without its log, before the owner is notified. The job and the
    run continue: the run fails only when the job's own time limit has passed as well."""
    min_throughput: Annotated[float, Field(gt=0)] | None = None
    """Sequences or samples per second, as the program counts, over all ranks. An alarm notifies a person of a lower
    throughput; the run continues. None sets no floor."""
    poll_seconds: Annotated[int, Field(ge=10, le=300)] = 10
    """Least seconds between two polls. Waits are polled after a twentieth of the time waited, if that is longer; jobs
    after two seconds for each day of the run's age (ten minutes at most), if that is longer: the history of an
    execution has a quota."""


class Teardown(Section):
    """Resources to release at the end: the run's jobs, and its nodes unless another run uses them."""

    on_success: bool = True
    """Nodes that idle cost as much as nodes that train."""
    on_failure: bool = True
    """False keeps pods and nodes for debugging; they go on costing money."""


class ResumeUntil(Section):
    """Newest checkpoint of an earlier run that may be resumed from."""

    step: Annotated[int, Field(ge=0, le=10**15)] | None = None
    """Highest step, for checkpoints with a step in their names."""
    time: AwareDatetime | None = None
    """Other checkpoints count if they were last changed before this time."""
    reason: Annotated[str, Field(max_length=300)] = "the spec excludes it"
    """Reason, which the log names for each newer checkpoint."""


class RunSpec(Section):
    """Program, hardware, data and limits of a run."""

    model_config = ConfigDict(
        title="Trainflow run spec",
        defer_build=False,
        json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID},
    )

    version: Literal[1]
    """Version of this format."""
    name: Annotated[str, Field(pattern=NAME, max_length=MAX_NAME_LENGTH)]
    """Begins every name that the run gives: lower-case letters, digits and dashes."""
    team: TeamName | None = None
    """Team that the run's cost counts for, in `trainflow costs` and as a label of its pods. Default: the deployment's
    `default_team`."""
    project: TeamName | None = None
    """The same for a project. Default: the deployment's `default_project`."""
    workload: Workload
    compute: Compute
    dataset: Dataset | None = None
    """None for programs that bring their own data."""
    checkpoint: Checkpoint | None = None
    """Trainflow's own programs find their checkpoints themselves, and take its field `keep_local` only. None for other
    programs without checkpoints."""
    resume_from: Annotated[
        list[EarlierRun],
        Field(max_length=MAX_CONTINUED),
        BeforeValidator(as_list, json_schema_input_type=EarlierRun | list[EarlierRun]),
    ] = Field(default_factory=empty_list)
    """Id of the run that this one continues, or of several, the newest first: until it has a checkpoint of its own, it
    resumes from the newest one of the first of them that has any. `trainflow resume` fills it in."""
    resume_until: dict[EarlierRun, ResumeUntil] = Field(default_factory=empty_dict)
    """Bounds for these runs' checkpoints, by the runs' ids: newer ones are passed over. `trainflow resume` fills it in
    with `--from-step`, and for a run whose loss was NaN or infinite at its end."""
    progress: Progress = "auto"
    """Format of the program's progress lines: `auto` detects it from the output, `none` expects no progress lines, or
    one of the formats in docs/workloads.md."""
    precompile: Annotated[
        Precompile, BeforeValidator(_as_section, json_schema_input_type=Precompile | bool | Literal["auto"])
    ] = Precompile()
    """A section, or `auto`, true or false as a short form of its field `enabled`."""
    limits: Limits = Limits()
    teardown: Teardown = Teardown()

    @model_validator(mode="after")
    def _the_program_is_where_the_backend_runs_it(self) -> Self:
        problem = self._kubernetes_alone() if self.compute.backend_description.needs_slurm else self._slurm_alone()
        if problem:
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _the_launcher_can_start_it(self) -> Self:
        workload, elastic = self.workload, self.compute.elastic
        if elastic is not None and workload.launcher != "torchrun":
            raise ValueError(
                f"workload.launcher is '{workload.launcher}', but only 'torchrun' starts elastic gangs; choose it, or "
                "remove compute.elastic"
            )
        if elastic is not None and workload.command is not None:
            raise ValueError(
                "workload.command is set, but elastic gangs run Python programs; use workload.script or "
                "workload.module, or remove compute.elastic"
            )
        if self.precompiles and workload.command is not None and self.precompile.steps_argument is None:
            raise ValueError(
                "precompile.enabled is true, but a command cannot be ended after a few steps; name the program's flag "
                "for their number as precompile.steps_argument, or turn precompilation off"
            )
        if self.resume_from and self.checkpoint is None and not workload.is_ours:
            raise ValueError(
                "resume_from names a run, but nothing says where the program's checkpoints are; describe them in the "
                "section checkpoint"
            )
        if DATA_DIR in workload.placeholders and self.dataset is None:
            raise ValueError("workload has the placeholder {data_dir}, but there is no dataset; add it, or a path")
        return self

    @model_validator(mode="after")
    def _checkpoints_are_of_the_program(self) -> Self:
        checkpoint, workload = self.checkpoint, self.workload
        if checkpoint is None:
            return self
        # A stored spec has every field.
        defaults = Checkpoint()
        others = [
            name
            for name in Checkpoint.model_fields
            if name != "keep_local" and getattr(checkpoint, name) != getattr(defaults, name)
        ]
        problem: str | None = None
        if not workload.is_ours and not checkpoint.path:
            problem = "checkpoint.path is missing; add the path of the program's checkpoints below the run's folder"
        elif not workload.is_ours and checkpoint.keep_local is not None:
            problem = (
                "checkpoint.keep_local is for Trainflow's own programs, and any other writes its checkpoints itself; "
                "remove it"
            )
        elif workload.is_ours and others:
            problem = (
                f"checkpoint.{others[0]} is set, but {workload.module} finds its checkpoints itself; remove all fields "
                "of the section but keep_local"
            )
        elif workload.is_ours and checkpoint.keep_local is not None:
            problem = self._node_cannot_keep(checkpoint.keep_local)
        if problem:
            raise ValueError(problem)
        return self

    def _node_cannot_keep(self, kept: KeepLocal) -> str | None:
        """The reason why checkpoints cannot be kept on the nodes; None if they can."""
        if self.compute.backend_description.needs_slurm or self.compute.elastic is not None:
            what = "elastic gangs" if self.compute.elastic is not None else "Slurm's jobs"
            return f"checkpoint.keep_local helps restarts in the pods, which {what} do not have; remove it"
        if not self.limits.restart_in_place or self.limits.max_restarts == 0:
            field = "restart_in_place" if not self.limits.restart_in_place else "max_restarts"
            value = "false" if field == "restart_in_place" else "0"
            return (
                f"checkpoint.keep_local helps restarts in the pods, but limits.{field} is {value}; change one of them"
            )
        for instance in (INSTANCE_TYPES[name] for name in self.compute.types):
            if kept.medium == "nvme" and not instance.has_scratch:
                return f"checkpoint.keep_local.medium is 'nvme', but a {instance.name} has no such disks; use 'memory'"
            memory_gib = training_pod(instance).memory_mib // 1024
            if kept.gib is not None and kept.gib > memory_gib // 2:
                return (
                    f"checkpoint.keep_local.gib is {kept.gib}, but a pod on a {instance.name} has {memory_gib} GiB of "
                    f"memory, and the program needs half of it; use at most {memory_gib // 2}"
                )
        return None

    @property
    def described_checkpoint(self) -> Checkpoint | None:
        """The section, if it describes the checkpoints of a program that is not Trainflow's own."""
        return self.checkpoint if self.checkpoint is not None and self.checkpoint.path else None

    @property
    def checkpoint_words(self) -> tuple[str, ...]:
        """Flags of the trainer's tools that name the files of checkpoints; empty for our own format.

        An empty pattern stands for a program whose checkpoints are not known.
        """
        if self.workload.is_ours:
            return ()
        if self.checkpoint is None:
            return ("--checkpoints", "")
        marker = ("--marker", self.checkpoint.marker) if self.checkpoint.marker else ()
        return ("--checkpoints", self.checkpoint.path, *marker)

    @property
    def bounds(self) -> dict[str, ResumeBound]:
        """`resume_until` for the programs in pods."""
        return {
            run_id: ResumeBound(
                step=until.step, time=None if until.time is None else until.time.timestamp(), reason=until.reason
            )
            for run_id, until in self.resume_until.items()
        }

    def _kubernetes_alone(self) -> str | None:
        for field in ("secrets", "volumes"):
            if getattr(self.workload, field):
                return f"workload.{field} are for Kubernetes backends alone, and the backend is 'slurm'; remove them"
        if self.workload.image is not None:
            return (
                "workload.image is set, but Slurm runs no containers; remove it, and name the nodes' virtual "
                "environment with workload.python_environment if it is not the deployment's"
            )
        if self.workload.writable_root:
            return "workload.writable_root is of containers, and Slurm runs none; remove it"
        return None

    def _slurm_alone(self) -> str | None:
        backend = self.compute.backend
        if self.workload.python_environment is not None:
            return (
                f"workload.python_environment is a folder on Slurm's nodes, but backend '{backend}' runs an image; "
                "remove it, or choose 'slurm'"
            )
        if self.workload.image is None:
            return f"workload.image is missing, and backend '{backend}' runs an image; add it"
        return None

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        run_id = f"{self.name}-{'0' * RUN_HASH_LENGTH}"
        if (excess := excess_name_length(run_id, self.compute)) > 0:
            raise ValueError(
                f"name has {len(self.name)} characters, but the names that backend '{self.compute.backend}' makes of "
                f"it for pods on {self.compute.num_nodes} nodes leave room for {len(self.name) - excess}; shorten it"
            )
        return self

    def on_next_type(self) -> Self | None:
        """The spec with the first type of `compute.fallback` as its own; None if it names none."""
        compute = self.compute.with_next_type()
        return None if compute is None else self.model_copy(update={"compute": compute})

    def on_other_types(self) -> Iterator[Self]:
        """The spec on each type of `compute.fallback`."""
        following = self.on_next_type()
        if following is not None:
            yield following
            yield from following.on_other_types()

    @property
    def precompiles(self) -> bool:
        """Whether a job compiles the graphs before the training."""
        return self._precompilation[0]

    @property
    def precompile_reason(self) -> str:
        """The reason for the choice of `precompile.enabled`, for people."""
        return self._precompilation[1]

    @property
    def _precompilation(self) -> tuple[bool, str]:
        """Whether graphs are compiled first, and why."""
        enabled, instance = self.precompile.enabled, self.compute.instance
        if enabled != "auto":
            return enabled, f"precompile.enabled is {str(enabled).lower()}"
        if self.workload.is_ours:
            return True, "Trainflow's own programs know how to compile first"
        if not instance.uses_neuron:
            return False, f"a {instance.name} has no Neuron devices, whose graphs take long to compile"
        if self.workload.command is not None:
            words = "set precompile.enabled and precompile.steps_argument"
            return False, f"a command cannot be ended after a few steps; {words}"
        return True, "Neuron's compiler reads the graphs of a few steps, after which the program is ended"

    @property
    def cacheset(self) -> str:
        """First part of the name of the folder of this run's compiled graphs."""
        return self.precompile.cacheset or self.name


def decided(spec: RunSpec) -> RunSpec:
    """The spec with the decision in place of `precompile.enabled: auto`: the state machine's choices read it."""
    return spec.model_copy(update={"precompile": spec.precompile.model_copy(update={"enabled": spec.precompiles})})


def excess_name_length(run_id: str, compute: Compute) -> int:
    """Characters to remove until the longest name of a run's pods fits; 0 or less if all of them fit."""
    longest = compute.backend_description.name_length(f"{run_id}{LONGEST_JOB}", num_nodes=compute.num_nodes)
    return longest - MAX_HOST_NAME


def with_present_names(document: Any) -> Any:
    """The document of a stored spec, with the present names for fields of earlier versions."""
    workload = document.get("workload") if isinstance(document, dict) else None
    if not isinstance(workload, dict) or "environment" not in workload:
        return document
    others = {name: value for name, value in workload.items() if name != "environment"}
    return {**document, "workload": {"python_environment": workload["environment"], **others}}


def spec_from_document(document: Any) -> RunSpec:
    """The spec that a document from a file describes: of the JSON that the workflow will read, in the file's order.

    Raises:
        InvalidRunSpec: If it describes none, or JSON cannot hold it.
    """
    canonical(document)
    try:
        return parse_run_spec(json.loads(json.dumps(document)))
    except FAULTS as error:
        raise InvalidRunSpec(f"The run spec holds a value that cannot be read: {shortened(error)}.") from None


def parse_run_spec(document: Any) -> RunSpec:
    """The spec of a new run that a decoded YAML or JSON document describes.

    Raises:
        InvalidRunSpec: If it describes none; the message names every field at fault.
    """
    workload = document.get("workload") if isinstance(document, dict) else None
    if isinstance(workload, dict) and workload.get("environment") is not None:
        raise InvalidRunSpec("workload.environment is called workload.python_environment now; rename it.")
    spec = stored_run_spec(document)
    pattern = None if isinstance(spec.progress, str) else spec.progress.pattern
    if pattern is not None and (problem := pattern_problem(pattern)):
        raise InvalidRunSpec(f"progress.pattern: {problem}.")
    return spec


def stored_run_spec(document: Any) -> RunSpec:
    """The spec of a run that exists, with the names that its fields have today.

    Its pattern may be one that only an earlier version accepted: it can be read, and no line is searched for it.

    Raises:
        InvalidRunSpec: If the document describes none; the message names every field at fault.
    """
    if not isinstance(document, dict):
        raise InvalidRunSpec("The run spec must be a mapping of fields such as 'version', 'name' and 'workload'.")
    require_plain(document)
    # Earlier versions wrote fields without a value too, into executions' inputs and into the messages of schedules.
    document = with_present_names(document)
    try:
        return RunSpec.model_validate(document)
    except ValidationError as invalid:
        raise InvalidRunSpec(" ".join(sentences(invalid, model=RunSpec, whole="run spec", in_words=IN_WORDS))) from None
