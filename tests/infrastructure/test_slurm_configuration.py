"""What is refused of the section `slurm`, by name and before anything is deployed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.infrastructure.serverless import configuration as on_their_cluster
from tests.infrastructure.slurm import API, KEY, PCS, SSM, with_slurm
from trainflow.configuration.deployment import ConfigurationError, scheduled_spec


@pytest.mark.parametrize(
    ("slurm", "words"),
    [
        ({}, "needs exactly one of 'pcs' and 'existing'"),
        ({"pcs": PCS, "existing": API}, "needs exactly one of 'pcs' and 'existing'"),
        ({"pcs": {**PCS, "queues": []}}, "there is no queue"),
        ({"pcs": {**PCS, "queues": [PCS["queues"][0]] * 2}}, "two queues of trn1.32xlarge"),
        ({"pcs": {**PCS, "queues": [{"instance_type": "p9.48xlarge", "max_nodes": 1}]}}, "'p9.48xlarge'"),
        ({"pcs": {**PCS, "queues": [{"instance_type": "trn1.32xlarge", "max_nodes": 31}]}}, "manages 32 nodes"),
        ({"pcs": {**PCS, "ami_id": "latest"}}, "ami_id"),
        ({"pcs": {**PCS, "version": "24.11"}}, "version"),
        ({"pcs": {**PCS, "environment": "venv"}}, "environment"),
        ({"pcs": {name: value for name, value in PCS.items() if name != "ami_id"}}, "ami_id"),
        ({"existing": {"environment": "/opt"}}, "exactly one of 'api_url' and 'head_node_instance_id'"),
        ({"existing": {**API, **SSM}}, "exactly one of 'api_url' and 'head_node_instance_id'"),
        ({"existing": {**API, "key_secret_arn": None}}, "api_url needs key_secret_arn and security_group_id"),
        ({"existing": {**SSM, "key_secret_arn": KEY}}, "with neither a key nor a security group"),
        ({"existing": {**API, "api_url": "https://slurm.example.org"}}, "api_url"),
        ({"existing": {**API, "key_secret_arn": "slurm"}}, "key_secret_arn"),
        ({"existing": {**SSM, "system_queue": "small*"}}, "system_queue"),
    ],
)
def test_a_contradiction_is_refused_by_name(slurm: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        with_slurm(slurm)
    assert words in str(refused.value)


def test_slurm_of_our_own_needs_our_own_network_and_file_system() -> None:
    with pytest.raises(ValidationError, match=r"slurm\.pcs .*network.*storage\.lustre"):
        on_their_cluster(slurm={"pcs": PCS})
    with pytest.raises(ValidationError, match=r"slurm\.pcs .*network.*storage\.lustre"):
        with_slurm({"pcs": PCS}, storage={"lustre": None})


def test_a_private_slurmrestd_needs_functions_in_a_network() -> None:
    with pytest.raises(ValidationError, match=r"slurm\.existing\.api_url .*private"):
        on_their_cluster(existing_cluster={"name": "theirs"}, slurm={"existing": API})
    assert on_their_cluster(existing_cluster={"name": "theirs"}, slurm={"existing": SSM})


def test_both_clusters_together_stay_within_the_quotas() -> None:
    groups = [{"instance_type": "trn1.32xlarge", "max_nodes": 2}]
    just_enough = {"trn_on_demand": 4 * 128, "standard_on_demand": 4}
    pcs = {**PCS, "queues": groups}
    assert with_slurm({"pcs": pcs}, capacity={"nodegroups": groups, "vcpu_quotas": just_enough})
    for quota, missing in (("trn_on_demand", 512), ("standard_on_demand", 4)):
        less = {**just_enough, quota: missing - 1}
        with pytest.raises(ValidationError, match=rf"Slurm .* {missing} .*vcpu_quotas.{quota}"):
            with_slurm({"pcs": pcs}, capacity={"nodegroups": groups, "vcpu_quotas": less})


def test_a_queue_of_a_type_that_the_zone_does_not_offer_is_refused() -> None:
    queues = [{"instance_type": "trn2.48xlarge", "max_nodes": 1}]
    with pytest.raises(ValidationError, match=r"does not offer trn2\.48xlarge"):
        with_slurm({"pcs": {**PCS, "queues": queues}})


@pytest.mark.parametrize(
    ("slurm", "words"),
    [
        (None, "asks for Slurm; add the section slurm"),
        ({"pcs": {**PCS, "queues": [{"instance_type": "trn1.2xlarge", "max_nodes": 1}]}}, "slurm.pcs.queues has none"),
        ({"pcs": {**PCS, "queues": [{"instance_type": "trn1.32xlarge", "max_nodes": 1}]}}, "asks for 2 nodes"),
        ({"pcs": PCS}, None),
        ({"existing": SSM}, None),
    ],
)
def test_a_scheduled_spec_for_slurm_is_held_to_the_queues(
    slurm: dict[str, Any] | None, words: str | None, tmp_path: Path
) -> None:
    spec = {
        "version": 1,
        "name": "weekly",
        "workload": {"module": "trainer.pretrain"},
        "compute": {"backend": "slurm", "instance_type": "trn1.32xlarge", "num_nodes": 2},
        "dataset": {"url": "s3://data/data/shards.tar"},
    }
    (tmp_path / "weekly.yaml").write_text(json.dumps(spec))
    schedule = {"name": "weekly", "expression": "rate(7 days)", "spec": "weekly.yaml"}
    settings = with_slurm(slurm, schedules=[schedule])
    if words is None:
        assert scheduled_spec(settings, settings.schedules[0], repository=tmp_path).compute.num_nodes == 2
        return
    with pytest.raises(ConfigurationError) as refused:
        scheduled_spec(settings, settings.schedules[0], repository=tmp_path)
    assert words in str(refused.value)
