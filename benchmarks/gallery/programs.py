"""The programs of the gallery, from `programs.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PROGRAMS = Path(__file__).parent / "programs.toml"


class Data(BaseModel):
    """Synthetic data that a program finds in its folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    make: str
    """Name of a function of `data_makers.py`."""
    at: str
    """Path below the project's folder. A path that begins with `../` is beside the program's working folder."""


class Program(BaseModel):
    """A public program, and the flags that make it small enough for a laptop."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: str
    """Kind of its progress and checkpoints, in a few words."""
    repository: str
    commit: str
    folder: str = "."
    """Project: folder of the repository; the commands are typed there."""
    script: str
    num_nodes: int = 2
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    positional: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    workload: Mapping[str, Any] = Field(default_factory=dict)
    """Other fields of the override's workload, such as `requirements`."""
    packages: tuple[str, ...] = ()
    """Packages of the program's image that this checkout's environment may lack."""
    data: tuple[Data, ...] = ()
    launcher: Literal["torchrun", "none"] | None = None
    """The launcher that the program requires; None if it trains with either."""
    required: tuple[str, ...] = ()
    """Arguments that the program refuses to start without; the spec has to name them."""
    checkpoint: str | None = None
    """Glob of its first checkpoint's last file, below the run's folder or the working folder."""
    resumes: bool = False
    """Whether the program can continue from a checkpoint by a flag of its own or by finding its files."""
    result: str | None = None
    """Glob of the published files that a user of the program wants."""
    needs: str = ""
    """Devices that the program requires; empty if it trains on a CPU."""
    explained: str = ""
    """Reason for cells that are not green, for readers of the page."""

    @property
    def checkout(self) -> str:
        """Folder of the repository's checkout below the folder of all programs."""
        return self.repository.partition("/")[2]

    @property
    def project(self) -> str:
        """Name of the project's folder; `init` makes the spec's name of it."""
        return self.checkout if self.folder == "." else self.folder.rpartition("/")[2]

    @property
    def url(self) -> str:
        """The script at its commit, for a browser."""
        path = self.script if self.folder == "." else f"{self.folder}/{self.script}"
        return f"https://github.com/{self.repository}/blob/{self.commit}/{path}"


def read_programs(path: Path = PROGRAMS) -> list[Program]:
    """All programs of a file.

    Raises:
        pydantic.ValidationError: If an entry has an unknown or invalid field.
    """
    return [Program.model_validate(each) for each in tomllib.loads(path.read_text(encoding="utf-8"))["programs"]]
