"""A configuration that could only fail an hour into a deployment is refused at once, in one sentence."""

from __future__ import annotations

import copy
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.wording import wording
from trainflow.configuration.deployment import (
    REGIONS,
    Configuration,
    ConfigurationError,
    Schedule,
    load_configuration,
    scheduled_spec,
)
from trainflow.nodes.instances import INSTANCE_TYPES
from trainflow.nodes.offerings import OFFERINGS
from trainflow.nodes.prices import prices

EXAMPLE = Path("config/example.yaml")
SECRET = "arn:aws:secretsmanager:us-west-2:123456789012:secret:hub-AbCdEf"
DIGEST = "example.com/image@sha256:" + "0" * 64


def document(**changes: Any) -> dict[str, Any]:
    """The example, with fields changed by their dotted names; None as a value is kept."""
    found: dict[str, Any] = copy.deepcopy(yaml.safe_load(EXAMPLE.read_text()))
    for dotted, value in changes.items():
        *path, last = dotted.split("__")
        section = found
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return found


def refusal(tmp_path: Path, **changes: Any) -> str:
    """What `make synth` would say."""
    path = tmp_path / "refused.yaml"
    path.write_text(yaml.safe_dump(document(**changes)))
    with pytest.raises(ConfigurationError) as refused:
        load_configuration(path)
    return str(refused.value).removeprefix(f"{path}: ")


def group(instance_type: str = "trn1.32xlarge", max_nodes: int = 1, **fields: Any) -> list[dict[str, Any]]:
    return [{"instance_type": instance_type, "max_nodes": max_nodes, **fields}]


def test_the_example_can_be_deployed() -> None:
    assert load_configuration(EXAMPLE).cluster_name == "trainflow"


def test_a_node_image_of_another_kubernetes_version_is_refused(tmp_path: Path) -> None:
    changes = {"cluster__kubernetes_version": "1.35", "capacity__neuron_ami_release": "1.36.3-20260914"}
    assert refusal(tmp_path, **changes) == (
        wording(
            "configuration.a_node_image_of_another_kubernetes_version_is_refused",
            "capacity.neuron_ami_release",
            "'1.36.3-20260914'",
            "1.35",
        )
    )


def test_every_type_with_devices_has_zones_and_a_price_where_it_is_offered_but_for_those_that_no_source_has() -> None:
    assert set(OFFERINGS) == set(INSTANCE_TYPES)
    assert all(usd > 0 for usd in prices().values())
    unpriced = set()
    for name, instance in INSTANCE_TYPES.items():
        zone_ids = OFFERINGS[name].zone_ids
        assert (zone_ids is not None) == instance.accelerated
        prefixes = {zone.partition("-")[0] for zone in zone_ids or ()}
        offered = {region for region, prefix in REGIONS.items() if prefix in prefixes}
        unpriced |= {(region, name) for region in offered if (region, name) not in prices()}
    assert unpriced == {("us-east-2", "p5e.48xlarge"), ("us-west-2", "p5e.48xlarge")}


