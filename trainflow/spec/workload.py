"""Section `workload` of the run spec: the program that every process of the gang runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from trainflow.protocol.compile_cache import environment as compile_cache_environment
from trainflow.protocol.placeholders import PLACEHOLDERS, RANK, placeholders_in
from trainflow.protocol.plan import Launcher
from trainflow.protocol.pods import HELPERS_MOUNT, LOCAL_CHECKPOINTS_MOUNT, MOUNTS, SCRATCH_MOUNT, WORKSPACE
from trainflow.protocol.publication import KEPT_GIB
from trainflow.spec.code import MOST_LEFT_OUT, is_code
from trainflow.spec.empty import empty_dict, empty_list
from trainflow.spec.section import (
    ABSOLUTE_FOLDER,
    FLAG,
    IMAGE,
    KEY_NAME,
    MODULE,
    OBJECT,
    PACKAGE,
    SECRET,
    VARIABLE,
    Section,
)

OURS = "trainer"
"""Package of Trainflow's own programs. They take `true` and `false` as values, and know `--steps_this_run`."""

COMMIT = r"^[0-9a-f]{40}([0-9a-f]{24})?(-dirty)?$"
"""Commit of a Git repository, SHA-1 or SHA-256."""

SHARED_MEMORY_GIB = 8
"""Memory for data loaders; the 64 MiB that container runtimes give a container by themselves are too little."""

MAX_KEPT_GIB = 16384

OUR_MOUNTS = (*MOUNTS, SCRATCH_MOUNT, LOCAL_CHECKPOINTS_MOUNT, HELPERS_MOUNT, WORKSPACE)
RESERVED_FOLDERS = (*(mount.lstrip("/") for mount in OUR_MOUNTS), "tmp", "dev", "proc", "sys")
"""Folders at the root of every container that no volume of a spec may hide."""

RESERVED_PREFIX = "TRAINFLOW_"
"""Beginning of the variables that the workflow sets."""


def _is_argument(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise ValueError(f"must be text, a number, true or false, got {value!r}")
    if isinstance(value, str) and "\x00" in value:
        raise ValueError(f"must hold no NUL character, which no command line can, got {value!r}")
    return value


def _as_word(value: Any) -> Any:
    value = _is_argument(value)
    if isinstance(value, bool):
        raise ValueError(f"must be text or a number, got {str(value).lower()}; put it in quotes")
    return str(value)


def _are_arguments(value: Any) -> Any:
    return [_is_argument(each) for each in value] if isinstance(value, list) else _is_argument(value)


Argument = Annotated[str | int | float | bool, BeforeValidator(_is_argument)]
Arguments = Annotated[str | int | float | bool | list[str | int | float | bool], BeforeValidator(_are_arguments)]
"""Value of a flag: one argument or several."""
Word = Annotated[str, BeforeValidator(_as_word)]
"""Text of a command or of a variable; numbers are taken as they are written."""


class Secret(Section):
    """A value that only the pods know: a Kubernetes Secret's or a Secrets Manager secret's. Exactly one of `name` and
    `secrets_manager` is needed."""

    name: Annotated[str, Field(pattern=OBJECT)] | None = None
    """Name of a Kubernetes Secret. It has to be in the runs' namespace before the run starts."""
    secrets_manager: Annotated[str, Field(pattern=SECRET)] | None = None
    """Name or ARN of a secret in AWS Secrets Manager. The deployment's configuration names those that runs may read,
    in `run_secrets`. Each pod reads the value with its own role before the program starts."""
    key: Annotated[str, Field(pattern=KEY_NAME)] | None = None
    """Key of the value in the Kubernetes Secret, or in the JSON object that Secrets Manager's secret is. Without it the
    variable is the whole text of Secrets Manager's secret."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.name is None) == (self.secrets_manager is None):
            raise ValueError("needs exactly one of 'name' and 'secrets_manager'")
        if self.name is not None and self.key is None:
            raise ValueError("key is missing; name the key of the value in the Kubernetes Secret")
        return self


class Volume(Section):
    """A further volume of the training's pods: exactly one of `claim`, `config_map` and `empty_dir_gib`."""

    mount: Annotated[str, Field(pattern=ABSOLUTE_FOLDER)]
    """Full path of the folder in the container."""
    claim: Annotated[str, Field(pattern=OBJECT)] | None = None
    """PersistentVolumeClaim in the runs' namespace."""
    config_map: Annotated[str, Field(pattern=OBJECT)] | None = None
    """ConfigMap in the runs' namespace; it is mounted read-only."""
    empty_dir_gib: Annotated[int, Field(ge=1, le=16384)] | None = None
    """Size limit, in GiB, of an empty folder on the node's disk; it is deleted with the pod."""
    read_only: bool = False
    """True for a claim that the program only reads."""

    @field_validator("mount")
    @classmethod
    def _hides_nothing(cls, mount: str) -> str:
        parts = mount.split("/")[1:]
        if not parts[0] or {"", ".", ".."} & set(parts):
            raise ValueError(f"must be the full path of a folder, without '.' and '..', got {mount!r}")
        if parts[0] in RESERVED_FOLDERS:
            raise ValueError(f"{mount!r} is below /{parts[0]}, which every container has; choose another folder")
        return mount

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.claim, self.config_map, self.empty_dir_gib)) != 1:
            raise ValueError("needs exactly one of 'claim', 'config_map' and 'empty_dir_gib'")
        return self


