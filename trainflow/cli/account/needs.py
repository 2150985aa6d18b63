"""Needs of a configuration: the only module of the command that knows the stacks.

Names and numbers that only the stacks' modules contain are repeated here, because those modules import CDK; the
infrastructure tests compare them with the templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainflow.configuration.cluster_software import TRAINING_OPERATOR_IMAGE, charts
from trainflow.configuration.deployment import Configuration, scheduled_spec
from trainflow.configuration.nodes import Nodegroup
from trainflow.deployment.address import container_log
from trainflow.nodes.instances import SYSTEM_INSTANCE

BOOTSTRAP_QUALIFIER = "hnb659fds"
"""CDK's default qualifier, a part of the names of all that `cdk bootstrap` makes."""

OLDEST_BOOTSTRAP = 6
"""Version that the templates ask for in their rule `CheckBootstrapVersion`."""

BOOTSTRAP_PARAMETER = f"/cdk-bootstrap/{BOOTSTRAP_QUALIFIER}/version"

SYSTEM_INSTANCE_TYPES = ("t3a.large", "t3.large")
"""Instance types of the permanent nodes; one of them has to be offered."""

ADD_ONS = (
    "amazon-cloudwatch-observability",
    "aws-fsx-csi-driver",
    "coredns",
    "eks-node-monitoring-agent",
    "eks-pod-identity-agent",
    "kube-proxy",
    "vpc-cni",
)

DEFECTIVE_ADD_ONS = {"vpc-cni": ("1.21.0", "1.21.1")}
"""Versions whose network policy agent stops traffic that the policies allow (github.com/aws/amazon-vpc-cni-k8s, issue
3553; github.com/aws/aws-network-policy-agent, issue 553), by the add-on's name. EKS adds a build to a version:
`v1.21.1-eksbuild.3`."""

CONTAINER_LOGS = ("application", "dataplane", "host", "performance")

FUNCTIONS_AT_ONCE = 20
"""Each of our 17 functions once, and CDK's functions that apply manifests."""

PRIVATE_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com/(?P<repository>[^:@]+)"
    r"(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True, kw_only=True)
class CountedQuota:
    """A quota that a deployment takes something of.

    Codes as `aws service-quotas list-service-quotas` lists them for each service; they are the same in every account.
    """

    service: str
    code: str
    name: str
    needed: int
    unit: str
    stack: str
    """The stack that takes it; once it is there, nothing more is needed."""


@dataclass(frozen=True)
class Artifact:
    """A chart or an image that the deployment pulls."""

    name: str
    """Name in messages, and key of the answer."""
    reference: str
    """`host/repository:tag` or `host/repository@digest`; of a chart in a Helm repository: its URL."""
    chart: str = ""
    version: str = ""
    """Version of a chart in a Helm repository; like `chart`, empty for everything else."""


def stack_names(configuration: Configuration) -> dict[str, str]:
    """The stacks of a deployment, by what they hold."""
    own = configuration.existing_cluster is None
    kinds = {
        "network": own,
        "storage": True,
        "cluster": own,
        "capacity": own,
        "slurm": configuration.pcs is not None,
        "images": True,
        "orchestration": True,
        "triggers": True,
        "observability": True,
    }
    return {kind: f"{configuration.name}-{kind}" for kind, deployed in kinds.items() if deployed}


def log_groups(configuration: Configuration) -> tuple[str, ...]:
    """Log groups that the cluster stack makes under a fixed name."""
    if configuration.existing_cluster is not None:
        return ()
    name = configuration.cluster_name
    return (f"/aws/eks/{name}/cluster", *(container_log(name, log) for log in CONTAINER_LOGS))


def trainium_groups(configuration: Configuration) -> tuple[Nodegroup, ...]:
    """Node groups of the EKS cluster whose nodes run the Neuron image; none on an existing cluster."""
    if configuration.existing_cluster is not None:
        return ()
    return tuple(group for group in configuration.capacity.nodegroups if group.instance.uses_neuron)


def node_types(configuration: Configuration) -> dict[str, str]:
    """Instance types that have to be offered in the training zone, with the field that asks for each."""
    wanted = {queue.instance_type: "slurm.pcs.queues" for queue in configuration.queues}
    return wanted | {group.instance_type: "capacity.nodegroups" for group in configuration.capacity.nodegroups}