def test_every_price_has_a_date_and_a_source_and_is_of_a_region_and_a_type_that_exist() -> None:
    tables = json.loads(Path("trainflow/nodes/prices.json").read_text())
    for table in tables:
        assert date.fromisoformat(table["as_of"]) <= date(2026, 11, 30)
        assert table["source"].startswith("https://")
    assert {region for region, _ in prices()} == set(REGIONS)
    assert set(INSTANCE_TYPES) - {instance_type for _, instance_type in prices()} == {"p5e.48xlarge", "trn2.3xlarge"}
    assert {instance_type for _, instance_type in prices()} <= set(INSTANCE_TYPES)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"network__zone_id": "usw2-az2"},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.1",
                "network.zone_id",
                "trn1.2xlarge",
                "zone_confirmed",
            ),
        ),
        (
            {"capacity__nodegroups": group("trn2.48xlarge"), "capacity__vcpu_quotas": {"trn_on_demand": 192}},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.2",
                "network.zone_id",
                "trn2.48xlarge",
                "zone_confirmed",
            ),
        ),
        (
            {"capacity__nodegroups": group(mode="spot", reservation_id="cr-0123456789abcdef0")},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.3",
                "capacity.nodegroups",
                "'spot'",
                "'capacity-block'",
                "'reservation'",
            ),
        ),
        (
            {"capacity__nodegroups": group(mode="capacity-block")},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.4",
                "capacity.nodegroups",
                "'capacity-block'",
                "reservation_id",
            ),
        ),
        (
            {"storage__lustre": {"size_gib": 3600}},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.5", "storage.lustre.size_gib", "1200", "2400", "3600"
            ),
        ),
        (
            {"storage__lustre": {"throughput_mbps_per_tib": 200}},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.6",
                "storage.lustre.throughput_mbps_per_tib",
                "125",
                "250",
                "500",
            ),
        ),
        (
            {"cluster__public_endpoint_cidrs": ["0.0.0.0/0"]},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.7", "cluster.public_endpoint_cidrs", "'0.0.0.0/0'"
            ),
        ),
        (
            {"region": "mars-north-1"},
            wording("configuration.what_cannot_be_deployed_is_refused.8", "'mars-north-1'"),
        ),
        (
            {"capacity__nodegroups": group(max_nodes=3)},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.9",
                "384",
                "vcpu_quotas.trn_on_demand",
                "288",
                "max_nodes",
            ),
        ),
        (
            {"capacity__nodegroups": group(max_nodes=1, mode="spot")},
            wording("configuration.what_cannot_be_deployed_is_refused.10", "128", "vcpu_quotas.trn_spot", "max_nodes"),
        ),
        (
            {"capacity__nodegroups": group() + group()},
            wording("configuration.what_cannot_be_deployed_is_refused.11", "capacity.nodegroups", "trn1.32xlarge"),
        ),
        (
            {"capacity__nodegroups": group("p5.49xlarge")},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.12",
                "capacity.nodegroups",
                "instance_type",
                "'p5.49xlarge'",
                "p5.4xlarge",
            ),
        ),
        (
            {"environment": "production", "storage": {}},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.13",
                "images.neuron_base",
                "'public.ecr.aws/neuron/pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.29.1-ubuntu24.04'",
            ),
        ),
        (
            {
                "region": "us-east-2",
                "network__zone_id": "use2-az3",
                "network__second_zone_id": "use2-az1",
                "capacity__nodegroups": group("trn2.48xlarge"),
            },
            wording(
                "configuration.what_cannot_be_deployed_is_refused.14",
                "images.torchneuron_base",
                "trn2.48xlarge",
                "TorchNeuron",
            ),
        ),
        (
            {"network__second_zone_id": "usw2-az4"},
            wording("configuration.what_cannot_be_deployed_is_refused.15", "second_zone_id", "zone_id"),
        ),
        (
            {"network__zone_id": "us-west-2a"},
            wording("configuration.what_cannot_be_deployed_is_refused.16", "network.zone_id", "'us-west-2a'"),
        ),
        (
            {"network__cidr": "8.8.0.0/16"},
            wording("configuration.what_cannot_be_deployed_is_refused.17", "network.cidr", "'8.8.0.0/16'", "16", "18"),
        ),
        (
            {"network__cidr": "ten"},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.18", "network.cidr", "'ten'", "203.0.113.0", "24"
            ),
        ),
        (
            {"capacity__neuron_ami_release": "1.35.9-20260827"},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.19",
                "capacity.neuron_ami_release",
                "'1.35.9-20260827'",
                "1.36",
            ),
        ),
        (
            {"capacity__neuron_ami_release": "newest"},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.20",
                "capacity.neuron_ami_release",
                "1.36.2",
                "'newest'",
            ),
        ),
        (
            {"capacity__nodegroups": []},
            wording("configuration.what_cannot_be_deployed_is_refused.21", "capacity.nodegroups"),
        ),
        (
            {"storage__grants": [{"bucket": "s3://my-models"}]},
            wording("configuration.what_cannot_be_deployed_is_refused.22", "storage.grants", "'s3://my-models'"),
        ),
        (
            {"storage__grants": [{"bucket": "my-models", "prefix": "bert/*"}]},
            wording("configuration.what_cannot_be_deployed_is_refused.23", "storage.grants", "'bert/*'"),
        ),
        (
            {"storage__grants": [{"bucket": "my-models", "read": False}]},
            wording("configuration.what_cannot_be_deployed_is_refused.24", "storage.grants"),
        ),
        (
            {"run_secrets": [{"secret_arn": "hugging-face"}]},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.25",
                "run_secrets",
                "secret_arn",
                "`aws secretsmanager describe-secret`",
                "'hugging-face'",
            ),
        ),
        (
            {"run_secrets": [{"secret_arn": SECRET.replace("us-west-2", "us-east-1")}]},
            wording("configuration.what_cannot_be_deployed_is_refused.26", "run_secrets", "123456789012", "AbCdEf"),
        ),
        (
            {
                "network": None,
                "existing_cluster": {"name": "theirs"},
                "storage__lustre": None,
                "run_secrets": [{"secret_arn": SECRET}],
            },
            wording(
                "configuration.what_cannot_be_deployed_is_refused.27",
                "run_secrets",
                "existing_cluster",
                "'training'",
                "GetSecretValue",
            ),
        ),
        (
            {"cluster__volcano_queues": [{"name": "default"}]},
            wording("configuration.what_cannot_be_deployed_is_refused.28", "cluster.volcano_queues", "'default'"),
        ),
        (
            {"cluster__volcano_queues": [{"name": "test"}, {"name": "test", "weight": 2}]},
            wording("configuration.what_cannot_be_deployed_is_refused.29", "cluster.volcano_queues", "'test'"),
        ),
        (
            {"cluster__volcano_queues": [{"name": "test", "capability": {"cpu": "many"}}]},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.30",
                "cluster.volcano_queues",
                "capability.cpu",
                "32",
                "512",
            ),
        ),
        ({"network": None}, wording("configuration.what_cannot_be_deployed_is_refused.31", "existing_cluster")),
        (
            {"existing_cluster": {"name": "theirs"}},
            wording("configuration.what_cannot_be_deployed_is_refused.32", "existing_cluster"),
        ),
        (
            {"network": None, "existing_cluster": {"name": "theirs"}},
            wording("configuration.what_cannot_be_deployed_is_refused.33", "storage.lustre", "existing_cluster"),
        ),
        (
            {
                "network": None,
                "storage__lustre": None,
                "existing_cluster": {"name": "theirs", "vpc_id": "vpc-1"},
            },
            wording(
                "configuration.what_cannot_be_deployed_is_refused.34",
                "existing_cluster",
                "vpc_id",
                "subnet_ids",
                "security_group_id",
            ),
        ),
        ({"account": 1234}, "account: must be text, got 1234; put it in quotes."),
        ({"account": "1234"}, wording("configuration.what_cannot_be_deployed_is_refused.35", "12", "'1234'")),
        ({"alarms__emails": ["somebody"]}, "alarms.emails.0: must be an e-mail address, got 'somebody'."),
        (
            {"storage__buckets_on_destroy": "delete", "storage__lustre": {"on_destroy": "retain"}},
            wording(
                "configuration.what_cannot_be_deployed_is_refused.36",
                "storage.buckets_on_destroy",
                "'delete'",
                "storage.lustre.on_destroy",
                "'retain'",
            ),
        ),
        (
            {
                "environment": "production",
                "images": {"neuron_base": DIGEST, "cpu_base": DIGEST},
                "storage__lustre": {"on_destroy": "delete"},
            },
            wording(
                "configuration.what_cannot_be_deployed_is_refused.37",
                "storage.lustre.on_destroy",
                "'delete'",
                "'retain'",
            ),
        ),
        ({"colour": "red"}, wording("configuration.what_cannot_be_deployed_is_refused.38", "correct")),
        ({"name": "x" * 21}, "name: must have at most 20 characters, got '" + "x" * 21 + "'."),
    ],
)
def test_what_cannot_be_deployed_is_refused(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    assert refusal(tmp_path, **changes) == sentence


def test_production_is_deployed_from_images_by_digest(tmp_path: Path) -> None:
    path = tmp_path / "production.yaml"
    images = {"neuron_base": DIGEST, "cpu_base": DIGEST}
    path.write_text(yaml.safe_dump(document(environment="production", images=images, storage={})))
    assert load_configuration(path).production


def test_a_zone_that_the_snapshot_does_not_know_can_be_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "confirmed.yaml"
    confirmed = group(zone_confirmed=True)
    path.write_text(yaml.safe_dump(document(network__zone_id="usw2-az2", capacity__nodegroups=confirmed)))
    assert load_configuration(path).network is not None


def test_a_capacity_block_is_not_held_against_the_quotas(tmp_path: Path) -> None:
    path = tmp_path / "block.yaml"
    block = group(max_nodes=64, mode="capacity-block", reservation_id="cr-0123456789abcdef0")
    path.write_text(yaml.safe_dump(document(capacity__nodegroups=block)))
    assert load_configuration(path).capacity.nodegroups[0].quota is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a list", "must be a mapping of fields such as 'version', 'name' and 'region'."),
        ("a: [", "is not YAML: "),
        ("\x00", "is not YAML: "),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load_configuration(path)
    assert sentence in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    sentence = r"missing\.yaml cannot be read .*; make it from config/example\.yaml of Trainflow's checkout"
    with pytest.raises(ConfigurationError, match=sentence):
        load_configuration(tmp_path / "missing.yaml")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=10), children, max_size=3),
    max_leaves=8,
)


