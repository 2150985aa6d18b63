"""What `cdk deploy` makes in an account, made in the twin: functions, state machines, buckets, table, topic, triggers.

From the same texts and the same list of functions; only the calls differ. The cluster is made apart from the rest: with
it alone, the twin is an account that the stacks themselves can be deployed to.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.eks.models import eks_backends
from moto.kms.models import kms_backends
from moto.s3.models import s3_backends
from moto.sns.models import sns_backends

from local.aws import quotas, triggers
from local.aws.access import granted
from local.aws.server import REGION, AwsServer
from local.granted_buckets import GrantedBuckets
from local.node_shapes import SMALL_JOBS_NODEGROUP
from trainflow.models import compile_cache
from trainflow.models.deployment_address import DeploymentAddress, parameter_name
from trainflow.models.functions import EVENT_HANDLERS, LINK, LIVE, SLURM, TASKS, Function
from trainflow.models.instances import INSTANCE_TYPES, SYSTEM_INSTANCE, nodegroup_name
from trainflow.models.run_table import KEY
from trainflow.state_machines import definition_json

CLUSTER_NAME = "trainflow"
DEPLOYMENT_NAME = "twin"
"""Dimension of the metrics; another word than the cluster's name, so that neither passes for the other."""
NAMESPACE = "training"
DATA_BUCKET = "trainflow-data"
ARTIFACT_BUCKET = "trainflow-artifacts"
BUCKETS = (DATA_BUCKET, ARTIFACT_BUCKET)
RUN_TABLE = "trainflow-runs"
CACHE_TABLE = "trainflow-caches"
IMAGE_REPOSITORY = "trainflow"
TOOLS_TAG = "tools-twin"
IDLE_MINUTES = 20
"""The default of `capacity.idle_minutes`."""

MAX_NODES = 16
"""Nodes of each type that the twin will start on one machine."""

SMALL_JOB_NODES = 1
"""The default of `cluster.small_job_nodes`. The twin has no system nodes: none of the software that they are for."""

ZONE_ID = "usw2-az4"
"""The value of `network.zone_id` in the example configuration: the zone offers every trn1 type."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Names of what was made."""

    address: DeploymentAddress
    """What clients have to know, as the parameter of Systems Manager says it."""
    topic_arn: str
    functions: Mapping[str, str]
    """Function ARN by the function's name."""
    tools_image: str
    """Image of the runs' small jobs and helpers."""


def make_cluster(aws: AwsServer) -> None:
    """Make the EKS cluster, its node groups, empty ones to train on and one for small pods, and its pods' role."""
    quotas.serve(max_nodes=MAX_NODES)
    eks, role = aws.client("eks"), _role(aws, "cluster", template=None)
    in_zone = [{"Name": "availability-zone-id", "Values": [ZONE_ID]}]
    subnets = [found["SubnetId"] for found in aws.client("ec2").describe_subnets(Filters=in_zone)["Subnets"]]
    eks.create_cluster(name=CLUSTER_NAME, roleArn=role, resourcesVpcConfig={"subnetIds": subnets})
    _admit_creator(aws)
    _role(aws, "Pods", template="cluster.WorkloadPodRole")
    empty = {"minSize": 0, "desiredSize": 0, "maxSize": MAX_NODES}
    always = {"minSize": SMALL_JOB_NODES, "desiredSize": SMALL_JOB_NODES, "maxSize": SMALL_JOB_NODES + 1}
    groups = {nodegroup_name(name): (name, empty) for name in INSTANCE_TYPES}
    backend = eks_backends[DEFAULT_ACCOUNT_ID][REGION]
    for name, (instance_type, size) in {**groups, SMALL_JOBS_NODEGROUP: (SYSTEM_INSTANCE.name, always)}.items():
        # Without a request for each: there are ninety types, and a request takes 45 ms.
        backend.create_nodegroup(
            cluster_name=CLUSTER_NAME,
            nodegroup_name=name,
            node_role=role,
            subnets=list(subnets),
            instance_types=[instance_type],
            scaling_config=dict(size),
        )


def _admit_creator(aws: AwsServer) -> None:
    """Let the account's owner administer the cluster, as EKS lets the creator of one.

    Source: EKS API reference, CreateAccessConfigRequest: `bootstrapClusterCreatorAdminPermissions` defaults to true.
    """
    owner = aws.client("sts").get_caller_identity()["Arn"]
    aws.client("eks").create_access_entry(
        clusterName=CLUSTER_NAME, principalArn=owner, kubernetesGroups=["system:masters"]
    )


