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
        "configuration: capacity.neuron_ami_release: '1.36.3-20260914' is not for Kubernetes 1.35, the cluster's "
        "version; choose a release that begins with 1.35., or remove it for the newest."
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
            "configuration: network.zone_id: usw2-az2 does not offer trn1.2xlarge, which is offered in usw2-az1, "
            "usw2-az4; choose another zone, or set zone_confirmed if EC2 tells you otherwise.",
        ),
        (
            {"capacity__nodegroups": group("trn2.48xlarge"), "capacity__vcpu_quotas": {"trn_on_demand": 192}},
            "configuration: network.zone_id: usw2-az4 does not offer trn2.48xlarge, which is offered nowhere in "
            "us-west-2; choose another zone, or set zone_confirmed if EC2 tells you otherwise.",
        ),
        (
            {"capacity__nodegroups": group(mode="spot", reservation_id="cr-0123456789abcdef0")},
            "capacity.nodegroups.0: mode 'spot' cannot draw on cr-0123456789abcdef0; use 'capacity-block' or "
            "'reservation', or remove reservation_id.",
        ),
        (
            {"capacity__nodegroups": group(mode="capacity-block")},
            "capacity.nodegroups.0: mode 'capacity-block' needs the reservation_id that it draws on.",
        ),
        (
            {"storage__lustre": {"size_gib": 3600}},
            "storage.lustre.size_gib: FSx offers 1200, 2400 and multiples of 2400 GiB, not 3600.",
        ),
        (
            {"storage__lustre": {"throughput_mbps_per_tib": 200}},
            "storage.lustre.throughput_mbps_per_tib: FSx offers 125, 250, 500, 1000 MB/s for each TiB, not 200.",
        ),
        (
            {"cluster__public_endpoint_cidrs": ["0.0.0.0/0"]},
            "cluster.public_endpoint_cidrs: '0.0.0.0/0' opens the API server to the world; name the networks that you "
            "work from, or none for a private endpoint.",
        ),
        (
            {"region": "mars-north-1"},
            "region: 'mars-north-1' is no region with Trainium; choose one of us-east-1, us-east-2, us-west-2.",
        ),
        (
            {"capacity__nodegroups": group(max_nodes=3)},
            "capacity: the node groups may grow to 384 vCPUs, but vcpu_quotas.trn_on_demand is 288; lower max_nodes, "
            "or ask AWS for more and write the new quota here.",
        ),
        (
            {"capacity__nodegroups": group(max_nodes=1, mode="spot")},
            "capacity: the node groups may grow to 128 vCPUs, but vcpu_quotas.trn_spot is 0; lower max_nodes, or ask "
            "AWS for more and write the new quota here.",
        ),
        (
            {"capacity__nodegroups": group() + group()},
            "capacity.nodegroups: there are two node groups of trn1.32xlarge; a run asks for a type, so keep one.",
        ),
        (
            {"capacity__nodegroups": group("p5.49xlarge")},
            "capacity.nodegroups.0.instance_type: 'p5.49xlarge' is not supported; choose another such as p5.4xlarge, "
            "p5.48xlarge, p5e.48xlarge; the page 'Instance types' of the documentation has all.",
        ),
        (
            {"environment": "production", "storage": {}},
            "configuration: images.neuron_base: 'public.ecr.aws/neuron/pytorch-training-neuronx:2.9.0-neuronx-py312-"
            "sdk2.29.1-ubuntu24.04' is a tag, which can move; production names images by digest (…@sha256:…).",
        ),
        (
            {
                "region": "us-east-2",
                "network__zone_id": "use2-az3",
                "network__second_zone_id": "use2-az1",
                "capacity__nodegroups": group("trn2.48xlarge"),
            },
            "configuration: images.torchneuron_base is missing; trn2.48xlarge needs an image with TorchNeuron.",
        ),
        (
            {"network__second_zone_id": "usw2-az4"},
            "network: second_zone_id is the same zone as zone_id; EKS needs two.",
        ),
        (
            {"network__zone_id": "us-west-2a"},
            "configuration: network.zone_id: 'us-west-2a' is no zone id of us-west-2, such as usw2-az1.",
        ),
        (
            {"network__cidr": "8.8.0.0/16"},
            "network.cidr: '8.8.0.0/16' must be a private network of 16 to 18 bits, such as 10.40.0.0/16.",
        ),
        (
            {"network__cidr": "ten"},
            "network.cidr: 'ten' is no IPv4 network such as 203.0.113.0/24.",
        ),
        (
            {"capacity__neuron_ami_release": "1.35.9-20260827"},
            "configuration: capacity.neuron_ami_release: '1.35.9-20260827' is not for Kubernetes 1.36, the cluster's "
            "version; choose a release that begins with 1.36., or remove it for the newest.",
        ),
        (
            {"capacity__neuron_ami_release": "newest"},
            "capacity.neuron_ami_release: must be an EKS AMI release such as 1.36.2-20260827, got 'newest'.",
        ),
        ({"capacity__nodegroups": []}, "capacity.nodegroups: there is no node group; name at least one."),
        (
            {"storage__grants": [{"bucket": "s3://my-models"}]},
            "storage.grants.0.bucket: must be the name of a bucket, without s3:// and without a path, got "
            "'s3://my-models'.",
        ),
        (
            {"storage__grants": [{"bucket": "my-models", "prefix": "bert/*"}]},
            "storage.grants.0.prefix: 'bert/*' must end with a slash and hold no wildcard, such as models/.",
        ),
        (
            {"storage__grants": [{"bucket": "my-models", "read": False}]},
            "storage.grants.0: grants nothing; set read or write, or remove it.",
        ),
        (
            {"run_secrets": [{"secret_arn": "hugging-face"}]},
            "run_secrets.0.secret_arn: must be the whole ARN of a secret, with the six characters at its end, as `aws "
            "secretsmanager describe-secret` prints it, got 'hugging-face'.",
        ),
        (
            {"run_secrets": [{"secret_arn": SECRET.replace("us-west-2", "us-east-1")}]},
            "configuration: run_secrets: arn:aws:secretsmanager:us-east-1:123456789012:secret:hub-AbCdEf is in "
            "us-east-1, and the deployment in us-west-2; replicate the secret to that Region.",
        ),
        (
            {
                "network": None,
                "existing_cluster": {"name": "theirs"},
                "storage__lustre": None,
                "run_secrets": [{"secret_arn": SECRET}],
            },
            "configuration: run_secrets and existing_cluster exclude each other: the role of the pods is not this "
            "deployment's; give the role of the service account 'training' secretsmanager:GetSecretValue there.",
        ),
        (
            {"cluster__volcano_queues": [{"name": "default"}]},
            "cluster.volcano_queues.0.name: Volcano makes the queue 'default' itself; leave it out, or choose another "
            "name.",
        ),
        (
            {"cluster__volcano_queues": [{"name": "test"}, {"name": "test", "weight": 2}]},
            "cluster.volcano_queues: there are two queues named 'test'; keep one.",
        ),
        (
            {"cluster__volcano_queues": [{"name": "test", "capability": {"cpu": "many"}}]},
            "cluster.volcano_queues.0.capability.cpu: must be an amount as Kubernetes writes it, in quotes, such as "
            '"32" or "512Gi", got \'many\'.',
        ),
        ({"network": None}, "configuration: network is missing; add it, or name an existing_cluster."),
        (
            {"existing_cluster": {"name": "theirs"}},
            "configuration: network and existing_cluster exclude each other; remove one.",
        ),
        (
            {"network": None, "existing_cluster": {"name": "theirs"}},
            "configuration: storage.lustre must be null with existing_cluster: the cluster's own network holds the "
            "file system.",
        ),
        (
            {
                "network": None,
                "storage__lustre": None,
                "existing_cluster": {"name": "theirs", "vpc_id": "vpc-1"},
            },
            "existing_cluster: vpc_id, subnet_ids and security_group_id go together; give all three or none.",
        ),
        ({"account": 1234}, "account: must be text, got 1234; put it in quotes."),
        ({"account": "1234"}, "account: must be the account's 12 digits, in quotes, got '1234'."),
        ({"alarms__emails": ["somebody"]}, "alarms.emails.0: must be an e-mail address, got 'somebody'."),
        (
            {"storage__buckets_on_destroy": "delete", "storage__lustre": {"on_destroy": "retain"}},
            "configuration: storage.buckets_on_destroy is 'delete' and storage.lustre.on_destroy is 'retain': the file "
            "system would lose the buckets that it is linked to; delete both, or keep both.",
        ),
        (
            {
                "environment": "production",
                "images": {"neuron_base": DIGEST, "cpu_base": DIGEST},
                "storage__lustre": {"on_destroy": "delete"},
            },
            "configuration: storage.lustre.on_destroy is 'delete', but production keeps its data; use 'retain'.",
        ),
        ({"colour": "red"}, "colour: there is no such field; remove it or correct its name."),
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
        "schedules.0.expression: cron(…) has six fields, minutes hours day-of-month month day-of-week "
        "year, and not 5; a weekly one is cron(0 2 ? * SAT *)."
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
            "schedules.nightly: runs/gone.yaml cannot be read (No such file or directory)."
        )

    def test_a_spec_that_is_none_says_why(self, tmp_path: Path) -> None:
        (tmp_path / "odd.yaml").write_text("version: 1\nname: Odd\n")
        said = self.refused("odd.yaml", repository=tmp_path)
        assert said.startswith("schedules.nightly: odd.yaml is no run spec: name: must begin with a lower-case letter")

    def test_a_spec_for_nodes_that_are_not_deployed_is_refused(self) -> None:
        assert self.refused("runs/demo.yaml", capacity__nodegroups=group("c7i.4xlarge")) == (
            "schedules.nightly: runs/demo.yaml asks for trn1.32xlarge, of which capacity.nodegroups has none; add a "
            "node group."
        )

    def test_a_spec_for_more_nodes_than_the_group_has_is_refused(self) -> None:
        assert self.refused("runs/demo.yaml", capacity__nodegroups=group("trn1.32xlarge", 1)) == (
            "schedules.nightly: runs/demo.yaml asks for 2 nodes, but max_nodes of trn1.32xlarge is 1; raise it or ask "
            "for fewer."
        )

    def test_an_image_by_tag_is_refused_in_production(self) -> None:
        images = {"neuron_base": DIGEST, "cpu_base": DIGEST}
        assert self.refused("runs/demo.yaml", environment="production", images=images, storage={}) == (
            "schedules.nightly: runs/demo.yaml: workload.image: 'trainflow/trainer:demo' is a tag, which can move; "
            "production names images by digest (…@sha256:…)."
        )

    def test_a_time_zone_that_is_none_is_refused(self) -> None:
        with pytest.raises(ValidationError, match="no IANA time zone"):
            Schedule(name="nightly", expression="rate(1 day)", time_zone="Moon/Tycho", spec="runs/demo.yaml")
