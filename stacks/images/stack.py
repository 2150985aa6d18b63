"""Stores and builds the images: ECR, and a CodeBuild project for each kind of image.

The machine that deploys needs no Docker: it uploads the packages that run in pods (`context`), and CodeBuild makes the
image. A build names its image by digest in the exported variable IMAGE, which is what `workload.image` of a run spec
wants.

An image's tag is made of its content, `<kind>-<16 hex digits>`, and tags cannot be moved: what was built once is never
built again, and the functions can be given the name of the image `tools` before it has been built (decision 26).
"""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from stacks.images import context
from stacks.shared.acknowledgements import Reason, acknowledge, in_both_baselines
from stacks.shared.log_keys import let_logs_use
from trainflow.configuration.deployment import Configuration
from trainflow.deployment.image_names import EcrImage, in_private_ecr

TOOLS = "tools"
"""The kind of image for staging and publishing."""

BUILD_MINUTES = 60
"""A Neuron base is some 10 GB to pull, unpack and push."""

KEPT_IMAGES = 20
KEPT_IN_PRODUCTION = 100
"""Images of each kind that are kept. Specs name images by digest, so an image must outlive the specs that are still
run. The functions name the newest one of the kind `tools`, or that of a run which began before the last deployment."""

UNTAGGED_DAYS = 7

PUSH = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:DescribeImages",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
)
SOURCE_BUCKET = ("s3:GetBucketAcl", "s3:GetBucketLocation", "s3:ListBucket")
"""CodeBuild calls these on the bucket of a source before it reads the object (CodeBuild user guide, "Allow CodeBuild to
interact with other AWS services"; CDK grants the same by patterns)."""

PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")

FIND_DIGEST = (
    'aws ecr describe-images --repository-name "${REPOSITORY#*/}" --image-ids "imageTag=$TAG"'
    ' --query "imageDetails[0].imageDigest" --output text'
)
"""Prints the digest; prints only an error, and fails, if the tag is not in the repository."""

LOG_IN = "aws ecr get-login-password --region {region} | docker login --username AWS --password-stdin {registry}"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of image."""

    name: str
    base: str
    dockerfile: str

    @property
    def tag(self) -> str:
        """Kind and content of an image: the inputs of its build, the base and the recipe."""
        digest = hashlib.sha256(f"{self.base}\0{self.dockerfile}\0{context.digest()}".encode()).hexdigest()
        return f"{self.name}-{digest[:16]}"

    @property
    def private(self) -> EcrImage | None:
        """The parts of the base's name, if it is in a private ECR registry and needs a login."""
        return in_private_ecr(self.base)