def set_endpoint(*, kubernetes_endpoint: str, ca_data: str, cluster_name: str = CLUSTER_NAME) -> None:
    """Let `eks:DescribeCluster` name the cluster's Kubernetes API; moto invents one and has no call that sets it.

    Args:
        kubernetes_endpoint: HTTPS URL of the API.
        ca_data: Its certificate authority, PEM in base64.
        cluster_name: Which cluster.
    """
    cluster = eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[cluster_name]
    cluster.endpoint, cluster.certificate_authority = kubernetes_endpoint, {"data": ca_data}


def deploy(
    aws: AwsServer,
    *,
    slurm: Mapping[str, str] | None = None,
    granted_buckets: GrantedBuckets = GrantedBuckets(),  # noqa: B008 (it is frozen)
    granted_secrets: Sequence[str] = (),
) -> Deployment:
    """Make everything that a run needs beside the cluster.

    Args:
        aws: Where.
        slurm: What functions are told about a Slurm cluster; None if there is none.
        granted_buckets: Further buckets that runs may use, as `storage.grants` names them.
        granted_secrets: ARNs of secrets that runs may read, as `run_secrets` names them.
    """
    storage_key, key = _key(), _key()
    topic_arn = aws.client("sns").create_topic(Name="trainflow-runs", Attributes={"KmsMasterKeyId": key})["TopicArn"]
    for bucket in BUCKETS:
        if not _exists(aws, bucket):
            create_bucket(aws, bucket)
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_bucket_encryption(bucket, _encryption(storage_key))
    runs = _table(aws, RUN_TABLE, partition_key=KEY, key=key)
    caches = _table(aws, CACHE_TABLE, partition_key=compile_cache.KEY, key=key)
    tools_image, repository = _tools_image(aws)
    settings = {
        "CLUSTER_NAME": CLUSTER_NAME,
        "DEPLOYMENT": DEPLOYMENT_NAME,
        "NAMESPACE": NAMESPACE,
        "ARTIFACT_BUCKET": ARTIFACT_BUCKET,
        "TOPIC_ARN": topic_arn,
        "RUN_TABLE": RUN_TABLE,
        "CACHE_TABLE": CACHE_TABLE,
        "IDLE_MINUTES": str(IDLE_MINUTES),
        "TOOLS_IMAGE": tools_image,
        "ALLOWED_IMAGES": "[]",
        "REPLACE_BAD_NODES": "false",
        **dict.fromkeys((*SLURM, *LINK), ""),
        **(slurm or {}),
    }
    machines = {name: _machine_arn(name) for name in ("watch_job", "training")}
    tasks = _functions(aws, TASKS, settings, stack="orchestration")
    of_handlers = {**settings, "TRAINING_STATE_MACHINE_ARN": machines["training"]}
    handlers = _functions(aws, EVENT_HANDLERS, of_handlers, stack="triggers")
    values: dict[str, Sequence[str]] = {
        "storage.Data.Arn": [f"arn:aws:s3:::{DATA_BUCKET}"],
        "storage.Artifacts.Arn": [f"arn:aws:s3:::{ARTIFACT_BUCKET}"],
        "storage.Key.Arn": [storage_key],
        "orchestration.Key.Arn": [key],
        "orchestration.Topic": [topic_arn],
        "orchestration.Runs.Arn": [runs],
        "orchestration.Caches.Arn": [caches],
        "orchestration.StateMachinesWatchJob": [machines["watch_job"]],
        "orchestration.StateMachinesTraining": [machines["training"]],
        "images.Repository.Arn": [repository],
        "cluster.Cluster.Arn": [f"arn:aws:eks:{REGION}:{DEFAULT_ACCOUNT_ID}:cluster/{CLUSTER_NAME}"],
        "slurm secret": [arn for name, arn in (slurm or {}).items() if name == "SLURM_KEY_SECRET"],
        "readable bucket": granted_buckets.readable,
        "writable bucket": granted_buckets.writable,
        "granted secret": granted_secrets,
        **{f"orchestration.{name}Function.Arn": [arn] for name, arn in tasks.items()},
    }
    watch_job_role = _role(aws, "WatchJob", template="orchestration.StateMachinesWatchJobRole")
    training_role = _role(aws, "Training", template="orchestration.StateMachinesTrainingRole")
    for role in ("WatchJob", "Training"):  # before the state machines: Step Functions asks what their roles may do
        granted.to_role(f"trainflow-{role}", template=f"orchestration.StateMachines{role}Role", values=values)
    # The texts name versions: the roles may invoke these and nothing else.
    versions = {name: f"{arn}:{FIRST_VERSION}" for name, arn in tasks.items()}
    watch_job = _state_machine(aws, watch_job_role, "watch_job", versions, key)
    training = _state_machine(aws, training_role, "training", {**versions, "WatchJob": watch_job}, key)
    functions = {**tasks, **handlers}
    live = {name: _alias(aws, name) for name in handlers}
    values |= {f"triggers.{name}Live": [arn] for name, arn in live.items()}
    values |= triggers.make(
        aws,
        live,
        data_bucket=DATA_BUCKET,
        training_state_machine_arn=training,
        role=_role(aws, "SurveySchedule", template="triggers.SchedulesSurvey"),
        key=key,
    )
    _grant(values, topic_arn=topic_arn, keys={"storage.Key": storage_key, "orchestration.Key": key})
    triggers.read(aws, triggers.REQUESTS, live["StartRun"])
    triggers.read(aws, triggers.LOST_REQUESTS, live["ReportLostRequest"])
    address = DeploymentAddress(
        deployment=DEPLOYMENT_NAME,
        state_machine_arn=training,
        artifact_bucket=ARTIFACT_BUCKET,
        data_bucket=DATA_BUCKET,
        cluster=CLUSTER_NAME,
        namespace=NAMESPACE,
        survey_function=live["SurveyFleet"],
        plan_function=tasks["Preflight"],
    )
    aws.client("ssm").put_parameter(
        Name=parameter_name(DEPLOYMENT_NAME), Value=address.model_dump_json(), Type="String"
    )
    return Deployment(address=address, topic_arn=topic_arn, functions=functions, tools_image=tools_image)


