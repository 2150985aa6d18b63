"""Patches of moto 5.2.5's CloudFormation for deployments by the CDK; the resource types are in `resource_types`.

Its parser imports most of moto, so these patches are applied for deployments with the CDK, not for every run. All
of them replace private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from local.aws.replacements import replace
from local.aws.resource_types import TYPES, Client, Made, ResourceType, recorded, set_bucket


def apply(client: Client) -> None:
    """Apply the patches, so that the CDK can deploy and delete its stacks.

    Args:
        client: Returns a boto3 client of this endpoint for a service's name.
    """
    names_of_change_sets()
    exports_of_change_sets()
    deletion()
    updates()
    named_faults()
    names_of_repositories()
    full_repositories()
    whole_models()
    missing_types(client)
    bucket_settings(client)


def whole_models() -> None:
    """Apply the patches of moto's models of roles, functions and log groups, for every deployment."""
    policies_of_roles()
    settings_of_functions()
    arns_of_log_groups()


def names_of_change_sets() -> None:
    """Find a change set by stack and name: the CDK gives all change sets one name, and deploys several stacks at a
    time.

    moto takes the first of all stacks, and answers 500 if it finds none to delete. The CDK deletes the one of the
    last deployment and asks for it until the answer is ChangeSetNotFound (aws-cdk-cli's pull request 1404); another
    error ends the deployment.
    """
    from moto.cloudformation.exceptions import CloudFormationError
    from moto.cloudformation.responses import CloudFormationResponse
    from moto.core.responses import ActionResult, EmptyResult

    def chosen(self: Any) -> str | None:
        name, stack = self._get_param("ChangeSetName"), self._get_param("StackName")
        found: dict[str, Any] = self.cloudformation_backend.change_sets
        if name in found:
            return str(name)
        own = [arn for arn, change_set in found.items() if stack in (change_set.stack.name, change_set.stack.stack_id)]
        return next((arn for arn in reversed(own) if found[arn].change_set_name == name), None)

    def existing(self: Any) -> str:
        if (arn := chosen(self)) is None:
            message = f"ChangeSet [{self._get_param('ChangeSetName')}] does not exist"
            raise CloudFormationError("ChangeSetNotFoundException", message)
        return arn

    def describe_change_set(self: Any) -> Any:
        return ActionResult(self.cloudformation_backend.describe_change_set(existing(self)))

    def execute_change_set(self: Any) -> Any:
        self.cloudformation_backend.execute_change_set(existing(self))
        return EmptyResult()

    def delete_change_set(self: Any) -> Any:
        self.cloudformation_backend.change_sets.pop(chosen(self), None)
        return EmptyResult()

    for operation in (describe_change_set, execute_change_set, delete_change_set):
        replace(CloudFormationResponse, operation.__name__, operation)


def exports_of_change_sets() -> None:
    """Give a stack that a change set made other stacks' exports, and outputs and exports of its own."""
    from moto.cloudformation.models import CloudFormationBackend

    create = CloudFormationBackend.create_change_set
    execute = CloudFormationBackend.execute_change_set

    def create_change_set(self: Any, *arguments: Any, **named: Any) -> Any:
        change_set_id, stack_id = create(self, *arguments, **named)
        stack = self.stacks[stack_id]
        stack.cross_stack_resources = stack.resource_map.cross_stack_resources = self.exports
        return change_set_id, stack_id

    def execute_change_set(self: Any, change_set_name: str, stack_name: str | None = None) -> None:
        execute(self, change_set_name, stack_name)
        stack = self.stacks[self.describe_change_set(change_set_name).stack_id]
        stack._parse_template()
        stack.output_map = stack._create_output_map()
        for export in stack.exports:
            self.exports[export.name] = export

    replace(CloudFormationBackend, "create_change_set", create_change_set)
    replace(CloudFormationBackend, "execute_change_set", execute_change_set)


