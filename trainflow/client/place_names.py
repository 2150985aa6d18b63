"""Names that people give to their deployments, in a configuration file, with account and Region."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from trainflow.client.place import PlaceUnavailable
from trainflow.client.place_variable import VARIABLE

NO_REGION = (
    "No AWS Region is set: set AWS_REGION, or `region` of a place in ~/.config/trainflow/config.toml. For the twin on "
    "this machine, give --local."
)


@dataclass(frozen=True, kw_only=True)
class NamedPlace:
    """A person's name for a deployment, and its address."""

    name: str
    deployment: str
    region: str | None = None
    """None for the one that boto3 finds."""
    profile: str | None = None
    """Profile of the credentials; None for those that boto3 finds."""
    mlflow: str | None = None
    """MLflow server that `trainflow export` writes the place's runs to, if its options do not name a tracker."""
    experiment: str | None = None
    """Its experiment."""
    wandb: str | None = None
    """Project in Weights & Biases that it writes them to."""

    def require_region(self) -> None:
        """Raise `PlaceUnavailable` where boto3 could find no Region, without importing it."""
        if self.profile is None and self.region is None and not _may_have_region():
            raise PlaceUnavailable(NO_REGION)

    def session(self) -> Any:
        """A boto3 session of its own.

        Raises:
            PlaceUnavailable: If the profile does not exist, or a Region is not set.
        """
        self.require_region()
        import boto3
        from botocore.exceptions import ProfileNotFound

        try:
            # boto3 itself reads AWS_DEFAULT_REGION alone; other SDKs, and functions, know AWS_REGION.
            region = self.region or os.environ.get("AWS_REGION")
            session = boto3.Session(profile_name=self.profile, region_name=region)
            region = session.region_name  # this, too, may be what reads the profile first
        except ProfileNotFound:
            raise PlaceUnavailable(f"places.{self.name}.profile: AWS knows no profile '{self.profile}'.") from None
        if region is None:
            raise PlaceUnavailable(NO_REGION)
        return session


def _may_have_region() -> bool:
    """Whether boto3 could find a Region: it is imported only then, since the import takes longer than the answer."""
    if any(os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE")):
        return True
    return Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser().exists()


@dataclass(frozen=True, kw_only=True)
class PlaceNames:
    """The names of a person's configuration file."""

    places: Mapping[str, NamedPlace] = field(default_factory=dict)
    default: str | None = None

    def named(self, name: str | None) -> NamedPlace | None:
        """The place to use: the given name, else that of the environment, else the default; None without any. A name
        that is not in the file is a deployment's own."""
        chosen = name or os.environ.get(VARIABLE) or self.default
        if chosen is None:
            return None
        return self.places.get(chosen) or NamedPlace(name=chosen, deployment=chosen)


def config_file() -> Path:
    """The configuration file, below XDG_CONFIG_HOME."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "trainflow" / "config.toml"


def read_names(path: Path | None = None) -> PlaceNames:
    """The names in the configuration file; empty if it does not exist.

    Raises:
        PlaceUnavailable: If the file cannot be read or says something else; names the field.
    """
    import tomllib

    path = path or config_file()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return PlaceNames()
    except OSError as error:
        raise PlaceUnavailable(f"{path} cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlaceUnavailable(f"{path} is not TOML: {error}.") from None
    tables, default = document.get("places", {}), document.get("default")
    if not isinstance(tables, dict) or not isinstance(default, str | None):
        raise PlaceUnavailable(f"{path}: `places` must be a table and `default` the name of a place.")
    return PlaceNames(places={name: _named(name, table, path) for name, table in tables.items()}, default=default)


def _named(name: str, table: Any, path: Path) -> NamedPlace:
    known = {known.name for known in fields(NamedPlace)} - {"name"}
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise PlaceUnavailable(f"{path}: places.{name} must be a table of texts.")
    if unknown := sorted(table.keys() - known):
        raise PlaceUnavailable(
            f"{path}: places.{name}.{unknown[0]} is not a field; there are {', '.join(sorted(known))}."
        )
    return NamedPlace(**{"name": name, "deployment": name, **table})
