"""Types of CloudFormation that moto 5.2.5 lacks or makes wrongly, implemented by calls of the services' own API.

Resources that the twin does not use are only recorded: they have a name and attributes, so that others can refer to
them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

Client = Callable[[str], Any]
"""Returns a boto3 client for a service's name."""

Properties = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Made:
    """A resource of a stack."""

    physical_id: str
    """Value of `Ref`."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Values of `Fn::GetAtt`."""


def _keep(_client: Client, _made: Made, _properties: Properties) -> None:
    """Do nothing: the resource is deleted with its parent."""


@dataclass(frozen=True)
class ResourceType:
    """Functions that create, update and delete resources of one type."""

    create: Callable[[Client, str, Properties], Made]
    delete: Callable[[Client, Made, Properties], None] = _keep
    """Deletes a resource, which may not exist any more: stacks are deleted in any order."""
    update: Callable[[Client, Made, Properties], Made] | None = None
    """None: the resource is deleted and created again."""


def _record(_client: Client, name: str, properties: Properties) -> Made:
    return Made(physical_id=str(properties.get("Name", name)))


recorded = ResourceType(_record)


def _state_machine(client: Client, name: str, properties: Properties) -> Made:
    created = client("stepfunctions").create_state_machine(
        name=properties.get("StateMachineName", name),
        type=properties.get("StateMachineType", "STANDARD"),
        roleArn=properties["RoleArn"],
        definition=_definition(client, properties),
        tracingConfiguration={"enabled": properties.get("TracingConfiguration", {}).get("Enabled", False)},
        **_encryption(properties),
    )
    return _made_state_machine(created["stateMachineArn"], client, properties)


def _made_state_machine(arn: str, client: Client, properties: Properties) -> Made:
    text = json.dumps([_definition(client, properties), properties["RoleArn"]])
    revision = hashlib.sha256(text.encode()).hexdigest()
    attributes = {"Arn": arn, "Name": arn.rsplit(":", 1)[1], "StateMachineRevisionId": revision}
    return Made(physical_id=arn, attributes=attributes)


def _encryption(properties: Properties) -> dict[str, Any]:
    settings = properties.get("EncryptionConfiguration")
    return (
        {"encryptionConfiguration": {name[0].lower() + name[1:]: settings[name] for name in settings}}
        if settings
        else {}
    )


def _update_state_machine(client: Client, made: Made, properties: Properties) -> Made:
    client("stepfunctions").update_state_machine(
        stateMachineArn=made.physical_id, definition=_definition(client, properties), roleArn=properties["RoleArn"]
    )
    return _made_state_machine(made.physical_id, client, properties)


def _definition(client: Client, properties: Properties) -> str:
    """The text of a definition, which may be in several places, with its placeholders filled."""
    text: str = properties.get("DefinitionString", "")
    if place := properties.get("DefinitionS3Location"):
        body = client("s3").get_object(Bucket=place["Bucket"], Key=place["Key"])["Body"]
        text = body.read().decode()
    elif "Definition" in properties:
        text = json.dumps(properties["Definition"])
    for name, value in properties.get("DefinitionSubstitutions", {}).items():
        text = text.replace(f"${{{name}}}", str(value))
    return text


def _delete_state_machine(client: Client, made: Made, _properties: Properties) -> None:
    client("stepfunctions").delete_state_machine(stateMachineArn=made.physical_id)


def _state_machine_version(client: Client, _name: str, properties: Properties) -> Made:
    published = client("stepfunctions").publish_state_machine_version(stateMachineArn=properties["StateMachineArn"])
    return Made(physical_id=published["stateMachineVersionArn"])


def _next_state_machine_version(client: Client, _made: Made, properties: Properties) -> Made:
    """Its one change is a new revision: a version takes the place of another, which stays (UpdateReplacePolicy)."""
    return _state_machine_version(client, "", properties)


def _delete_state_machine_version(client: Client, made: Made, _properties: Properties) -> None:
    client("stepfunctions").delete_state_machine_version(stateMachineVersionArn=made.physical_id)


def _parameter(client: Client, _name: str, properties: Properties) -> Made:
    """A parameter; moto 5.2.5 takes its tags, which CloudFormation has as a map, for a list."""
    client("ssm").put_parameter(
        Name=properties["Name"],
        Value=properties["Value"],
        Type=properties["Type"],
        Description=properties.get("Description", ""),
        Tags=[{"Key": key, "Value": value} for key, value in properties.get("Tags", {}).items()],
    )
    return Made(physical_id=properties["Name"], attributes={"Type": properties["Type"], "Value": properties["Value"]})


def _delete_parameter(client: Client, made: Made, _properties: Properties) -> None:
    ssm = client("ssm")
    with suppress(ssm.exceptions.ParameterNotFound):
        ssm.delete_parameter(Name=made.physical_id)


def _key(client: Client, _name: str, properties: Properties) -> Made:
    created = client("kms").create_key(
        Policy=json.dumps(properties["KeyPolicy"]),
        Description=properties.get("Description", ""),
        Tags=[{"TagKey": tag["Key"], "TagValue": tag["Value"]} for tag in properties.get("Tags", ())],
    )["KeyMetadata"]
    return Made(physical_id=created["KeyId"], attributes={"Arn": created["Arn"], "KeyId": created["KeyId"]})