class Workload(Section):
    """The program that every process of the gang runs."""

    module: Annotated[str, Field(pattern=MODULE)] | None = None
    """Python module inside the image, as behind `python -m`; with Slurm, in `python_environment`. Exactly one of
    `module`, `script` and `command` is needed."""
    script: str | None = None
    """Path of a Python file inside the image, relative to its working directory."""
    command: Annotated[list[Word], Field(min_length=1, max_length=1000)] | None = None
    """Any program as a list of words, such as `[python, train.py]` or `[./train]`."""
    arguments: dict[Annotated[str, Field(pattern=FLAG)], Arguments] = Field(default_factory=empty_dict)
    """Command-line flags without their dashes: `max_steps: 100` becomes `--max_steps 100`, and `lr: [1, 2]` becomes
    `--lr 1 2`. `boolean_style` says what becomes of true and false."""
    boolean_style: Literal["flag", "value"] | None = None
    """`flag`: `amp: true` becomes `--amp`, and a flag that is false is left out. `value`: it becomes `--amp true`.
    Default: `value` for modules of Trainflow's own `trainer`, `flag` for every other program."""
    positional: Annotated[list[Argument], Field(max_length=1000)] = Field(default_factory=empty_list)
    """Words behind the flags."""
    env: dict[Annotated[str, Field(pattern=VARIABLE)], Word] = Field(default_factory=empty_dict)
    """Environment variables of precompilation and training. Specs are recorded: put no secret here."""
    secrets: dict[Annotated[str, Field(pattern=VARIABLE)], Secret] = Field(default_factory=empty_dict)
    """Environment variables with values from Kubernetes Secrets or AWS Secrets Manager, which no record holds. Not for
    backend `slurm`."""
    launcher: Launcher = "torchrun"
    """`torchrun` starts the program once for every process. `none` starts it once on every node. `mpi` starts it once
    for every process with the ranks in the variables of Open MPI. docs/workloads.md lists the variables."""
    shared_memory_gib: Annotated[int, Field(ge=1, le=2048)] = SHARED_MEMORY_GIB
    """Size limit of `/dev/shm`, in GiB, which data loaders pass batches through; it counts as the pod's memory. Has no
    effect with Slurm."""
    volumes: Annotated[list[Volume], Field(max_length=20)] = Field(default_factory=empty_list)
    """Further volumes of the training's pods. Not for backend `slurm`."""
    code: Annotated[str, AfterValidator(is_code)] | None = None
    """Folder of the program, relative to the spec's file: `./my-project`, or `.` for the file's own folder; or a
    commit, `https://host/repository.git@<40 hex digits>`. `trainflow run` packs and uploads it, and the program starts
    in a copy of it: `script` and `module` are found there. Without it the program is in the image."""
    code_commit: Annotated[str, Field(pattern=COMMIT)] | None = None
    """Git commit of `code`, with `-dirty` if files differ from it. `trainflow run` writes it, and the record and the
    report show it; it changes nothing else."""
    code_left_out: Annotated[list[str], Field(max_length=MOST_LEFT_OUT)] = Field(default_factory=empty_list)
    """Files and folders of `code` that .gitignore keeps out of the pack, the largest first. `trainflow run` writes
    them, so that the record can name the one that a program did not find; they change nothing else."""
    requirements: str | None = None
    """Path of a pip requirements file inside `code`. The image's own pip resolves it before nodes are requested.
    Packages that the image lacks are installed once on the shared file system, for all runs that resolve to the same
    files, and come before the image's."""
    replace_packages: Annotated[list[Annotated[str, Field(pattern=PACKAGE)]], Field(max_length=100)] = Field(
        default_factory=empty_list
    )
    """Packages of the image, such as `[torch]`, that `requirements` may replace although the accelerator's stack
    depends on them. Otherwise a requirement that contradicts one of these is refused."""
    kept_gib: Annotated[int, Field(ge=0, le=MAX_KEPT_GIB)] = KEPT_GIB
    """Most GiB of the files in the program's working folder that are published with the run, the small files first. The
    folder is `{run_dir}/workspace` with a copy of `code`, so that a restart finds its files; larger ones stay there,
    with a warning. With 0, the program works in its pod's own copy, whose files are deleted with the pod. Has no effect
    without `code`."""
    image: Annotated[str, Field(pattern=IMAGE)] | None = None
    """Container image. Production runs name it by digest, so that a run can be repeated. Every backend needs one,
    except `slurm`."""
    python_environment: Annotated[str, Field(pattern=ABSOLUTE_FOLDER)] | None = None
    """Folder of a Python virtual environment on Slurm's nodes; the deployment's if left out. Only for backend
    `slurm`."""
    writable_root: bool = False
    """True for programs that write outside of `/tmp` and the mounted folders; otherwise the image is read-only. Not for
    backend `slurm`."""

    @field_validator("script", "requirements")
    @classmethod
    def _stays_inside_the_working_directory(cls, path: str | None) -> str | None:
        if path is not None and (not path or path.startswith("/") or ".." in path.split("/")):
            raise ValueError("must be a path relative to the program's working directory, without '..'")
        return path

    @model_validator(mode="after")
    def _requirements_are_of_the_code(self) -> Self:
        if self.requirements is not None and self.code is None:
            raise ValueError("requirements is a file inside code, but code is missing; add it, or remove requirements")
        if self.replace_packages and self.requirements is None:
            raise ValueError("replace_packages names packages that requirements installs, but requirements is missing")
        return self

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if sum(program is not None for program in (self.module, self.script, self.command)) != 1:
            raise ValueError("needs exactly one of 'module', 'script' and 'command'")
        return self

    @model_validator(mode="after")
    def _variables_are_free(self) -> Self:
        taken = {*compile_cache_environment("")}
        for field, names in (("env", self.env), ("secrets", self.secrets)):
            for name in names:
                if name.startswith(RESERVED_PREFIX) or name in taken:
                    raise ValueError(f"{field}.{name} is a variable that the workflow sets; choose another name")
        for name in self.env:
            if name in self.secrets:
                raise ValueError(f"{name} is in env and in secrets; remove one of them")
        return self

    @model_validator(mode="after")
    def _placeholders_are_known(self) -> Self:
        for field, texts in self._texts():
            for name in placeholders_in(texts):
                if name not in PLACEHOLDERS:
                    known = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
                    raise ValueError(
                        f"{field} has the unknown placeholder {{{name}}}; use one of {known}, or write {{{{{name}}}}} "
                        f"for the text {{{name}}}"
                    )
                if name == RANK and (self.launcher == "torchrun" or field == "env"):
                    raise ValueError(
                        f"{field} has the placeholder {{rank}}, which only the launchers 'none' and 'mpi' fill in, in "
                        "command, arguments and positional; read the variable RANK in the program"
                    )
        return self

    @model_validator(mode="after")
    def _mounts_differ(self) -> Self:
        mounts = [volume.mount for volume in self.volumes]
        for mount in mounts:
            if mounts.count(mount) > 1:
                raise ValueError(f"volumes: {mount!r} is mounted twice; choose another folder for one of them")
        return self

    def _texts(self) -> Iterator[tuple[str, list[str]]]:
        """The texts that may have placeholders, by field."""
        yield "command", self.command or []
        for name, value in self.arguments.items():
            values = value if isinstance(value, list) else [value]
            yield f"arguments.{name}", [text for text in values if isinstance(text, str)]
        yield "positional", [text for text in self.positional if isinstance(text, str)]
        yield "env", list(self.env.values())

    @property
    def placeholders(self) -> list[str]:
        """Names of the placeholders in use."""
        return placeholders_in(text for _, texts in self._texts() for text in texts)

    @property
    def is_ours(self) -> bool:
        """Whether the program is one of Trainflow's own trainer."""
        return self.module is not None and self.module.split(".")[0] == OURS

    @property
    def flags_for_booleans(self) -> bool:
        """Whether a true argument is a bare flag."""
        return not self.is_ours if self.boolean_style is None else self.boolean_style == "flag"

    @property
    def words(self) -> tuple[str, ...]:
        """Words behind the program: flags, then positional arguments, with their placeholders."""
        flags = option_words(self.arguments, flags_for_booleans=self.flags_for_booleans)
        return (*flags, *map(as_text, self.positional))


def option_words(arguments: Mapping[str, Arguments], *, flags_for_booleans: bool = False) -> tuple[str, ...]:
    """Words of command-line flags."""

    def words(name: str, value: Arguments) -> tuple[str, ...]:
        if isinstance(value, bool) and flags_for_booleans:
            return (f"--{name}",) if value else ()
        return (f"--{name}", *map(as_text, value if isinstance(value, list) else [value]))

    return tuple(word for name, value in arguments.items() for word in words(name, value))


def as_text(value: Argument) -> str:
    """An argument as a word of a command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