@given(field=st.sampled_from(sorted(document())), value=json_values)
def test_whatever_stands_in_a_field_it_is_taken_or_refused_by_name(field: str, value: Any) -> None:
    try:
        Configuration.model_validate(document(**{field: value}))
    except ValidationError as invalid:
        assert invalid.errors()


SCHEDULE_FACTS = yaml.safe_load(Path("tests/assets/schedule_expressions.yaml").read_text())


@pytest.mark.parametrize("expression", [each for group in SCHEDULE_FACTS["refused"] for each in group["expressions"]])
def test_a_schedule_that_aws_would_refuse_is_refused_before_synthesis(tmp_path: Path, expression: str) -> None:
    schedules = [{"name": "nightly", "expression": expression, "spec": "runs/demo.yaml"}]
    assert refusal(tmp_path, schedules=schedules).startswith("schedules.0.expression: ")


@pytest.mark.parametrize("expression", [each for group in SCHEDULE_FACTS["accepted"] for each in group["expressions"]])
def test_a_schedule_that_aws_accepts_is_accepted(expression: str) -> None:
    schedules = [{"name": "nightly", "expression": expression, "spec": "runs/demo.yaml"}]
    assert Configuration.model_validate(document(schedules=schedules)).schedules[0].expression == expression


def test_a_schedule_that_is_refused_says_what_is_wrong_with_which_field(tmp_path: Path) -> None:
    schedules = [{"name": "nightly", "expression": "cron(0 2 ? * SAT)", "spec": "runs/demo.yaml"}]
    assert refusal(tmp_path, schedules=schedules) == (
        wording("configuration.a_schedule_that_is_refused_says_what_is_wrong_with_which_field", "5", "0", "2")
    )


