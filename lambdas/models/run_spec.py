"""The run spec: one YAML or JSON document that says what to train.

Versioned, unknown fields refused, every field with its unit and the reason for its default. The JSON Schema that
editors complete from (`config/run-spec.schema.json`) is generated from these classes.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from lambdas.errors import InvalidRunSpec
from lambdas.models.backends import BACKENDS, MAX_HOST_NAME, BackendName
from lambdas.models.instances import INSTANCE_TYPES, InstanceType
from lambdas.models.sentences import sentences

MAX_NAME_LENGTH = 30
"""Leaves room in a pod's host name (63 characters, RFC 1123) for the run's hash, stage, attempt and index."""

RUN_HASH_LENGTH = 12
"""Hex digits behind a spec's name in the run id."""

LONGEST_JOB = "-precompile-1"
"""What the longest of a run's gangs is called behind the run id."""

NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
FOLDER = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
OBJECT = r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$"
FLAG = r"^[A-Za-z][\w-]*$"
MODULE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"

IN_WORDS = {
    NAME: "must begin with a lower-case letter and hold only lower-case letters, digits and dashes",
    FOLDER: "must be lower-case letters, digits and dashes, at most 63",
    OBJECT: "must be the name of an object in the cluster: lower-case letters, digits, dashes and dots",
    FLAG: "must be a flag's name without its dashes",
    MODULE: "must be a Python module's name such as 'trainer.pretrain'",
}
"""What each pattern asks for, for messages."""