def _delete_key(client: Client, made: Made, _properties: Properties) -> None:
    client("kms").schedule_key_deletion(KeyId=made.physical_id)


def _queue_policy(client: Client, name: str, properties: Properties) -> Made:
    policy = json.dumps(properties["PolicyDocument"])
    for url in properties["Queues"]:
        client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    return Made(physical_id=name)


def _topic_policy(client: Client, name: str, properties: Properties) -> Made:
    policy = json.dumps(properties["PolicyDocument"])
    for arn in properties["Topics"]:
        client("sns").set_topic_attributes(TopicArn=arn, AttributeName="Policy", AttributeValue=policy)
    return Made(physical_id=name)


def _bucket_policy(client: Client, name: str, properties: Properties) -> Made:
    client("s3").put_bucket_policy(Bucket=properties["Bucket"], Policy=json.dumps(properties["PolicyDocument"]))
    return Made(physical_id=name)


def _version(client: Client, _name: str, properties: Properties) -> Made:
    """Publish a version.

    Raises:
        LookupError: If it exists already: Lambda publishes the same code and settings once only, and CloudFormation
            takes that for a fault ('A version for this Lambda function exists').
    """
    functions, name = client("lambda"), properties["FunctionName"]
    before = {found["Version"] for found in functions.list_versions_by_function(FunctionName=name)["Versions"]}
    published = functions.publish_version(FunctionName=name)
    arn, number = published["FunctionArn"], published["Version"]
    if number in before:
        raise LookupError(f"A version for this Lambda function exists ({number}). Modify the function to create one.")
    return Made(physical_id=arn, attributes={"Version": published["Version"], "FunctionArn": arn})


def _delete_version(client: Client, made: Made, properties: Properties) -> None:
    number = made.attributes["Version"]
    _gone_is_fine(client("lambda").delete_function, FunctionName=properties["FunctionName"], Qualifier=number)


def _alias(client: Client, _name: str, properties: Properties) -> Made:
    created = client("lambda").create_alias(
        FunctionName=properties["FunctionName"],
        Name=properties["Name"],
        FunctionVersion=properties["FunctionVersion"],
    )
    return Made(physical_id=created["AliasArn"], attributes={"AliasArn": created["AliasArn"]})


def _update_alias(client: Client, made: Made, properties: Properties) -> Made:
    client("lambda").update_alias(
        FunctionName=properties["FunctionName"],
        Name=properties["Name"],
        FunctionVersion=properties["FunctionVersion"],
    )
    return made


def _schedule_group(client: Client, name: str, properties: Properties) -> Made:
    name = properties.get("Name", name)
    arn = client("scheduler").create_schedule_group(Name=name)["ScheduleGroupArn"]
    return Made(physical_id=name, attributes={"Arn": arn})


def _delete_schedule_group(client: Client, made: Made, _properties: Properties) -> None:
    _gone_is_fine(client("scheduler").delete_schedule_group, Name=made.physical_id)


def _schedule(client: Client, name: str, properties: Properties) -> Made:
    settings = {"Name": name[-64:], **properties}
    created = client("scheduler").create_schedule(**settings)
    return Made(physical_id=settings["Name"], attributes={"Arn": created["ScheduleArn"]})


def _delete_schedule(client: Client, made: Made, properties: Properties) -> None:
    group = properties.get("GroupName", "default")
    _gone_is_fine(client("scheduler").delete_schedule, Name=made.physical_id, GroupName=group)


def _table(client: Client, name: str, properties: Properties) -> Made:
    """A table; moto 5.2.5 takes neither time to live and backups, nor the key in CloudFormation's form."""
    name, dynamodb = properties.get("TableName", name), client("dynamodb")
    taken = ("KeySchema", "AttributeDefinitions", "DeletionProtectionEnabled")
    settings = {key: properties[key] for key in taken if key in properties}
    if sse := properties.get("SSESpecification"):
        key = {name: sse[name] for name in ("SSEType", "KMSMasterKeyId") if name in sse}
        settings["SSESpecification"] = {"Enabled": sse["SSEEnabled"], **key}
    created = dynamodb.create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **settings)["TableDescription"]
    _set_table(client, name, properties)
    return Made(physical_id=name, attributes={"Arn": created["TableArn"]})


def _update_table(client: Client, made: Made, properties: Properties) -> Made:
    _set_table(client, made.physical_id, properties)
    return made


def _set_table(client: Client, name: str, properties: Properties) -> None:
    if ttl := properties.get("TimeToLiveSpecification"):
        client("dynamodb").update_time_to_live(TableName=name, TimeToLiveSpecification=ttl)
    if backups := properties.get("PointInTimeRecoverySpecification"):
        client("dynamodb").update_continuous_backups(TableName=name, PointInTimeRecoverySpecification=backups)


def _delete_table(client: Client, made: Made, _properties: Properties) -> None:
    _gone_is_fine(client("dynamodb").delete_table, TableName=made.physical_id)


