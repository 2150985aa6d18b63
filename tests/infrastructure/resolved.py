"""Templates as CloudFormation would see them when it creates the resources: every reference has a value of its form.

The values are made up, but have the form that the service documents, so that whatever reads them (schemas, formats of
ARNs, limits of lengths) meets what the service will meet.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from stacks.checks.templates import Resource, Templates

REGION, ACCOUNT = "us-west-2", "111122223333"
STACK_ID = f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/trainflow/51af3dc0-da77-11e4-872e-1234567db123"
KEY = "1234abcd-12ab-34cd-56ef-1234567890ab"

PSEUDO_PARAMETERS = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::StackId": STACK_ID,
    "AWS::StackName": "trainflow",
    "AWS::URLSuffix": "amazonaws.com",
}


def _arn(service: str, resource: str, *, region: str = REGION, account: str = ACCOUNT) -> str:
    return f"arn:aws:{service}:{region}:{account}:{resource}"


VALUES: Mapping[tuple[str, str], str] = {
    ("AWS::Budgets::Budget", "Ref"): "{name}",
    ("AWS::CloudWatch::Alarm", "Arn"): _arn("cloudwatch", "alarm:{name}"),
    ("AWS::CloudWatch::CompositeAlarm", "Arn"): _arn("cloudwatch", "alarm:{name}"),
    ("AWS::DynamoDB::Table", "Arn"): _arn("dynamodb", "table/{name}"),
    ("AWS::DynamoDB::Table", "Ref"): "{name}",
    ("AWS::EC2::EIP", "AllocationId"): "eipalloc-0123456789abcdef0",
    ("AWS::EC2::InternetGateway", "Ref"): "igw-0123456789abcdef0",
    ("AWS::EC2::LaunchTemplate", "LatestVersionNumber"): "1",
    ("AWS::EC2::LaunchTemplate", "Ref"): "lt-0123456789abcdef0",
    ("AWS::EC2::NatGateway", "Ref"): "nat-0123456789abcdef0",
    ("AWS::EC2::PlacementGroup", "GroupName"): "{name}",
    ("AWS::EC2::RouteTable", "Ref"): "rtb-{hex17}",
    ("AWS::EC2::SecurityGroup", "GroupId"): "sg-0123456789abcdef0",
    ("AWS::EC2::Subnet", "Ref"): "subnet-{hex17}",
    ("AWS::EC2::VPC", "DefaultSecurityGroup"): "sg-0123456789abcdef0",
    ("AWS::EC2::VPC", "Ref"): "vpc-0123456789abcdef0",
    ("AWS::ECR::Repository", "Arn"): _arn("ecr", "repository/{lower}"),
    ("AWS::ECR::Repository", "Ref"): "{lower}",
    ("AWS::EKS::Cluster", "Arn"): _arn("eks", "cluster/{name}"),
    ("AWS::EKS::Cluster", "ClusterSecurityGroupId"): "sg-0123456789abcdef0",
    ("AWS::EKS::Cluster", "Ref"): "{name}",
    ("AWS::EKS::Nodegroup", "NodegroupName"): "{name}",
    ("AWS::Events::Rule", "Arn"): _arn("events", "rule/{name}"),
    ("AWS::Events::Rule", "Ref"): "{name}",
    ("AWS::FSx::FileSystem", "DNSName"): f"fs-0123456789abcdef0.fsx.{REGION}.amazonaws.com",
    ("AWS::FSx::FileSystem", "LustreMountName"): "fsx4abcd",
    ("AWS::FSx::FileSystem", "Ref"): "fs-0123456789abcdef0",
    ("AWS::IAM::InstanceProfile", "Arn"): _arn("iam", "instance-profile/{name}", region=""),
    ("AWS::IAM::InstanceProfile", "Ref"): "{name}",
    ("AWS::IAM::ManagedPolicy", "Ref"): _arn("iam", "policy/{name}", region=""),
    ("AWS::IAM::Role", "Arn"): _arn("iam", "role/{name}", region=""),
    ("AWS::IAM::Role", "Ref"): "{name}",
    ("AWS::KMS::Key", "Arn"): _arn("kms", f"key/{KEY}"),
    ("AWS::KMS::Key", "Ref"): KEY,
    ("AWS::Lambda::Alias", "Ref"): _arn("lambda", "function:{name}:live"),
    ("AWS::Lambda::Function", "Arn"): _arn("lambda", "function:{name}"),
    ("AWS::Lambda::Function", "Ref"): "{name}",
    ("AWS::Lambda::LayerVersion", "Ref"): _arn("lambda", "layer:{name}:1"),
    ("AWS::Lambda::Version", "Ref"): _arn("lambda", "function:{name}:1"),
    ("AWS::Lambda::Version", "Version"): "1",
    ("AWS::Logs::LogGroup", "Arn"): _arn("logs", "log-group:{name}:*"),
    ("AWS::Logs::LogGroup", "Ref"): "{name}",
    ("AWS::PCS::Cluster", "Id"): "pcs_0123456789",
    ("AWS::PCS::Cluster", "Arn"): _arn("pcs", "cluster/pcs_0123456789"),
    ("AWS::PCS::ComputeNodeGroup", "Id"): "pcs_0123456789",
    ("AWS::S3::Bucket", "Arn"): "arn:aws:s3:::{lower}",
    ("AWS::S3::Bucket", "Ref"): "{lower}",
    ("AWS::SNS::Topic", "Ref"): _arn("sns", "{name}"),
    ("AWS::SQS::Queue", "Arn"): _arn("sqs", "{name}"),
    ("AWS::SQS::Queue", "QueueName"): "{name}",
    ("AWS::SQS::Queue", "Ref"): f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{{name}}",
    ("AWS::Scheduler::ScheduleGroup", "Ref"): "{name}",
    ("AWS::StepFunctions::StateMachine", "Ref"): _arn("states", "stateMachine:{name}"),
    ("AWS::StepFunctions::StateMachine", "Arn"): _arn("states", "stateMachine:{name}"),
    ("AWS::StepFunctions::StateMachine", "StateMachineRevisionId"): KEY,
    ("AWS::StepFunctions::StateMachineVersion", "Ref"): _arn("states", "stateMachine:{name}:1"),
    ("Custom::AWS", "cluster.slurmConfiguration.jwtAuth.jwtKey.secretArn"): _arn(
        "secretsmanager", "secret:pcs!slurm-jwt-AbCdEf"
    ),
    ("Custom::AWS", "cluster.endpoints.0.privateIpAddress"): "10.0.1.2",
    ("Custom::AWS", "cluster.endpoints.0.port"): "6820",
    ("Custom::AWS", "nodegroup.resources.autoScalingGroups.0.name"): "eks-trainflow-0123abcd-4567",
}
"""What CloudFormation returns of a resource: the form of the identifier that its service documents (CloudFormation
template reference, "Return values" of each type, November 2026)."""

NAMES = (
    *("Name", "AlarmName", "BucketName", "ClusterName", "FunctionName", "GroupName", "InstanceProfileName"),
    *("LogGroupName", "NodegroupName", "QueueName", "RepositoryName", "RoleName", "RuleName", "StateMachineName"),
    *("TableName", "TopicName", "LayerName", "ManagedPolicyName"),
)
"""Properties that name a resource; without one, CloudFormation makes the name of the stack's and the logical id."""


