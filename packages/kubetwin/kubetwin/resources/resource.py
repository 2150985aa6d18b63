"""Declaration of one kind of object: its names, its rules, and its columns in `kubectl get`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubetwin.model import times
from kubetwin.model.errors import FieldError, GroupResource, Object
from kubetwin.model.names import NameRule, dns_subdomain
from kubetwin.model.schema import OBJECT_META, Schema, definition
from kubetwin.store import Store

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
COMMON_FIELDS = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True)
class Column:
    """A column of a table that `kubectl get` prints."""

    name: str
    value: Callable[[Object], Any]
    type: str = "string"
    format: str = ""
    priority: int = 0
    described_by: tuple[str, str] | None = None
    """Type and field whose documentation explains the column."""


NAME = Column("Name", lambda obj: obj["metadata"]["name"], format="name", described_by=(OBJECT_META, "name"))
AGE = Column(
    "Age",
    lambda obj: times.age(obj["metadata"].get("creationTimestamp", ""), times.now()),
    described_by=(OBJECT_META, "creationTimestamp"),
)
CREATED_AT = Column("Created At", lambda obj: obj["metadata"].get("creationTimestamp", ""), type="date")


@dataclass(frozen=True)
class Subresource:
    """A path below an object, as discovery lists it."""

    name: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    kind: str = ""
    group: str = ""
    version: str = ""


STATUS = Subresource("status")


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One entry of the registry. A file in this folder that lists a `Resource` in `RESOURCES` adds it to the server."""

    kind: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    type_name: str = ""
    """Name in the schemas ("" for a kind without one: everything is accepted and kept)."""
    custom: bool = False
    """Whether it is a custom resource: these refuse strategic merge and have other messages for some errors."""
    schema: Schema = field(default_factory=dict)
    """A custom resource's own schema."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    storage_hash: str = ""
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    refusal: str = ""
    """Reason why clients cannot create this kind; empty if they can."""
    has_generation: bool = False
    keeps_status: bool = False
    """Whether a new object may bring its status along (nodes, which register themselves)."""
    name_rule: NameRule = dns_subdomain
    fields: tuple[str, ...] = ()
    """Fields that can be selected beside name and namespace."""
    returns_deleted: bool = False
    """Whether DELETE answers the object instead of a Status."""
    orphans_by_default: bool = False
    default: Callable[[Object], None] = lambda _obj: None
    """Sets the defaults of missing fields, at creation and update."""
    prepare: Callable[[Object, Store], None] = lambda _obj, _store: None
    """Sets the fields that the server owns at creation: addresses, selectors, admission."""
    prepare_update: Callable[[Object, Object, Store], None] = lambda _new, _old, _store: None
    """The same at an update, with the new and the old object."""
    validate: Callable[[Object], Sequence[FieldError]] = lambda _obj: ()
    validate_update: Callable[[Object, Object], Sequence[FieldError]] = lambda _new, _old: ()
    validate_status: Callable[[Object], Sequence[FieldError]] = lambda _obj: ()
    """Faults of a status that a client writes; controllers' own are not checked."""
    grace_seconds: Callable[[Object, int | None], int] | None = None
    """Grace period of a deletion in seconds; None if the object is removed at once."""
    mark_deleted: Callable[[Object], bool] | None = None
    """Changes an object that is to be deleted; True if a controller has to finish the deletion."""
    columns: tuple[Column, ...] = (NAME, CREATED_AT)
    """Those of `kubectl get` (pkg/printers/internalversion of Kubernetes v1.36)."""

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.plural, self.group)

    @property
    def key(self) -> str:
        """Name in the store."""
        return str(self.group_resource)

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def scope(self) -> str:
        return "Namespaced" if self.namespaced else "Cluster"

    @property
    def group_version_kind(self) -> Object:
        return {"group": self.group, "version": self.version, "kind": self.kind}

    @property
    def aliases(self) -> Object:
        """Short names and categories, as far as there are any."""
        found = {"shortNames": list(self.short_names), "categories": list(self.categories)}
        return {key: names for key, names in found.items() if names}

    def type_schema(self) -> Schema:
        """The schema of an object of this kind; empty when everything is accepted."""
        return definition(self.type_name) if self.type_name else self.schema

    @property
    def has_status(self) -> bool:
        return any(sub.name == "status" for sub in self.subresources)

    @property
    def selectable_fields(self) -> tuple[str, ...]:
        return (*COMMON_FIELDS, *self.fields)

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"