class TestSchedules:
    """The specs that run by the clock are read when the schedule is deployed."""

    def refused(self, spec: str, *, repository: Path = Path(), **changes: Any) -> str:
        configuration = Configuration.model_validate(document(**changes))
        schedule = Schedule(name="nightly", expression="rate(1 day)", spec=spec)
        with pytest.raises(ConfigurationError) as refused:
            scheduled_spec(configuration, schedule, repository=repository)
        return str(refused.value)

    def test_a_spec_that_fits_is_taken(self) -> None:
        configuration = Configuration.model_validate(document())
        schedule = Schedule(name="nightly", expression="rate(1 day)", spec="runs/demo.yaml")
        assert scheduled_spec(configuration, schedule, repository=Path()).name == "demo"

    def test_a_spec_that_is_not_there_is_named(self) -> None:
        assert self.refused("runs/gone.yaml") == (
            wording("configuration.a_spec_that_is_not_there_is_named", "schedules.nightly", "gone.yaml")
        )

    def test_a_spec_that_is_none_says_why(self, tmp_path: Path) -> None:
        (tmp_path / "odd.yaml").write_text("version: 1\nname: Odd\n")
        said = self.refused("odd.yaml", repository=tmp_path)
        assert said.startswith(
            "schedules.nightly: odd.yaml is not a run spec: name: must begin with a lower-case letter"
        )

    def test_a_spec_for_nodes_that_are_not_deployed_is_refused(self) -> None:
        assert self.refused("runs/demo.yaml", capacity__nodegroups=group("c7i.4xlarge")) == (
            wording(
                "configuration.a_spec_for_nodes_that_are_not_deployed_is_refused",
                "schedules.nightly",
                "demo.yaml",
                "trn1.32xlarge",
                "capacity.nodegroups",
            )
        )

    def test_a_spec_for_more_nodes_than_the_group_has_is_refused(self) -> None:
        assert self.refused("runs/demo.yaml", capacity__nodegroups=group("trn1.32xlarge", 1)) == (
            wording(
                "configuration.a_spec_for_more_nodes_than_the_group_has_is_refused",
                "schedules.nightly",
                "demo.yaml",
                "max_nodes",
                "trn1.32xlarge",
            )
        )

    def test_an_image_by_tag_is_refused_in_production(self) -> None:
        images = {"neuron_base": DIGEST, "cpu_base": DIGEST}
        assert self.refused("runs/demo.yaml", environment="production", images=images, storage={}) == (
            wording(
                "configuration.an_image_by_tag_is_refused_in_production",
                "schedules.nightly",
                "demo.yaml",
                "workload.image",
                "'trainflow/trainer:demo'",
            )
        )

    def test_a_time_zone_that_is_none_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="is not an IANA time zone"):
            Schedule(name="nightly", expression="rate(1 day)", time_zone="Moon/Tycho", spec="runs/demo.yaml")


