"""Answers of AWS and of a cluster about a deployment. Values only: `checks.py` judges them, `gathering.py` asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from trainflow.observed.node import Node

Object: TypeAlias = Mapping[str, Any]
"""An object of the Kubernetes API, or a structure of an answer of AWS."""


@dataclass(frozen=True)
class Unasked:
    """A question without an answer."""

    reason: str
    """A sentence: which permission is missing, or what did not answer."""


@dataclass(frozen=True)
class Absent:
    """The part does not exist."""


_T = TypeVar("_T")

Answer: TypeAlias = _T | Absent | Unasked
"""A part as it was found, or the reason for its absence from the answers."""


@dataclass(frozen=True, kw_only=True)
class FunctionState:
    """A Lambda function."""

    state: str
    """`State` of Lambda: Pending, Active, Inactive, Failed and others."""
    reason: str
    """`StateReason`, or that of the last update if that has failed; empty without one."""
    update: str
    """`LastUpdateStatus`: Successful, Failed or InProgress."""
    concurrency: int | None
    """Reserved concurrency; None if none is reserved or it could not be asked."""


@dataclass(frozen=True, kw_only=True)
class EventSource:
    """The queue of uploads and its connection to the function that starts runs."""

    state: str
    """State of the event source mapping: Enabled, Disabled and others."""
    waiting: int | None
    """Messages in the queue; None if they could not be counted."""
    lost: int | None
    """Messages in its dead-letter queue; None if they could not be counted."""


@dataclass(frozen=True, kw_only=True)
class AwsFacts:
    """The parts of a deployment in AWS."""

    state_machine: Answer[str]
    """Status of the training workflow."""
    functions: Mapping[str, Answer[FunctionState]]
    """Functions by their names without the deployment's."""
    aliases: Mapping[str, Answer[str]]
    """ARN of the alias `live` of the functions that events call."""
    artifact_bucket: Answer[str]
    data_bucket: Answer[str]
    """Names of the buckets that answer."""
    sends_events: Answer[bool]
    """Whether the data bucket reports its objects to EventBridge."""
    uploads: Answer[EventSource]
    upload_rules: Answer[Mapping[str, str]]
    """Rules that send uploads to the queue, with their states."""
    end_rules: Answer[Mapping[str, str]]
    """Rules that start the clean-up of ended runs, with their states."""
    schedules: Answer[Mapping[str, str]]
    """Schedules of the deployment, with their states."""
    survey_schedules: Answer[frozenset[str]]
    """Those of them that start the search for forgotten nodes."""
    subscriptions: Answer[Mapping[str, bool]]
    """Addresses that receive messages, and whether each was confirmed."""
    alarms: Answer[Sequence[str]]
    """Alarms that are in the state ALARM."""
    cluster: Answer[Object]
    """`DescribeCluster` of EKS."""
    nodegroups: Answer[Sequence[Object]]
    """`DescribeNodegroup` of each node group."""
    addons: Answer[Sequence[Object]]
    """`DescribeAddon` of each add-on."""
    file_systems: Answer[Sequence[Object]]
    """`DescribeFileSystems` of those that volumes of the cluster name."""


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """The parts of a deployment in its cluster."""

    version: Answer[str]
    """Version of the API server, which answers every caller it knows."""
    namespace: Answer[Object]
    service_account: Answer[Object]
    claims: Answer[Sequence[Object]]
    """Claims in the namespace of runs."""
    quotas: Answer[Sequence[Object]]
    """ResourceQuotas of that namespace."""
    deployments: Answer[Sequence[Object]]
    daemon_sets: Answer[Sequence[Object]]
    """Those of all namespaces."""
    nodes: Answer[Sequence[Node]]
    pressures: Mapping[str, Sequence[str]]
    """Names of the conditions of nodes that report a shortage, by node."""