@dataclass(frozen=True, kw_only=True)
class VcpuNeed:
    """vCPUs that a deployment takes of one quota."""

    one_node: int = 0
    """One node of the largest type."""
    permanent: int = 0
    """Nodes that the deployment itself starts."""
    everything: int = 0
    """All groups at their largest. Permanent nodes count with one more of each kind, for their replacement."""

    def plus(self, vcpus: int, *, nodes: int, permanent: int = 0) -> VcpuNeed:
        """The need with further nodes.

        Args:
            vcpus: vCPUs of a node.
            nodes: Number of nodes at most.
            permanent: Number of those that the deployment starts.
        """
        return VcpuNeed(
            one_node=max(self.one_node, vcpus),
            permanent=self.permanent + vcpus * permanent,
            everything=self.everything + vcpus * nodes,
        )


def vcpus_wanted(configuration: Configuration) -> dict[str, VcpuNeed]:
    """The need of the deployment by vCPU quota, for each quota that it uses."""
    needs: dict[str, VcpuNeed] = {}

    def add(quota: str | None, vcpus: int, nodes: int, permanent: int = 0) -> None:
        if quota is not None:
            needs[quota] = needs.get(quota, VcpuNeed()).plus(vcpus, nodes=nodes, permanent=permanent)

    for group in (*configuration.capacity.nodegroups, *configuration.queues):
        add(group.quota, group.instance.vcpus, group.max_nodes)
    if configuration.existing_cluster is None:
        for nodes in filter(None, (configuration.cluster.system_nodes, configuration.cluster.small_job_nodes)):
            add("standard_on_demand", SYSTEM_INSTANCE.vcpus, nodes + 1, nodes)
    if configuration.pcs is not None:
        add("standard_on_demand", SYSTEM_INSTANCE.vcpus, configuration.pcs.system_nodes)
    return needs


# Decision 23: what an account lacks is found in a minute, and not after an hour of deployment.
def counted_quotas(configuration: Configuration) -> Iterator[CountedQuota]:
    """Quotas that are counted in resources: VPCs, addresses, clusters, storage."""
    if configuration.existing_cluster is None:
        yield CountedQuota(
            service="vpc", code="L-F678F1CE", name="VPCs per Region", needed=1, unit="VPCs", stack="network"
        )
        yield CountedQuota(
            service="ec2", code="L-0263D0A3", name="EC2-VPC Elastic IPs", needed=1, unit="addresses", stack="network"
        )
        yield CountedQuota(
            service="eks", code="L-1194D53C", name="Clusters", needed=1, unit="clusters", stack="cluster"
        )
    if configuration.storage.lustre is not None:
        yield CountedQuota(
            service="fsx",
            code="L-8F1B9C74",
            name="Lustre Persistent_2 storage capacity",
            needed=configuration.storage.lustre.size_gib,
            unit="GiB",
            stack="storage",
        )


LAMBDA_CONCURRENCY = ("lambda", "L-B99A9384", "Concurrent executions")

CODEBUILD_CONCURRENCY = ("codebuild", "L-2DC20C30", "Concurrently running builds for Linux/Medium environment")


def builds_at_once(configuration: Configuration) -> int:
    """Builds that `make images` starts: one on each base, and the small one for staging and publishing."""
    with_a_base = [field for field in base_images(configuration) if field != "images.tools"]
    return len(with_a_base) + (configuration.images.tools is None)


def base_images(configuration: Configuration) -> dict[str, str]:
    """The images that ours are built on, by their field."""
    named = configuration.images.model_dump(exclude={"allowed"})
    return {f"images.{field}": image for field, image in named.items() if image is not None}


def artifacts(configuration: Configuration, *, repository: Path) -> Iterator[Artifact]:
    """Every chart and image that the deployment or its schedules name.

    Raises:
        ConfigurationError: If the spec of a schedule cannot be run.
    """
    for field, image in base_images(configuration).items():
        yield Artifact(f"{field} {image}", image)
    for schedule in configuration.schedules:
        theirs = scheduled_spec(configuration, schedule, repository=repository).workload.image
        if theirs is not None:
            yield Artifact(f"schedules.{schedule.name} {theirs}", theirs)
    if configuration.existing_cluster is not None:
        return
    if configuration.cluster.training_operator:
        yield Artifact(f"the training operator {TRAINING_OPERATOR_IMAGE}", TRAINING_OPERATOR_IMAGE)
    for chart in charts(trainer=configuration.cluster.trainer):
        name = f"the chart {chart.name} {chart.version}"
        if chart.repository.startswith("oci://"):
            yield Artifact(name, f"{chart.repository.removeprefix('oci://')}:{chart.version}")
        else:
            yield Artifact(name, chart.repository, chart.name, chart.version)