REFERENCES = {"Ref", "Fn::GetAtt", "Fn::ImportValue", "Fn::GetStackOutput"}


class Resolver:
    """Values of the intrinsic functions of all templates of an app."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates

    def properties(self, resource: Resource) -> dict[str, Any]:
        """The properties of a resource without intrinsic functions."""
        found: dict[str, Any] = self.value(resource.stack, dict(resource.properties))
        return found

    def value(self, stack: str, value: Any) -> Any:
        """A value without intrinsic functions.

        Raises:
            KeyError: If a reference's form is in no table above.
        """
        match value:
            case {"Ref": str(name), **rest} if not rest and name in PSEUDO_PARAMETERS:
                return PSEUDO_PARAMETERS[name]
            case {"Ref": "AWS::NoValue", **rest} if not rest:
                return None
            case {**one} if len(one) == 1 and set(one) <= REFERENCES:
                return self._reference(stack, value)
            case {"Fn::Join": [str(separator), parts], **rest} if not rest:
                return separator.join(str(part) for part in self.value(stack, parts))
            case {"Fn::Base64": text, **rest} if not rest:
                return base64.b64encode(str(self.value(stack, text)).encode()).decode()
            case {"Fn::Sub": str(text), **rest} if not rest:
                return re.sub(r"\$\{([^}!]+)\}", lambda found: str(self.value(stack, {"Ref": found[1]})), text)
            case {"Fn::Select": [index, options], **rest} if not rest:
                return self.value(stack, options)[int(index)]
            case {"Fn::Split": [str(separator), text], **rest} if not rest:
                return str(self.value(stack, text)).split(separator)
            case Mapping():
                return {key: self.value(stack, inner) for key, inner in value.items()}
            case list():
                return [self.value(stack, inner) for inner in value]
        return value

    def _reference(self, stack: str, value: Any) -> str:
        found = self._templates.attribute(stack, value)
        resource = self._templates.find(found[:2]) if found else None
        if found is None or resource is None:
            raise KeyError(f"{stack}: {value} leads to no resource")
        form = VALUES.get((resource.type, found[2]))
        if form is None:
            raise KeyError(f"the form of {resource.type}, {found[2]}, is in no table: read it and write it down")
        name = self._name(resource)
        digits = re.sub(r"[^0-9a-f]", "0", resource.logical_id.lower()).ljust(17, "0")[-17:]
        return form.format(name=name, lower=name.lower()[:63].rstrip("-"), hex17=digits)

    def _name(self, resource: Resource) -> str:
        if resource.type in ("AWS::Lambda::Version", "AWS::Lambda::Alias"):
            return str(self.value(resource.stack, resource.properties["FunctionName"])).split(":function:")[-1]
        if resource.type == "AWS::StepFunctions::StateMachineVersion":
            return str(self.value(resource.stack, resource.properties["StateMachineArn"])).rpartition(":")[2]
        given = next((resource.properties[each] for each in NAMES if each in resource.properties), None)
        if given is not None:
            return str(self.value(resource.stack, given))
        return f"{resource.stack}-{resource.logical_id}"[:50] + "-1A2B3C4D5E6F"