def deletion() -> None:
    """Keep a stack that cannot be deleted; moto drops it, with an answer that no client understands.

    moto also makes the resources of a deleted stack again when its outputs are read, since it reads them from the
    template.
    """
    from moto.cloudformation.exceptions import ValidationError
    from moto.cloudformation.models import Stack, cloudformation_backends

    delete = Stack.delete

    def delete_for_good(self: Any) -> None:
        try:
            delete(self)
        except Exception as fault:
            cloudformation_backends[self.account_id][self.region_name].stacks[self.stack_id] = self
            raise ValidationError(message=f"{self.name} cannot be deleted: {fault}") from fault
        self.resource_map._resource_json_map = {}
        self.output_map._output_json_map = {}

    replace(Stack, "delete", delete_for_good)


def updates() -> None:
    """Order an update as CloudFormation does; moto deletes first, retains nothing, and ignores changed references.

    CloudFormation follows references, updates the resources that refer to a replaced one, and deletes at the end.
    """
    from moto.cloudformation import parsing
    from moto.cloudformation.parsing import ResourceMap

    def update(self: Any, template: dict[str, Any], parameters: dict[str, Any] | None = None) -> None:
        # An unchanged parameter of the parameter store has its value, which moto would take for a name.
        stored = {name for name, of in template.get("Parameters", {}).items() if of["Type"].startswith("AWS::SSM::")}
        same = {name for name in stored if (parameters or {}).get(name) == self.resolved_parameters.get(name)}
        parameters = {name: value for name, value in (parameters or {}).items() if name not in same}
        actions = self.build_resource_diff(template, parameters)
        before = dict(self._resource_json_map)
        self._template = template
        self.input_parameters = parameters
        self.load_mapping()
        self.load_parameters()
        self.load_conditions()
        self._resource_json_map = template["Resources"]
        changed = set[str]()
        for name in in_order(template["Resources"]):
            if name in actions["Add"]:
                _ = self[name]  # asking for it makes it
            elif name in actions["Modify"] or changed & references(template["Resources"][name]):
                was = self._parsed_resources.get(name)
                now = parsing.parse_and_update_resource(
                    name, template["Resources"][name], self, self._account_id, self._region_name
                )
                self._parsed_resources[name] = now
                if getattr(was, "_made", was) != getattr(now, "_made", now):
                    changed.add(name)
        for name in actions["Remove"]:
            gone = self._parsed_resources.pop(name, None)
            if gone is not None and not before[name].get("DeletionPolicy", "Delete").startswith("Retain"):
                self._delete_resource(gone, before[name])

    replace(ResourceMap, "update", update)


def in_order(resources: Mapping[str, Any]) -> list[str]:
    """Names of a template's resources, each one after the resources that it refers to."""
    return [
        *TopologicalSorter({name: references(of) & resources.keys() for name, of in resources.items()}).static_order()
    ]


def references(document: Any) -> set[str]:
    """Names of the resources that a resource refers to or depends on."""
    match document:
        case {"Ref": str(name)}:
            return {name}
        case {"Fn::GetAtt": [str(name), *_]}:
            return {name}
        case {"DependsOn": names, **rest}:
            return ({names} if isinstance(names, str) else {*names}) | references(rest)
        case {"Fn::Sub": str(text)}:
            return {found.partition(".")[0] for found in re.findall(r"\$\{([\w.:]+)\}", text)}
        case dict():
            return set[str]().union(*map(references, document.values()))
        case list():
            return set[str]().union(*map(references, document))
        case _:
            return set()