FIRST_VERSION = "1"

POD_ROLE = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/trainflow-Pods"
"""The role of the runs' pods."""


def _grant(values: granted.Values, *, topic_arn: str, keys: Mapping[str, str]) -> None:
    """Give roles and resources the policies of the templates."""
    for stack, functions in (("orchestration", TASKS), ("triggers", EVENT_HANDLERS)):
        for function in functions:
            granted.to_role(f"trainflow-{function.name}", template=f"{stack}.{function.name}Role", values=values)
    granted.to_role("trainflow-SurveySchedule", template="triggers.SchedulesSurvey", values=values)
    granted.to_role("trainflow-Pods", template="cluster.WorkloadPodRole", values=values)
    for template, arn in keys.items():
        kms_backends[DEFAULT_ACCOUNT_ID][REGION].keys[arn.rsplit("/", 1)[1]].policy = granted.policy_of(
            template, values
        )
    for template, bucket in (("storage.Data", DATA_BUCKET), ("storage.Artifacts", ARTIFACT_BUCKET)):
        policy = granted.policy_of(template, values).encode()
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_bucket_policy(bucket, policy)
    topic = sns_backends[DEFAULT_ACCOUNT_ID][REGION].topics[topic_arn]
    topic.policy = granted.policy_of("orchestration.Topic", values)


def _key() -> str:
    """A customer's key; without a request, which takes tens of milliseconds."""
    key = kms_backends[DEFAULT_ACCOUNT_ID][REGION].create_key(None, "ENCRYPT_DECRYPT", "SYMMETRIC_DEFAULT", "", None)
    return str(key.arn)


def _encryption(key: str) -> dict[str, Any]:
    """Encryption of a bucket as the stacks ask for it, in S3's form."""
    settings = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    return {"Rule": {"ApplyServerSideEncryptionByDefault": settings, "BucketKeyEnabled": True}}


def _table(aws: AwsServer, name: str, *, partition_key: str, key: str) -> str:
    created = aws.client("dynamodb").create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": partition_key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": partition_key, "AttributeType": "S"}],
        SSESpecification={"Enabled": True, "SSEType": "KMS", "KMSMasterKeyId": key},
    )
    return str(created["TableDescription"]["TableArn"])


def _alias(aws: AwsServer, function: str) -> str:
    made = aws.client("lambda").create_alias(
        FunctionName=f"trainflow-{function}", Name=LIVE, FunctionVersion=FIRST_VERSION
    )
    return str(made["AliasArn"])


def _machine_arn(name: str) -> str:
    return f"arn:aws:states:{REGION}:{DEFAULT_ACCOUNT_ID}:stateMachine:{_machine_name(name)}"


def _machine_name(name: str) -> str:
    return f"trainflow-{name.replace('_', '-')}"