def _subscription(client: Client, _name: str, properties: Properties) -> Made:
    wanted = {key: properties[key] for key in ("TopicArn", "Protocol", "Endpoint")}
    return Made(physical_id=client("sns").subscribe(**wanted, ReturnSubscriptionArn=True)["SubscriptionArn"])


def _delete_subscription(client: Client, made: Made, _properties: Properties) -> None:
    _gone_is_fine(client("sns").unsubscribe, SubscriptionArn=made.physical_id)


def _access_entry(client: Client, _name: str, properties: Properties) -> Made:
    created = client("eks").create_access_entry(
        clusterName=properties["ClusterName"],
        principalArn=properties["PrincipalArn"],
        kubernetesGroups=properties.get("KubernetesGroups", []),
    )["accessEntry"]
    return Made(
        physical_id=f"{properties['PrincipalArn']}|{properties['ClusterName']}",
        attributes={"AccessEntryArn": created["accessEntryArn"]},
    )


def _delete_access_entry(client: Client, _made: Made, properties: Properties) -> None:
    names = {"clusterName": properties["ClusterName"], "principalArn": properties["PrincipalArn"]}
    _gone_is_fine(client("eks").delete_access_entry, **names)


def _alarm(client: Client, name: str, properties: Properties) -> Made:
    settings = {"AlarmName": name, **properties}
    client("cloudwatch").put_metric_alarm(**settings)
    return _made_alarm(client, settings["AlarmName"])


def _composite_alarm(client: Client, name: str, properties: Properties) -> Made:
    """Record a composite alarm. moto does not know them, and would not evaluate one."""
    return _made_alarm(client, properties.get("AlarmName", name))


def _made_alarm(client: Client, name: str) -> Made:
    region = client("cloudwatch").meta.region_name
    account = client("sts").get_caller_identity()["Account"]
    return Made(physical_id=name, attributes={"Arn": f"arn:aws:cloudwatch:{region}:{account}:alarm:{name}"})


def _delete_alarm(client: Client, made: Made, _properties: Properties) -> None:
    _gone_is_fine(client("cloudwatch").delete_alarms, AlarmNames=[made.physical_id])


def set_bucket(client: Client, name: str, properties: Properties) -> None:
    """Set versions and events of a bucket."""
    s3 = client("s3")
    if versioning := properties.get("VersioningConfiguration"):
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=versioning)
    if "EventBridgeConfiguration" in properties.get("NotificationConfiguration", {}):
        s3.put_bucket_notification_configuration(
            Bucket=name, NotificationConfiguration={"EventBridgeConfiguration": {}}
        )


def _emptied_bucket(client: Client, _made: Made, properties: Properties) -> None:
    """Empty the bucket of a deleted stack with `auto_delete_objects`, as the CDK's own function does."""
    s3, bucket = client("s3"), properties["BucketName"]
    try:
        pages = list(s3.get_paginator("list_object_versions").paginate(Bucket=bucket))
    except s3.exceptions.NoSuchBucket:
        return
    for page in pages:
        for found in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
            s3.delete_object(Bucket=bucket, Key=found["Key"], VersionId=found["VersionId"])


def _gone_is_fine(call: Callable[..., Any], **arguments: Any) -> None:
    try:
        call(**arguments)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] not in (400, 404):
            raise


TYPES: Mapping[str, ResourceType] = {
    "AWS::StepFunctions::StateMachine": ResourceType(_state_machine, _delete_state_machine, _update_state_machine),
    "AWS::StepFunctions::StateMachineVersion": ResourceType(
        _state_machine_version, _delete_state_machine_version, _next_state_machine_version
    ),
    "AWS::SSM::Parameter": ResourceType(_parameter, _delete_parameter),
    "AWS::KMS::Key": ResourceType(_key, _delete_key),
    "AWS::S3::BucketPolicy": ResourceType(_bucket_policy),
    "AWS::SNS::TopicPolicy": ResourceType(_topic_policy),
    "AWS::SQS::QueuePolicy": ResourceType(_queue_policy),
    "AWS::Lambda::Version": ResourceType(_version, _delete_version),
    "AWS::Lambda::Alias": ResourceType(_alias, update=_update_alias),
    "AWS::Scheduler::ScheduleGroup": ResourceType(_schedule_group, _delete_schedule_group),
    "AWS::Scheduler::Schedule": ResourceType(_schedule, _delete_schedule),
    "AWS::DynamoDB::GlobalTable": ResourceType(_table, _delete_table),
    "AWS::DynamoDB::Table": ResourceType(_table, _delete_table, _update_table),
    "AWS::SNS::Subscription": ResourceType(_subscription, _delete_subscription),
    "AWS::EKS::AccessEntry": ResourceType(_access_entry, _delete_access_entry),
    "AWS::CloudWatch::Alarm": ResourceType(_alarm, _delete_alarm),
    "AWS::CloudWatch::CompositeAlarm": ResourceType(_composite_alarm),
    "Custom::S3AutoDeleteObjects": ResourceType(_record, _emptied_bucket),
}