def _is_argument(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise ValueError(f"must be text, a number, true or false, got {value!r}")
    return value


Argument = Annotated[str | int | float | bool, BeforeValidator(_is_argument)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Workload(_Section):
    """The program that every process of the gang runs."""

    module: Annotated[str, Field(pattern=MODULE)] | None = None
    """Python module inside the image, as behind `python -m`. Either this or `script`."""
    script: str | None = None
    """Path of a Python file inside the image, relative to its working directory. Either this or `module`."""
    arguments: dict[Annotated[str, Field(pattern=FLAG)], Argument] = Field(default_factory=dict)
    """Command-line flags without their dashes: `max_steps: 100` becomes `--max_steps 100`."""
    image: Annotated[str, Field(min_length=1)]
    """Container image. Production runs name it by digest, so that a run can be repeated."""
    writable_root: bool = False
    """True for programs that write outside of `/tmp` and the mounted folders; otherwise the image is read-only."""

    @field_validator("script")
    @classmethod
    def _script_stays_inside_the_image(cls, script: str | None) -> str | None:
        if script is not None and (not script or script.startswith("/") or ".." in script.split("/")):
            raise ValueError("must be a path relative to the image's working directory, without '..'")
        return script

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if (self.module is None) == (self.script is None):
            raise ValueError("needs exactly one of 'module' and 'script'")
        return self


class Elastic(_Section):
    """A gang that goes on with fewer nodes: `c10d` rendezvous, ranks dealt out anew whenever a node comes or goes."""

    min_nodes: Annotated[int, Field(ge=1)]
    """With fewer nodes it waits."""
    max_nodes: Annotated[int, Field(ge=1)]
    """It never has more, whoever scales the job."""
    max_restarts: Annotated[int, Field(ge=0, le=100)] = 3
    """How often workers start anew before the job has failed; each start resumes from the newest checkpoint."""


class Compute(_Section):
    """The gang: which nodes, how many, and what launches them."""

    instance_type: Annotated[str, Field(json_schema_extra={"enum": list(INSTANCE_TYPES)})]
    """EC2 instance type of every node."""
    num_nodes: Annotated[int, Field(ge=1, le=1024)] = 1
    """Nodes of the gang. All of them or none."""
    processes_per_node: Annotated[int, Field(ge=1)] = 1
    """Training processes on each node; at most one a NeuronCore, or one a vCPU on CPU instances."""
    backend: BackendName = "job"
    """What runs the gang in the cluster: `job` is a Kubernetes Indexed Job, `pod` a bare Pod; the others need software
    of that name in it. docs/jobs.md says which for what."""
    queue: Annotated[str, Field(pattern=OBJECT)] | None = None
    """Volcano queue; `default` if left out. Only for backend `volcano`."""
    priority_class: Annotated[str, Field(pattern=OBJECT)] | None = None
    """PriorityClass of the gang's pods; has to be in the cluster. Where nodes are short, higher ones come first."""
    elastic: Elastic | None = None
    """Goes on when nodes are lost. Only for backend `pytorchjob`; without it every node is needed all the time."""

    @field_validator("instance_type")
    @classmethod
    def _known_instance_type(cls, name: str) -> str:
        if name not in INSTANCE_TYPES:
            raise ValueError(f"'{name}' is not supported; choose one of {', '.join(INSTANCE_TYPES)}")
        return name

    @model_validator(mode="after")
    def _processes_fit_the_node(self) -> Self:
        limit = self.instance.max_processes
        if self.processes_per_node > limit:
            unit = "NeuronCores" if self.instance.accelerated else "vCPUs"
            raise ValueError(
                f"processes_per_node is {self.processes_per_node}, but a {self.instance_type} has {limit} {unit}; "
                f"use at most {limit}"
            )
        return self

    @model_validator(mode="after")
    def _the_backend_can_do_it(self) -> Self:
        for problem in (self._too_many_for_a_pod(), self._queue_of_others(), self._elastic_of_others()):
            if problem:
                raise ValueError(problem)
        return self

    def _too_many_for_a_pod(self) -> str | None:
        if self.backend != "pod" or self.num_nodes == 1:
            return None
        return f"backend 'pod' is one node, but num_nodes is {self.num_nodes}; choose 'job', or ask for one node"

    def _queue_of_others(self) -> str | None:
        if self.queue is None or self.backend == "volcano":
            return None
        return f"queue is '{self.queue}', but backend '{self.backend}' has no queues; remove it, or choose 'volcano'"

    def _elastic_of_others(self) -> str | None:
        if self.elastic is None:
            return None
        if self.backend != "pytorchjob":
            return f"backend '{self.backend}' has no elastic jobs; remove elastic, or choose 'pytorchjob'"
        low, high = self.elastic.min_nodes, self.elastic.max_nodes
        if low > high:
            return f"elastic.min_nodes is {low} and elastic.max_nodes is {high}; swap them"
        if not low <= self.num_nodes <= high:
            return f"num_nodes is {self.num_nodes}, but elastic allows {low} to {high}; choose a number between"
        return None

    @property
    def instance(self) -> InstanceType:
        """The catalogue's entry for the instance type."""
        return INSTANCE_TYPES[self.instance_type]

    @property
    def world_size(self) -> int:
        """Training processes in all."""
        return self.num_nodes * self.processes_per_node


class Dataset(_Section):
    """The archive of shards that is staged before anything else starts."""

    url: str
    """`s3://bucket/key.tar` (or `.tar.gz`) of HDF5 shards."""
    name: Annotated[str, Field(pattern=FOLDER)] | None = None
    """Folder below `/data`; runs that name the same folder share one copy. Default: from the archive's name."""

    @field_validator("url")
    @classmethod
    def _an_archive_in_s3(cls, url: str) -> str:
        parts = urlsplit(url)
        archive = parts.path.endswith((".tar", ".tar.gz", ".tgz"))
        if parts.scheme != "s3" or not parts.netloc or not archive:
            raise ValueError(f"'{url}' must be s3://bucket/key ending in .tar, .tar.gz or .tgz")
        return url

    @property
    def bucket(self) -> str:
        """Bucket part of the URL."""
        return urlsplit(self.url).netloc

    @property
    def key(self) -> str:
        """Object key part of the URL."""
        return urlsplit(self.url).path.lstrip("/")

    @property
    def folder(self) -> str:
        """Folder below `/data` that holds the unpacked shards."""
        stem = re.sub(r"\.(tar|tar\.gz|tgz)$", "", self.key.rsplit("/", 1)[-1])
        return self.name or re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "dataset"


class Precompile(_Section):
    """Compiling the graphs in a job of a few steps, so that the gang does not idle through it."""

    enabled: bool = True
    """Off for programs that compile nothing."""
    cacheset: Annotated[str, Field(pattern=FOLDER)] | None = None
    """Folder below `/cache`. Runs that share it must not run at the same time. Default: the spec's name."""
    steps: Annotated[int, Field(ge=1, le=100)] = 10
    """Steps that reach every graph of the program (the tutorial's ten)."""


class Limits(_Section):
    """When a run has to be given up, and how closely it is watched."""

    max_duration_hours: Annotated[float, Field(gt=0, le=8760)] = 72.0
    """Longest time for one job, in hours; the cluster kills it then. BERT-large phase 1 takes 20 to 45."""
    capacity_timeout_minutes: Annotated[float, Field(gt=0, le=720)] = 60.0
    """Longest wait for the gang's nodes, in minutes."""
    gang_timeout_minutes: Annotated[float, Field(gt=0, le=720)] = 30.0
    """Longest time that a submitted gang may have fewer pods running than it needs, in minutes; then it is deleted and
    submitted again, twice. Covers pulling the image, and waiting in a queue."""
    stall_minutes: Annotated[float, Field(gt=0, le=1440)] = 60.0
    """Longest time without a logged step, in minutes; covers start-up, compilation and checkpoints."""
    min_throughput: Annotated[float, Field(gt=0)] | None = None
    """Sequences per second over all ranks below which an alarm calls a person; the run goes on. None sets no floor."""
    poll_seconds: Annotated[int, Field(ge=20, le=300)] = 30
    """Seconds between two looks at a job. Below 20 a run of a year would exceed an execution's history quota."""


class Teardown(_Section):
    """What is taken away at the end: the run's jobs, and its nodes unless another run uses them."""

    on_success: bool = True
    """Nodes that idle cost as much as nodes that train."""
    on_failure: bool = True
    """False keeps pods and nodes for debugging; they go on costing money."""


class RunSpec(_Section):
    """What to train, on what, from which data, and within which limits."""

    model_config = ConfigDict(title="Trainflow run spec")

    version: Literal[1]
    """Version of this format."""
    name: Annotated[str, Field(pattern=NAME, max_length=MAX_NAME_LENGTH)]
    """Begins every name that the run gives: lower-case letters, digits and dashes."""
    workload: Workload
    compute: Compute
    dataset: Dataset | None = None
    """None for programs that bring their own data."""
    precompile: Precompile = Precompile()
    limits: Limits = Limits()
    teardown: Teardown = Teardown()

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        run_id = f"{self.name}-{'0' * RUN_HASH_LENGTH}"
        if (excess := excess_of_names(run_id, self.compute)) > 0:
            raise ValueError(
                f"name has {len(self.name)} characters, but the names that backend '{self.compute.backend}' makes of "
                f"it for pods on {self.compute.num_nodes} nodes leave room for {len(self.name) - excess}; shorten it"
            )
        return self

    @property
    def cacheset(self) -> str:
        """Folder below `/cache` for this run's compiled graphs."""
        return self.precompile.cacheset or self.name


def excess_of_names(run_id: str, compute: Compute) -> int:
    """Characters by which the longest name of a run's pods is too long; 0 or less if all of them fit."""
    backend = BACKENDS[compute.backend]
    return backend.name_length(f"{run_id}{LONGEST_JOB}", num_nodes=compute.num_nodes) - MAX_HOST_NAME


def parse_run_spec(document: Any) -> RunSpec:
    """The spec that a decoded YAML or JSON document describes.

    Raises:
        InvalidRunSpec: If it describes none; the message names every field at fault.
    """
    if not isinstance(document, dict):
        raise InvalidRunSpec("The run spec must be a mapping of fields such as 'version', 'name' and 'workload'.")
    try:
        return RunSpec.model_validate(document)
    except ValidationError as invalid:
        raise InvalidRunSpec(" ".join(sentences(invalid, whole="run spec", in_words=IN_WORDS))) from None