def _tools_image(aws: AwsServer) -> tuple[str, str]:
    """Name of the image that staging and publishing run in, and ARN of its repository in ECR. The twin's nodes read no
    image."""
    ecr = aws.client("ecr")
    repository = ecr.create_repository(repositoryName=IMAGE_REPOSITORY)["repository"]
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "layers": []}
    ecr.put_image(repositoryName=IMAGE_REPOSITORY, imageManifest=json.dumps(manifest), imageTag=TOOLS_TAG)
    return f"{repository['repositoryUri']}:{TOOLS_TAG}", str(repository["repositoryArn"])


def create_bucket(aws: AwsServer, name: str) -> None:
    """Make a bucket in the twin's region."""
    aws.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})


def create_secret(aws: AwsServer, name: str, text: str) -> str:
    """Keep a text in Secrets Manager; the ARN by which functions ask for it."""
    return str(aws.client("secretsmanager").create_secret(Name=name, SecretString=text)["ARN"])


def _exists(aws: AwsServer, bucket: str) -> bool:
    return any(found["Name"] == bucket for found in aws.client("s3").list_buckets()["Buckets"])


def _role(aws: AwsServer, name: str, *, template: str | None) -> str:
    """ARN of a new role with the trust policy of a template's role; None: it is a name that nothing assumes."""
    nobody = json.dumps({"Version": "2012-10-17", "Statement": []})
    trust = granted.trust_of(template, {"cluster.Cluster": [CLUSTER_NAME]}) if template else nobody
    role = aws.client("iam").create_role(RoleName=f"trainflow-{name}", AssumeRolePolicyDocument=trust)
    return str(role["Role"]["Arn"])


def _functions(
    aws: AwsServer, functions: Iterable[Function], settings: Mapping[str, str], *, stack: str
) -> dict[str, str]:
    """Functions with a role each, and what the cluster's access entries say of it."""
    client, eks = aws.client("lambda"), aws.client("eks")
    arns = {}
    for function in functions:
        role = _role(aws, function.name, template=f"{stack}.{function.name}Role")
        if function.access is not None:
            eks.create_access_entry(
                clusterName=CLUSTER_NAME, principalArn=role, kubernetesGroups=[function.access.value]
            )
        created = client.create_function(
            FunctionName=f"trainflow-{function.name}",
            Runtime="python3.12",
            Role=role,
            Handler=function.handler,
            Timeout=function.timeout_seconds,
            MemorySize=function.memory_mib,
            Environment={"Variables": {name: settings[name] for name in function.environment}},
            # Workers import the repository's own modules; moto wants some archive.
            Code={"ZipFile": empty_archive()},
            Publish=True,
        )
        arns[function.name] = str(created["FunctionArn"]).removesuffix(f":{FIRST_VERSION}")
    return arns


def empty_archive() -> bytes:
    """A code archive for functions whose code is not in one."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("README", "The twin runs handlers from the repository.")
    return buffer.getvalue()


def _state_machine(aws: AwsServer, role: str, name: str, substitutions: Mapping[str, str], key: str) -> str:
    created: Any = aws.client("stepfunctions").create_state_machine(
        name=_machine_name(name),
        definition=_Substituted(definition_json(name)).substitute(substitutions),
        roleArn=role,
        encryptionConfiguration={"type": "CUSTOMER_MANAGED_KMS_KEY", "kmsKeyId": key},
    )
    return str(created["stateMachineArn"])


class _Substituted(Template):
    """`${Name}` alone is a placeholder, as in CDK; `$name` and `$$.` are Step Functions' own."""

    pattern = r"\$\{(?P<braced>[A-Za-z0-9]+)\}|(?P<escaped>(?!))|(?P<named>(?!))|(?P<invalid>(?!))"  # type: ignore[assignment]


def desired_sizes() -> dict[str, tuple[str, int]]:
    """Instance type and desired size by the name of the node group, as the last EKS call left it."""
    nodegroups = eks_backends[DEFAULT_ACCOUNT_ID][REGION].clusters[CLUSTER_NAME].nodegroups
    return {
        name: (nodegroup.instance_types[0], int(nodegroup.scaling_config["desiredSize"]))
        for name, nodegroup in nodegroups.items()
    }


def gang_nodes() -> int:
    """Number of nodes that runs have requested and not released; the permanent nodes do not count."""
    return sum(size for name, (_, size) in desired_sizes().items() if name != SMALL_JOBS_NODEGROUP)
