"""Slurm as a configuration may have it, for tests."""

from __future__ import annotations

from typing import Any

from tests.infrastructure.alone import configuration
from trainflow.configuration.deployment import Configuration

KEY = "arn:aws:secretsmanager:us-west-2:123456789012:secret:slurm/jwt-AbCdEf"
HEAD_NODE, HEAD_NODE_GROUP = "i-0123456789abcdef0", "sg-0fedcba9876543210"
ENOUGH = dict.fromkeys(("trn_on_demand", "trn_spot", "standard_on_demand", "standard_spot"), 10_000)

PCS: dict[str, Any] = {
    "ami_id": "ami-0123456789abcdef0",
    "environment": "/opt/trainflow",
    "queues": [
        {"instance_type": "trn1.32xlarge", "max_nodes": 16},
        {"instance_type": "trn1.2xlarge", "max_nodes": 2, "mode": "spot"},
    ],
}
API: dict[str, Any] = {
    "api_url": "http://10.1.2.3:6820",
    "key_secret_arn": KEY,
    "security_group_id": HEAD_NODE_GROUP,
    "environment": "/opt/trainflow",
}
SSM: dict[str, Any] = {"head_node_instance_id": HEAD_NODE, "environment": "/opt/trainflow"}


def with_slurm(slurm: dict[str, Any] | None, **changes: Any) -> Configuration:
    """The example with another Slurm, and quotas that allow it."""
    nodegroups = [{"instance_type": "trn1.2xlarge", "max_nodes": 4}]
    capacity = {"nodegroups": nodegroups, "vcpu_quotas": ENOUGH}
    return configuration(**{"capacity": capacity, "slurm": slurm, **changes})
