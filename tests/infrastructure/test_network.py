"""Where the cluster stands: zones by id, one way out, and security groups that say who talks to whom."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from stacks.network.stack import NetworkStack
from trainflow.configuration.deployment import Configuration, load_configuration

Resources = dict[str, dict[str, Any]]

EXAMPLE = Path("config/example.yaml")
CONTEXT = {**json.loads(Path("cdk.json").read_text())["context"], "aws:cdk:disable-asset-staging": True}
ACCOUNT = "111122223333"


def configuration(**changes: Any) -> Configuration:
    return Configuration.model_validate({**load_configuration(EXAMPLE).model_dump(), **changes})


@cache
def assembly(account: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The template, and the manifest of what CDK would have to ask an account for."""
    with tempfile.TemporaryDirectory() as folder:
        app = cdk.App(context=CONTEXT, outdir=folder)
        env = cdk.Environment(account=account, region="us-west-2")
        NetworkStack(app, "Network", configuration=configuration(), env=env)
        app.synth()
        read = (json.loads((Path(folder) / name).read_text()) for name in ("Network.template.json", "manifest.json"))
        template, manifest = read
    return template, manifest


def of_type(kind: str) -> Resources:
    resources: Resources = assembly()[0]["Resources"]
    return {name: resource for name, resource in resources.items() if resource["Type"] == kind}


def security_group(description: str) -> tuple[str, dict[str, Any]]:
    [found] = [
        (name, group["Properties"])
        for name, group in of_type("AWS::EC2::SecurityGroup").items()
        if group["Properties"]["GroupDescription"].startswith(description)
    ]
    return found


@pytest.mark.parametrize("account", [None, ACCOUNT])
def test_no_account_is_asked_for_anything(account: str | None) -> None:
    template, manifest = assembly(account)
    assert "missing" not in manifest
    assert "Fn::GetAZs" not in json.dumps(template)


def test_subnets_are_placed_by_zone_id_and_never_by_name() -> None:
    network = configuration().network
    assert network is not None
    subnets = [subnet["Properties"] for subnet in of_type("AWS::EC2::Subnet").values()]
    assert {subnet["AvailabilityZoneId"] for subnet in subnets} == {network.zone_id, network.second_zone_id}
    assert not [subnet for subnet in subnets if "AvailabilityZone" in subnet]


def test_the_training_subnet_is_in_the_zone_of_the_configuration() -> None:
    app = cdk.App(context=CONTEXT)
    stack = NetworkStack(app, "Network", configuration=configuration(), env=cdk.Environment(region="us-west-2"))
    zones = [stack.resolve(subnet.node.default_child.availability_zone_id) for subnet in stack.private_subnets]  # type: ignore[union-attr]
    assert zones == ["usw2-az4", "usw2-az1"]
    assert stack.training_subnet is stack.private_subnets[0]


def test_nothing_gets_a_public_address_by_itself() -> None:
    assert not any(subnet["Properties"]["MapPublicIpOnLaunch"] for subnet in of_type("AWS::EC2::Subnet").values())


def test_there_is_one_way_out_and_it_is_in_the_training_zone() -> None:
    [gateway] = of_type("AWS::EC2::NatGateway").values()
    subnet = of_type("AWS::EC2::Subnet")[gateway["Properties"]["SubnetId"]["Ref"]]
    assert subnet["Properties"]["AvailabilityZoneId"] == "usw2-az4"


def test_data_from_s3_does_not_pass_the_nat_gateway() -> None:
    [endpoint] = of_type("AWS::EC2::VPCEndpoint").values()
    through_nat = {
        route["Properties"]["RouteTableId"]["Ref"]
        for route in of_type("AWS::EC2::Route").values()
        if "NatGatewayId" in route["Properties"]
    }
    assert endpoint["Properties"]["VpcEndpointType"] == "Gateway"
    assert through_nat <= {table["Ref"] for table in endpoint["Properties"]["RouteTableIds"]}
    assert len(through_nat) == 2


def test_all_flows_are_logged() -> None:
    [log] = of_type("AWS::EC2::FlowLog").values()
    assert log["Properties"]["TrafficType"] == "ALL"
    assert log["Properties"]["LogDestinationType"] == "cloud-watch-logs"


def test_no_log_is_kept_forever_or_left_behind() -> None:
    groups = of_type("AWS::Logs::LogGroup")
    assert groups
    for group in groups.values():
        assert group["Properties"]["RetentionInDays"]
        assert group["DeletionPolicy"] == "Delete"
    for function in of_type("AWS::Lambda::Function").values():
        assert function["Properties"]["LoggingConfig"]["LogGroup"]["Ref"] in groups


def test_efa_traffic_may_leave_and_enter_its_group_and_come_from_nowhere_else() -> None:
    name, group = security_group("Training nodes")
    itself = {"Fn::GetAtt": [name, "GroupId"]}
    [enters] = of_type("AWS::EC2::SecurityGroupIngress").values()
    [leaves] = of_type("AWS::EC2::SecurityGroupEgress").values()
    assert "SecurityGroupIngress" not in group
    assert enters["Properties"]["GroupId"] == enters["Properties"]["SourceSecurityGroupId"] == itself
    assert leaves["Properties"]["GroupId"] == leaves["Properties"]["DestinationSecurityGroupId"] == itself
    assert enters["Properties"]["IpProtocol"] == leaves["Properties"]["IpProtocol"] == "-1"


def test_functions_speak_https_and_accept_no_connection() -> None:
    _, group = security_group("Functions")
    [rule] = group["SecurityGroupEgress"]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 443, 443)
    assert "SecurityGroupIngress" not in group


def test_the_default_security_group_lets_nothing_through() -> None:
    assert of_type("Custom::VpcRestrictDefaultSG")


def test_production_keeps_a_year_of_flows() -> None:
    app = cdk.App(context=CONTEXT)
    images = {"neuron_base": f"n@sha256:{'0' * 64}", "cpu_base": f"c@sha256:{'0' * 64}"}
    production = configuration(environment="production", images=images, storage={})
    stack = NetworkStack(app, "Network", configuration=production, env=cdk.Environment(region="us-west-2"))
    groups = [group for group in stack.node.find_all() if isinstance(group, cdk.aws_logs.CfnLogGroup)]
    assert 365 in [group.retention_in_days for group in groups]