CLUSTER_MAKES_NODES: dict[str, Any] = {
    "network": None,
    "existing_cluster": {"name": "theirs"},
    "storage": {"lustre": None},
}


def test_a_cluster_that_makes_nodes_needs_no_node_group(tmp_path: Path) -> None:
    path = tmp_path / "accepted.yaml"
    path.write_text(yaml.safe_dump(document(**CLUSTER_MAKES_NODES, capacity={"cluster": True})))
    assert load_configuration(path).capacity.nodegroups == ()


@pytest.mark.parametrize(
    ("capacity", "words"),
    [
        ({"nodegroups": group()}, ("cluster", "nodegroups", "remove one")),
        ({"replace_bad_nodes": True}, ("replace_bad_nodes", "remove it")),
        ({"neuron_ami_release": "1.36.2-20260827"}, ("neuron_ami_release", "EC2NodeClass")),
    ],
)
def test_settings_of_node_groups_are_refused_with_such_a_cluster(
    tmp_path: Path, capacity: dict[str, Any], words: tuple[str, ...]
) -> None:
    sentence = refusal(tmp_path, **CLUSTER_MAKES_NODES, capacity={"cluster": True, **capacity})
    assert sentence.startswith("capacity: ")
    assert all(word in sentence for word in words), sentence


def test_a_cluster_of_this_deployment_makes_no_nodes_by_itself(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, capacity={"cluster": True})
    assert "capacity.cluster" in sentence and "existing_cluster" in sentence
