"""Deploys what the stacks synthesize: `template.json`, which `python -m stacks.tools.twin_template` generates.

The resources are those of the templates with all their properties; the twin chooses the names that the stacks leave to
CloudFormation. They are made by the same code as in a deployment by the CDK (`resource_types`, and moto's models),
without CloudFormation's parser, which takes a second to import
(docs/decisions/0086-twin-deploys-synthesized-templates.md).
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import pkgutil
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.cloud_formation import cfn_to_api_encryption
from moto.s3.models import s3_backends

from local.aws.resource_types import TYPES, Client, Made, set_bucket

FILE = Path(__file__).with_name("template.json")

MODELS = {
    "AWS::ECR::Repository": "moto.ecr.models:Repository",
    "AWS::Events::Rule": "moto.events.models:Rule",
    "AWS::IAM::ManagedPolicy": "moto.iam.models:ManagedPolicy",
    "AWS::IAM::Policy": "moto.iam.models:InlinePolicy",
    "AWS::IAM::Role": "moto.iam.models:Role",
    "AWS::Lambda::EventSourceMapping": "moto.awslambda.models:EventSourceMapping",
    "AWS::Lambda::Function": "moto.awslambda.models:LambdaFunction",
    "AWS::Lambda::Permission": "moto.awslambda.models:Permission",
    "AWS::Logs::LogGroup": "moto.logs.models:LogGroup",
    "AWS::SNS::Topic": "moto.sns.models:Topic",
    "AWS::SQS::Queue": "moto.sqs.models:Queue",
}
"""moto's classes of the types that `resource_types` lacks."""

NAMES = {
    "cluster.WorkloadPodRole": "trainflow-Pods",
    "images.Repository": "trainflow",
    "orchestration.Caches": "trainflow-caches",
    "orchestration.Runs": "trainflow-runs",
    "orchestration.StateMachinesTrainingRole": "trainflow-Training",
    "orchestration.StateMachinesWatchJobRole": "trainflow-WatchJob",
    "orchestration.Topic": "trainflow-runs",
    "storage.Artifacts": "trainflow-artifacts",
    "storage.Data": "trainflow-data",
    "triggers.AbortedRuns": "trainflow-clean-up",
    "triggers.DeadLettersRunRequests": "trainflow-run-requests-dead-letters",
    "triggers.RunRequests": "trainflow-run-requests",
    "triggers.SchedulesSurvey": "trainflow-SurveySchedule",
    "triggers.Uploads": "trainflow-upload",
}
"""Names of resources that people and tests look up."""

Values = Mapping[str, Sequence[str]]
"""Texts for a placeholder: one, or one for each of several resources."""

_PLACEHOLDER = re.compile(r"\$\{([^}]+)\}")


@cache
def resources() -> dict[str, dict[str, Any]]:
    """Type and properties of each resource, by `stack.LogicalId`."""
    content: dict[str, dict[str, Any]] = json.loads(FILE.read_text())
    return content


class Template:
    """Makes the resources of the file, each one after those that it refers to."""

    def __init__(self, client: Client, values: Values, *, region: str) -> None:
        """
        Args:
            client: Returns a boto3 client for a service's name.
            values: Texts for the placeholders that refer to none of the resources.
            region: Region of the resources.
        """
        self._client, self._values, self._region = client, values, region
        self._made: dict[str, Made] = {}

    def make(self, name: str) -> Made:
        """The resource with a name of the form `stack.LogicalId`, which is made unless it exists."""
        if name not in self._made:
            resource = resources()[name]
            self._made[name] = self._create(name, resource["Type"], self.filled(resource["Properties"]))
        return self._made[name]

    def make_all(self) -> None:
        """Make every resource."""
        for name in resources():
            self.make(name)

    def filled(self, document: Any) -> Any:
        """A part of the template with the twin's resources in place of the placeholders.

        A text that stands for several resources, or none, becomes a list. A statement of a policy that is left without
        resources is left out.
        """
        match document:
            case str():
                texts = list(self._texts(document))
                return texts[0] if len(texts) == 1 else texts
            case list():
                return [filled for each in document for filled in self._elements(each)]
            case dict():
                return {name: self.filled(value) for name, value in document.items()}
            case _:
                return document

    def _elements(self, element: Any) -> Iterator[Any]:
        filled = self.filled(element)
        if isinstance(element, str) and isinstance(filled, list):
            yield from filled
        elif not (isinstance(filled, dict) and filled.get("Resource") == []):
            yield filled

    def _texts(self, text: str) -> Iterator[str]:
        names = list(dict.fromkeys(_PLACEHOLDER.findall(text)))
        for chosen in itertools.product(*map(self._referred, names)):
            by_name = dict(zip(names, chosen, strict=True))
            yield _PLACEHOLDER.sub(lambda found, by_name=by_name: by_name[found[1]], text)  # type: ignore[misc]

    def _referred(self, name: str) -> Sequence[str]:
        if name in self._values:
            return self._values[name]
        stack, _, rest = name.partition(".")
        logical_id, _, attribute = rest.partition(".")
        if f"{stack}.{logical_id}" not in resources():
            return [f"arn:aws:twin:::{name}"]
        made = self.make(f"{stack}.{logical_id}")
        return [made.attributes[attribute] if attribute else made.physical_id]

    def _create(self, name: str, resource_type: str, properties: Any) -> Made:
        logical_id = name.partition(".")[2]
        chosen = NAMES.get(name, f"trainflow-{logical_id.removesuffix('Role')}")
        if resource_type == "AWS::S3::Bucket":
            return _bucket(self._client, chosen, properties)
        if resource_type == "AWS::Lambda::Function":
            properties["Code"] = {"ZipFile": base64.b64encode(empty_archive())}
        if resource_type in TYPES:
            return TYPES[resource_type].create(self._client, chosen, properties)
        model = pkgutil.resolve_name(MODELS[resource_type])
        own_name = properties.get(model.cloudformation_name_type(), chosen)
        resource = model.create_from_cloudformation_json(
            own_name, {"Properties": properties}, DEFAULT_ACCOUNT_ID, self._region
        )
        physical_id = getattr(resource, "physical_resource_id", chosen)  # a permission has none
        return Made(physical_id=physical_id, attributes=_Attributes(resource))


def _bucket(client: Client, name: str, properties: Mapping[str, Any]) -> Made:
    """Make a bucket, unless a folder was made one before, with its files as objects."""
    s3 = client("s3")
    if all(found["Name"] != name for found in s3.list_buckets()["Buckets"]):
        s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": s3.meta.region_name})
    encryption = cfn_to_api_encryption(properties["BucketEncryption"])
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_bucket_encryption(name, encryption)
    set_bucket(client, name, properties)
    return Made(physical_id=name, attributes={"Arn": f"arn:aws:s3:::{name}"})


def empty_archive() -> bytes:
    """A code archive for functions whose code is not in one: workers import the repository's own modules."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("README", "The twin runs handlers from the repository.")
    return buffer.getvalue()


class _Attributes(Mapping[str, str]):
    """Attributes of a resource that moto has made, read when something refers to them."""

    def __init__(self, resource: Any) -> None:
        self._resource = resource

    def __getitem__(self, name: str) -> str:
        return str(self._resource.get_cfn_attribute(name))

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