class ImagesStack(cdk.Stack):
    """A repository, and builds that push to it."""

    def __init__(self, scope: Construct, construct_id: str, *, configuration: Configuration, **kwargs: Any) -> None:
        super().__init__(scope, construct_id, **kwargs)
        self._configuration = configuration
        self._kinds = kinds_of_images(configuration)
        keep = configuration.production
        self._removal_policy = cdk.RemovalPolicy.RETAIN if keep else cdk.RemovalPolicy.DESTROY
        self._key = kms.Key(
            self,
            "Key",
            description="Trainflow: images and their builds",
            enable_key_rotation=True,
            removal_policy=self._removal_policy,
        )
        let_logs_use(self._key, (f"{configuration.name}-*",))
        self.repository = self._make_repository()
        self._source = self._make_source()
        self._log_group = logs.LogGroup(
            self,
            "BuildLog",
            encryption_key=self._key,
            retention=logs.RetentionDays.ONE_YEAR if keep else logs.RetentionDays.ONE_MONTH,
            removal_policy=self._removal_policy,
        )
        self._role = self._make_role()
        self.builds = {kind.name: self._make_build(kind) for kind in self._kinds}
        cdk.CfnOutput(
            self, "ImageRepository", value=self.repository.repository_uri, description="Images of the trainer"
        )
        self._acknowledge()

    @property
    def tools_image(self) -> str:
        """The image for staging and publishing: the configured one, or the one that `make images` builds."""
        if self._configuration.images.tools is not None:
            return self._configuration.images.tools
        (tools,) = (kind for kind in self._kinds if kind.name == TOOLS)
        return f"{self.repository.repository_uri}:{tools.tag}"

    @property
    def tools_repository_arn(self) -> str | None:
        """ARN of the ECR repository of that image; None where it is in another registry."""
        if self._configuration.images.tools is None:
            return self.repository.repository_arn
        private = in_private_ecr(self._configuration.images.tools)
        return self._repository_arn(private) if private else None

    def _make_repository(self) -> ecr.Repository:
        kept = KEPT_IN_PRODUCTION if self._configuration.production else KEPT_IMAGES
        return ecr.Repository(
            self,
            "Repository",
            image_scan_on_push=True,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            encryption=ecr.RepositoryEncryption.KMS,
            encryption_key=self._key,
            lifecycle_rules=[
                ecr.LifecycleRule(tag_status=ecr.TagStatus.UNTAGGED, max_image_age=cdk.Duration.days(UNTAGGED_DAYS)),
                *(ecr.LifecycleRule(tag_prefix_list=[f"{kind.name}-"], max_image_count=kept) for kind in self._kinds),
            ],
            removal_policy=self._removal_policy,
            empty_on_delete=not self._configuration.production,
        )

    def _make_source(self) -> assets.Asset:
        """Input of the builds; the CDK copies it into its output folder at once."""
        with tempfile.TemporaryDirectory(prefix="trainflow-images-") as folder:
            context.stage(Path(folder))
            return assets.Asset(self, "Trainer", path=folder)

    def _make_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "BuildRole",
            description="Trainflow: builds of the trainer's images",
            assumed_by=iam.ServicePrincipal("codebuild.amazonaws.com"),
        )
        self._policy = iam.Policy(self, "BuildPolicy", roles=[role], statements=self._statements())
        return role

    def _statements(self) -> list[iam.PolicyStatement]:
        """Permissions of a build, action by action; CDK's own grants for a project are wider."""
        source = self._source.bucket.arn_for_objects(self._source.s3_object_key)
        allowed: list[tuple[tuple[str, ...], list[str]]] = [
            (("logs:CreateLogStream", "logs:PutLogEvents"), [self._log_group.log_group_arn]),
            (("s3:GetObject", "s3:GetObjectVersion"), [source]),
            (SOURCE_BUCKET, [self._source.bucket.bucket_arn]),
            (("kms:Decrypt", "kms:GenerateDataKey"), [self._key.key_arn]),
            (PUSH, [self.repository.repository_arn]),
            (("ecr:GetAuthorizationToken",), ["*"]),
        ]
        bases = [self._repository_arn(kind.private) for kind in self._kinds if kind.private]
        if bases:
            allowed.append((PULL, bases))
        return [iam.PolicyStatement(actions=list(actions), resources=resources) for actions, resources in allowed]

    def _repository_arn(self, image: EcrImage) -> str:
        return f"arn:{self.partition}:ecr:{image.region}:{image.account}:repository/{image.repository}"

    def _make_build(self, kind: Kind) -> codebuild.Project:
        project = codebuild.Project(
            self,
            f"Build-{kind.name}",
            project_name=f"{self._configuration.name}-image-{kind.name}",
            description=f"The trainer on {kind.base}",
            source=codebuild.Source.s3(bucket=self._source.bucket, path=self._source.s3_object_key),
            build_spec=codebuild.BuildSpec.from_object(build_spec(kind)),
            environment=codebuild.BuildEnvironment(
                build_image=codebuild.LinuxBuildImage.STANDARD_7_0,
                compute_type=codebuild.ComputeType.MEDIUM,
                privileged=True,  # for the Docker daemon: CodeBuild starts one in such builds only
            ),
            environment_variables={
                "REPOSITORY": codebuild.BuildEnvironmentVariable(value=self.repository.repository_uri),
                "TAG": codebuild.BuildEnvironmentVariable(value=kind.tag),
            },
            encryption_key=self._key,
            role=self._role.without_policy_updates(),
            logging=codebuild.LoggingOptions(cloud_watch=codebuild.CloudWatchLoggingOptions(log_group=self._log_group)),
            timeout=cdk.Duration.minutes(BUILD_MINUTES),
            concurrent_build_limit=1,
            grant_report_group_permissions=False,
        )
        acknowledge(project, "HIPAA.Security-CodeBuildProjectSourceRepoUrl", reason=Reason.SOURCE_IS_AN_OBJECT)
        project.node.add_dependency(self._policy)
        cdk.CfnOutput(
            self, f"Tag{kind.name.capitalize()}", value=kind.tag, description=f"Names what the {kind.name} image holds"
        )
        cdk.CfnOutput(
            self,
            f"Build{kind.name.capitalize()}",
            value=project.project_name,
            description=f"Builds the {kind.name} image: aws codebuild start-build --project-name <value>; the build "
            "exports IMAGE (aws codebuild batch-get-builds: exportedEnvironmentVariables)",
        )
        return project

    def _acknowledge(self) -> None:
        acknowledge(self._policy, "AwsSolutions-IAM5[Resource::*]", reason=Reason.NO_RESOURCE_LEVEL)
        acknowledge(self._policy, *in_both_baselines("IAMNoInlinePolicy"), reason=Reason.POLICY_OF_ONE_ROLE)


def kinds_of_images(configuration: Configuration) -> tuple[Kind, ...]:
    """The images that this deployment's instance types need."""
    images = configuration.images
    kinds = [
        Kind(name="neuron", base=images.neuron_base, dockerfile="neuron.Dockerfile"),
        Kind(name="cpu", base=images.cpu_base, dockerfile="cpu.Dockerfile"),
    ]
    if images.torchneuron_base is not None:
        # Both Neuron bases contain their torch, which must not change, so they share a recipe.
        kinds.append(Kind(name="torchneuron", base=images.torchneuron_base, dockerfile="neuron.Dockerfile"))
    if images.tools is None:
        kinds.append(Kind(name=TOOLS, base=images.cpu_base, dockerfile="tools.Dockerfile"))
    return tuple(kinds)


def build_spec(kind: Kind) -> dict[str, Any]:
    """The build specification, with REPOSITORY and TAG in the environment. An image that exists is not built again."""
    log_in = [LOG_IN.format(region="$AWS_REGION", registry="${REPOSITORY%%/*}")]
    if kind.private:
        log_in.append(LOG_IN.format(region=kind.private.region, registry=kind.private.registry))
    return {
        "version": "0.2",
        "env": {"shell": "bash", "exported-variables": ["IMAGE"]},
        "phases": {
            "pre_build": {"commands": log_in},
            "build": {
                "commands": [
                    f"find_digest() {{ {FIND_DIGEST}; }}",
                    "DIGEST=$(find_digest || true)",
                    'if [ -z "$DIGEST" ]; then'
                    f" docker build --pull --build-arg BASE={shlex.quote(kind.base)}"
                    f" --file trainer/images/{kind.dockerfile}"
                    ' --tag "$REPOSITORY:$TAG" . && docker push "$REPOSITORY:$TAG" && DIGEST=$(find_digest); fi',
                    'export IMAGE="$REPOSITORY@$DIGEST"',
                    'echo "$IMAGE"',
                ]
            },
        },
    }