def service_linked_roles(configuration: Configuration) -> dict[str, str]:
    """Roles that AWS's services make for themselves in an account, with the service of each."""
    roles = {}
    if configuration.existing_cluster is None:
        roles["AWSServiceRoleForAmazonEKS"] = "eks.amazonaws.com"
        roles["AWSServiceRoleForAmazonEKSNodegroup"] = "eks-nodegroup.amazonaws.com"
        roles["AWSServiceRoleForAutoScaling"] = "autoscaling.amazonaws.com"
    if configuration.storage.lustre is not None:
        # The role with which FSx reads the linked buckets has a name of its own for each file system.
        roles["AWSServiceRoleForAmazonFSx"] = "fsx.amazonaws.com"
    groups = (*configuration.capacity.nodegroups, *configuration.queues)
    if configuration.existing_cluster is None and any(group.mode == "spot" for group in groups):
        roles["AWSServiceRoleForEC2Spot"] = "spot.amazonaws.com"
    if configuration.pcs is not None:
        roles["AWSServiceRoleForPCS"] = "pcs.amazonaws.com"
    return roles


def bootstrap_roles(account: str, region: str) -> dict[str, str]:
    """Names of the roles that `cdk bootstrap` makes and a deployment assumes, by what they do."""
    return {
        purpose: f"cdk-{BOOTSTRAP_QUALIFIER}-{purpose}-role-{account}-{region}"
        for purpose in ("deploy", "file-publishing", "cfn-exec")
    }


def creating_actions(configuration: Configuration) -> tuple[str, ...]:
    """One action for each service that the stacks make something in; not every one that a deployment takes."""
    actions = [
        "cloudwatch:PutDashboard",
        "cloudwatch:PutMetricAlarm",
        "codebuild:CreateProject",
        "dynamodb:CreateTable",
        "ecr:CreateRepository",
        "events:PutRule",
        "iam:CreateRole",
        "iam:PutRolePolicy",
        "kms:CreateKey",
        "lambda:CreateFunction",
        "logs:CreateLogGroup",
        "s3:CreateBucket",
        "scheduler:CreateScheduleGroup",
        "sns:CreateTopic",
        "sqs:CreateQueue",
        "states:CreateStateMachine",
    ]
    if configuration.existing_cluster is None:
        actions += [
            "ec2:AllocateAddress",
            "ec2:CreateLaunchTemplate",
            "ec2:CreateNatGateway",
            "ec2:CreateVpc",
            "eks:CreateAccessEntry",
            "eks:CreateCluster",
            "eks:CreateNodegroup",
            "iam:CreateServiceLinkedRole",
        ]
    if configuration.storage.lustre is not None:
        actions += ["fsx:CreateDataRepositoryAssociation", "fsx:CreateFileSystem"]
    if configuration.pcs is not None:
        actions.append("pcs:CreateCluster")
    if configuration.alarms.slack is not None:
        actions.append("chatbot:CreateSlackChannelConfiguration")
    if configuration.alarms.teams is not None:
        actions.append("chatbot:CreateMicrosoftTeamsChannelConfiguration")
    return tuple(sorted(actions))


def named_resources(configuration: Configuration) -> dict[str, str]:
    """Resources that are named by id and have to be there already, by the field that names them."""
    named: dict[str, str] = {}
    theirs = configuration.existing_cluster
    if theirs is not None and theirs.vpc_id is not None:
        named["existing_cluster.vpc_id"] = theirs.vpc_id
        named |= {f"existing_cluster.subnet_ids.{n}": subnet for n, subnet in enumerate(theirs.subnet_ids)}
        named["existing_cluster.security_group_id"] = str(theirs.security_group_id)
    if configuration.pcs is not None:
        named["slurm.pcs.ami_id"] = configuration.pcs.ami_id
    named |= {f"run_secrets.{n}.secret_arn": grant.secret_arn for n, grant in enumerate(configuration.run_secrets)}
    existing = configuration.slurm.existing if configuration.slurm is not None else None
    if existing is not None:
        for field in ("security_group_id", "head_node_instance_id", "key_secret_arn"):
            value = getattr(existing, field)
            if value is not None:
                named[f"slurm.existing.{field}"] = value
    return named