def named_faults() -> None:
    """Keep a KeyError of a resource: moto's resource map takes it for "no such resource", and drops other errors."""
    from moto.cloudformation import parsing
    from moto.cloudformation.exceptions import ValidationError

    create = parsing.parse_and_create_resource

    def parse_and_create_resource(logical_id: str, document: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return create(logical_id, document, *arguments, **named)
        except (ClientError, BotoCoreError, LookupError, TypeError, AttributeError) as fault:
            raise ValidationError(message=f"{logical_id} ({document['Type']}): {fault!r}") from fault

    replace(parsing, "parse_and_create_resource", parse_and_create_resource)


def names_of_repositories() -> None:
    """A repository without a name is given one with capitals, which ECR refuses."""
    from moto.cloudformation import parsing

    generate = parsing.generate_resource_name

    def generate_resource_name(resource_type: str, stack_name: str, logical_id: str) -> str:
        name: str = generate(resource_type, stack_name, logical_id)
        return name.lower() if resource_type == "AWS::ECR::Repository" else name

    replace(parsing, "generate_resource_name", generate_resource_name)


def full_repositories() -> None:
    """A repository that holds images cannot be deleted, whatever its `EmptyOnDelete` says."""
    from moto.ecr.models import Repository, ecr_backends

    create = Repository.create_from_cloudformation_json.__func__
    delete = Repository.delete

    def create_from_cloudformation_json(cls: Any, name: str, document: Any, *rest: Any, **named: Any) -> Any:
        made = create(cls, name, document, *rest, **named)
        made.empty_on_delete = document["Properties"].get("EmptyOnDelete", False)
        return made

    def delete_with_images(self: Any, account_id: str, region_name: str) -> None:
        if getattr(self, "empty_on_delete", False):
            ecr_backends[account_id][region_name].delete_repository(self.name, force=True)
        else:
            delete(self, account_id, region_name)

    replace(Repository, "create_from_cloudformation_json", classmethod(create_from_cloudformation_json))
    replace(Repository, "delete", delete_with_images)


def policies_of_roles() -> None:
    """Keep the policies of a role as texts, as IAM's API does, and attach the managed ones, which moto leaves out. It
    knows the texts of AWS's own ones, but has them in the account by a setting that makes all of them."""
    from moto.iam.models import Role, iam_backends

    create = Role.create_from_cloudformation_json.__func__
    delete = Role.delete_from_cloudformation_json.__func__

    def create_from_cloudformation_json(cls: Any, name: str, document: Any, /, *place: str, **named: Any) -> Any:
        role = create(cls, name, document, *place, **named)
        for policy_name, policy in list(role.policies.items()):
            role.policies[policy_name] = policy if isinstance(policy, str) else json.dumps(policy)
        for arn in document["Properties"].get("ManagedPolicyArns", ()):
            backend = iam_backends[role.account_id][role.partition]
            if arn not in backend.managed_policies:
                backend.managed_policies[arn] = _policy_of_aws(arn, role.account_id)
            backend.attach_role_policy(arn, role.name)
        return role

    def delete_from_cloudformation_json(cls: Any, name: str, document: Any, account: str, region: str, /) -> None:
        role = next((each for each in iam_backends[account]["aws"].roles.values() if each.name == name), None)
        for policy in list(role.managed_policies.values()) if role else ():
            policy.detach_from(role)
        delete(cls, name, document, account, region)

    replace(Role, "create_from_cloudformation_json", classmethod(create_from_cloudformation_json))
    replace(Role, "delete_from_cloudformation_json", classmethod(delete_from_cloudformation_json))


def _policy_of_aws(arn: str, account: str) -> Any:
    from moto.iam.aws_managed_policies import aws_managed_policies_data
    from moto.iam.models import AWSManagedPolicy

    name = arn.rpartition("/")[2]
    if (data := json.loads(aws_managed_policies_data).get(name)) is None:
        raise LookupError(f"There is no managed policy {arn}.")
    return AWSManagedPolicy.from_data(name, account, "us-east-1", data)


def settings_of_functions() -> None:
    """Give a function all its properties; moto leaves out its architecture, key and tracing."""
    from moto.awslambda.models import LambdaFunction, lambda_backends

    create = LambdaFunction.create_from_cloudformation_json.__func__

    def create_from_cloudformation_json(
        cls: Any, name: str, document: Any, account: str, region: str, /, **named: Any
    ) -> Any:
        properties = document["Properties"]
        if isinstance(properties["Code"].get("ZipFile"), str):  # text, in place of an archive
            return create(cls, name, document, account, region, **named)
        known = {key: value for key, value in properties.items() if key != "Tags"}
        specification = {**known, "FunctionName": name, "KMSKeyArn": properties.get("KmsKeyArn")}
        return lambda_backends[account][region].create_function(specification)

    replace(LambdaFunction, "create_from_cloudformation_json", classmethod(create_from_cloudformation_json))


def arns_of_log_groups() -> None:
    """End the attribute `Arn` of a log group with `:*`, which policies for log streams need; moto leaves it out.

    Source: CloudFormation's reference, AWS::Logs::LogGroup, return values.
    """
    from moto.logs.models import LogGroup

    find = LogGroup.get_cfn_attribute

    def get_cfn_attribute(self: Any, name: str, /) -> str:
        return f"{find(self, name)}:*" if name == "Arn" else str(find(self, name))

    replace(LogGroup, "get_cfn_attribute", get_cfn_attribute)


def missing_types(client: Client) -> None:
    """Types that moto has not are skipped, and nothing can refer to them; some that it has are made wrongly.

    State machines go to the backend that does not execute, versions of functions cannot be referred to, and what a
    custom resource's function does at the end of a stack never happens.
    """
    from moto.cloudformation import parsing

    find = parsing.resource_class_from_type
    known = parsing.get_model_map()

    @functools.cache
    def resource_class_from_type(resource_type: str) -> Any:
        if resource_type in TYPES:
            return _model(resource_type, TYPES[resource_type], client)
        if resource_type in known or resource_type in parsing.NULL_MODELS:
            return find(resource_type)
        return _model(resource_type, recorded, client)

    replace(parsing, "resource_class_from_type", resource_class_from_type)


def _model(resource_type: str, implementation: ResourceType, client: Client) -> Any:
    """A class as moto's parser wants it, of a type that calls the services' API."""

    class Model:
        def __init__(self, made: Made, properties: Mapping[str, Any]) -> None:
            self._made, self._properties = made, properties
            self.physical_resource_id = made.physical_id

        @classmethod
        def create_from_cloudformation_json(
            cls, name: str, document: Mapping[str, Any], _account: str, _region: str, **_: Any
        ) -> Model:
            properties = document["Properties"]
            return cls(implementation.create(client, name, properties), properties)

        @classmethod
        def update_from_cloudformation_json(
            cls, *, original_resource: Model, new_resource_name: str, cloudformation_json: Any, **_: Any
        ) -> Model:
            properties = cloudformation_json["Properties"]
            if implementation.update is not None:
                return cls(implementation.update(client, original_resource._made, properties), properties)
            implementation.delete(client, original_resource._made, original_resource._properties)
            return cls(implementation.create(client, new_resource_name, properties), properties)

        def delete(self, _account: str, _region: str) -> None:
            implementation.delete(client, self._made, self._properties)

        def get_cfn_attribute(self, name: str) -> str:
            return (
                self._made.attributes.get(name) or f"arn:aws:twin:::{resource_type}/{self.physical_resource_id}/{name}"
            )

        @staticmethod
        def has_cfn_attr(_name: str) -> bool:
            return True

        @staticmethod
        def is_created() -> bool:
            return True

    return Model


def bucket_settings(client: Client) -> None:
    """Make buckets with versions and events, and refuse to delete those that are not empty; moto does neither."""
    from moto.s3.models import FakeBucket

    create = FakeBucket.create_from_cloudformation_json.__func__

    def create_from_cloudformation_json(cls: Any, name: str, document: Any, *place: str, **named: Any) -> Any:
        bucket = create(cls, name, document, *place, **named)
        set_bucket(client, name, document.get("Properties", {}))
        return bucket

    def delete_from_cloudformation_json(_cls: Any, name: str, *_: Any) -> None:
        client("s3").delete_bucket(Bucket=name)  # refused, it is tried again after the other resources

    replace(FakeBucket, "create_from_cloudformation_json", classmethod(create_from_cloudformation_json))  # type: ignore[arg-type]
    replace(FakeBucket, "delete_from_cloudformation_json", classmethod(delete_from_cloudformation_json))
