"""The configuration of one deployment: `config/<name>.yaml`, checked before anything is synthesized.

Faults that would appear an hour into a deployment, or on the bill, are refused here with a sentence that names the
field.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from trainflow.configuration import chat, grants, nodes, queues, schedule_expressions, slurm
from trainflow.configuration.chat import SlackChannel, TeamsChannel
from trainflow.configuration.grants import BucketGrant, SecretGrant
from trainflow.configuration.nodes import Nodegroup, VcpuQuotas, check_quotas, same_type_twice
from trainflow.configuration.queues import VolcanoQueue, same_name_twice
from trainflow.configuration.section import Section
from trainflow.configuration.slurm import Pcs, Slurm
from trainflow.deployment.overlap import Overlap
from trainflow.errors import InvalidRunSpec
from trainflow.nodes.offerings import OFFERINGS
from trainflow.spec.document import decode
from trainflow.spec.run_spec import RunSpec, TeamName, spec_from_document
from trainflow.spec.sentences import sentences

NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
ACCOUNT = r"^\d{12}$"
EMAIL = r"^[^@\s]+@[^@\s]+\.[^@\s]+$"
ROLE_ARN = r"^arn:aws[-a-z]*:iam::\d{12}:(role|user)/.+$"
RELEASE = r"^\d+\.\d+\.\d+-\d{8}$"
KUBERNETES = r"^1\.\d{2}$"
HTTP_URL = r"^https?://[^\s/]+(/\S*)?$"

IN_WORDS = {
    **nodes.IN_WORDS,
    **grants.IN_WORDS,
    **queues.IN_WORDS,
    **slurm.IN_WORDS,
    **chat.IN_WORDS,
    NAME: "must begin with a lower-case letter and hold only lower-case letters, digits and dashes",
    ACCOUNT: "must be the account's 12 digits, in quotes",
    EMAIL: "must be an e-mail address",
    ROLE_ARN: "must be the ARN of an IAM role or user",
    RELEASE: "must be an EKS AMI release such as 1.36.2-20260827",
    HTTP_URL: "must be the address of a page, such as https://wiki.example.org/runbooks",
    KUBERNETES: 'must be a Kubernetes version in quotes, such as "1.36"',
}
"""Explanation of each pattern, for messages."""

REGIONS = {"us-east-1": "use1", "us-east-2": "use2", "us-west-2": "usw2"}
"""Regions with Trainium (EC2 instance type offerings, November 2026), and how their zone ids begin."""

ZONES_WITHOUT_EKS = ("use1-az3",)
"""Zones that take no subnet of a cluster (EKS user guide, network requirements)."""

LUSTRE_THROUGHPUT = (125, 250, 500, 1000)
"""MB/s for each TiB of a PERSISTENT_2 file system."""

WIDEST_PREFIX = 8
"""Fewer bits of network than this is the world, or a good part of it."""


class ConfigurationError(Exception):
    """The configuration cannot be deployed; the message names the field and what to do."""


class Network(Section):
    """A VPC over two zones; all training nodes are in the first one."""

    zone_id: str
    """Availability Zone of the nodes and the file system, by id (`usw2-az4`), because names differ between accounts."""
    second_zone_id: str
    """EKS wants its control plane in two zones."""
    cidr: str = "10.40.0.0/16"
    """The VPC's addresses: 16 bits of network leave room for 8,000 pods a zone."""

    @field_validator("cidr")
    @classmethod
    def _check_cidr_size(cls, cidr: str) -> str:
        network = _network(cidr)
        if not network.is_private or not 16 <= network.prefixlen <= 18:
            raise ValueError(f"'{cidr}' must be a private network of 16 to 18 bits, such as 10.40.0.0/16")
        return cidr

    @model_validator(mode="after")
    def _check_zones(self) -> Self:
        if self.zone_id == self.second_zone_id:
            raise ValueError("second_zone_id is the same zone as zone_id; EKS needs two")
        for field, zone in (("zone_id", self.zone_id), ("second_zone_id", self.second_zone_id)):
            if zone in ZONES_WITHOUT_EKS:
                raise ValueError(f"{field}: EKS clusters cannot use the zone '{zone}'; choose another one")
        return self


class ExistingCluster(Section):
    """An existing cluster that others maintain. Network, Cluster and Capacity stacks are not deployed then."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """Name of the cluster, as `aws eks list-clusters` shows it. Its node groups have names such as
    `trainflow-trn1-32xlarge`."""
    vpc_id: str | None = None
    """VPC of the Lambda functions, for a private API endpoint; if left out, they run outside of any VPC."""
    subnet_ids: tuple[str, ...] = ()
    """Private subnets of that VPC with a route to the internet."""
    security_group_id: str | None = None
    """A security group that the cluster's own accepts connections from on port 443."""

    @model_validator(mode="after")
    def _require_whole_placement(self) -> Self:
        given = (bool(self.vpc_id), bool(self.subnet_ids), bool(self.security_group_id))
        if any(given) and not all(given):
            raise ValueError("vpc_id, subnet_ids and security_group_id go together; give all three or none")
        return self


class Cluster(Section):
    """The EKS cluster."""

    kubernetes_version: Annotated[str, Field(pattern=KUBERNETES)] = "1.36"
    """Pinned: add-ons, charts and node images were chosen for it."""
    public_endpoint_cidrs: tuple[str, ...] = ()
    """Networks of people who may reach the API server. None: it is private, reached from inside the VPC."""
    administrators: tuple[Annotated[str, Field(pattern=ROLE_ARN)], ...] = ()
    """IAM roles or users that administer the cluster."""
    system_nodes: Annotated[int, Field(ge=1, le=10)] = 2
    """Nodes for the software that always runs: DNS and controllers."""
    small_job_nodes: Annotated[int, Field(ge=0, le=10)] = 1
    """Nodes that always run for pods that examine a run's image, stage data and publish. 0: these pods run on the
    system nodes, and what breaks out of its container there has the rights of controllers (docs/security.md)."""
    ssm_access: bool = False
    """Whether people with `ssm:StartSession` reach the nodes by Systems Manager, with a shell or with a port to the
    private API server forwarded. Off: a node takes no commands from outside."""
    pod_logs: Literal["cloudwatch", "none"] = "cloudwatch"
    """Destination of the stdout and stderr of all pods, system pods included. `cloudwatch`: to Container Insights' log
    groups, at 0.50 USD a GB; `alarms.pod_logs_usd_per_hour` warns of a run that writes much. `none`: nowhere, and the
    alarm is left out. Metrics, `kubectl logs` and the last lines in a run's record work either way, but the log of a
    pod that is deleted is gone with `none`."""
    training_operator: bool = True
    """Whether the cluster has the Kubeflow training operator (v1) for runs with backend `pytorchjob`. Kubeflow develops
    it no further; its successor is `trainer`."""
    trainer: bool = False
    """Whether the cluster has Kubeflow Trainer v2 for runs with backend `trainjob`."""
    volcano_queues: tuple[VolcanoQueue, ...] = ()
    """Queues that runs with backend `volcano` may name, beside `default`, which Volcano makes itself."""

    @field_validator("volcano_queues")
    @classmethod
    def _unique_queue_names(cls, volcano_queues: tuple[VolcanoQueue, ...]) -> tuple[VolcanoQueue, ...]:
        twice = same_name_twice(volcano_queues)
        if twice:
            raise ValueError(f"there are two queues named '{twice}'; keep one")
        return volcano_queues

    @field_validator("public_endpoint_cidrs")
    @classmethod
    def _reject_wide_cidrs(cls, cidrs: tuple[str, ...]) -> tuple[str, ...]:
        for cidr in cidrs:
            if _network(cidr).prefixlen < WIDEST_PREFIX:
                raise ValueError(
                    f"'{cidr}' opens the API server to the world; name the networks that you work from, "
                    "or none for a private endpoint"
                )
        return cidrs


class Capacity(Section):
    """The instance types of training nodes, and their limits."""

    cluster: bool = False
    """Whether an existing cluster starts and ends nodes by itself: Karpenter, EKS Auto Mode or the Cluster Autoscaler
    makes nodes for the pods of runs, in place of node groups of the deployment."""
    nodegroups: Annotated[tuple[Nodegroup, ...], Field(validate_default=True)] = ()
    """Node groups, at most one for each instance type: a run asks for a type, not for a group."""
    vcpu_quotas: VcpuQuotas = VcpuQuotas()
    """vCPU quotas, as the account's Service Quotas console shows them."""
    neuron_ami_release: Annotated[str, Field(pattern=RELEASE)] | None = None
    """EKS AMI release of the Trainium nodes, pinned together with the Neuron image: driver and runtime have to match.
    None: EKS takes the newest when it makes a node group, and again whenever it replaces the group's nodes.
    `trainflow check-account` says which is the newest."""
    idle_minutes: Annotated[int, Field(ge=5, le=1440)] = 20
    """Minutes before nodes that no run claims are released."""
    replace_bad_nodes: bool = False
    """Whether a node that a run avoids, because its jobs failed there, is cordoned and its instance terminated, so that
    Auto Scaling starts another one. EKS itself replaces only nodes that its own monitoring finds unhealthy."""

    @field_validator("nodegroups")
    @classmethod
    def _unique_instance_types(cls, nodegroups: tuple[Nodegroup, ...], info: ValidationInfo) -> tuple[Nodegroup, ...]:
        if not nodegroups and not info.data.get("cluster"):
            raise ValueError("there is no node group; name at least one")
        twice = same_type_twice(nodegroups)
        if twice:
            raise ValueError(f"there are two node groups of {twice}; a run asks for a type, so keep one")
        return nodegroups

    # Decision 104: the cluster makes nodes for pods, and nothing of a deployment does.
    @model_validator(mode="after")
    def _one_source_of_nodes(self) -> Self:
        if not self.cluster:
            return self
        if self.nodegroups:
            raise ValueError(
                "cluster and nodegroups exclude each other: the cluster makes the nodes by itself; remove one"
            )
        if self.replace_bad_nodes:
            raise ValueError(
                "replace_bad_nodes terminates instances of node groups, and with cluster there are none; remove it"
            )
        if self.neuron_ami_release is not None:
            raise ValueError(
                "neuron_ami_release is the image of node groups, and with cluster there are none; name the image where "
                "the cluster's nodes are described, such as its EC2NodeClass"
            )
        return self

    @model_validator(mode="after")
    def _check_quotas(self) -> Self:
        check_quotas(self.vcpu_quotas, self.nodegroups)
        return self


class Lustre(Section):
    """FSx for Lustre, shared by all pods of all runs."""

    size_gib: int = 1200
    """SSD storage: 1200, 2400 or a multiple of 2400 GiB."""
    throughput_mbps_per_tib: int = 125
    """125, 250, 500 or 1000 MB/s for each TiB."""
    on_destroy: Literal["retain", "delete"] = "retain"
    """Treatment of the file system by `make destroy`. The files below `/runs` have been exported to the artifact bucket
    by then."""

    @field_validator("size_gib")
    @classmethod
    def _check_size(cls, size: int) -> int:
        if size != 1200 and (size < 2400 or size % 2400):
            raise ValueError(f"FSx offers 1200, 2400 and multiples of 2400 GiB, not {size}")
        return size

    @field_validator("throughput_mbps_per_tib")
    @classmethod
    def _check_throughput(cls, throughput: int) -> int:
        if throughput not in LUSTRE_THROUGHPUT:
            offered = ", ".join(map(str, LUSTRE_THROUGHPUT))
            raise ValueError(f"FSx offers {offered} MB/s for each TiB, not {throughput}")
        return throughput


PRINCIPAL = r"^arn:aws[a-z-]*:iam::([0-9]{12}|\*):(user|role)/[A-Za-z0-9+=,.@_/*-]+$"
"""ARN of a user or a role, or a pattern of such ARNs."""


class Storage(Section):
    """Buckets, and the file system that the pods share."""

    lustre: Lustre | None = Lustre()
    """None for an existing cluster, which brings its own claim `fsx-claim`."""
    buckets_on_destroy: Literal["retain", "delete"] = "retain"
    """`delete` empties data and artifacts with `make destroy`."""
    artifact_days: Annotated[int, Field(ge=1)] | None = None
    """Artifacts are deleted after this time; None keeps them."""
    grants: tuple[BucketGrant, ...] = ()
    """Further buckets that runs may read data sets from or write models to."""
    requesters: tuple[Annotated[str, Field(pattern=PRINCIPAL)], ...] = ()
    """ARNs of the users and roles that may upload run specs, with `*` for any text. Everyone else is refused, whatever
    their own policies allow. Empty: everyone who may write below `runs/` of the data bucket."""


ALLOWED_IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._:@/-]*[A-Za-z0-9]$"
"""The beginning of an image's name, up to a slash or its end."""


class Images(Section):
    """Base images of CodeBuild's images, and images that are not built."""

    neuron_base: str = "public.ecr.aws/neuron/pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.29.1-ubuntu24.04"
    """Base image for trn1: the last release of PyTorch/XLA for training."""
    cpu_base: str = "public.ecr.aws/docker/library/python:3.12-slim-bookworm"
    """Base image for CPU instances, and for the image `tools`."""
    torchneuron_base: str | None = None
    """Base image for trn2, with the native TorchNeuron. It must be given, because AWS has not published a fixed
    name."""
    tools: str | None = None
    """An image of your own for staging and publishing, with our `trainer` package. None: `make images` builds it."""
    allowed: tuple[Annotated[str, Field(pattern=ALLOWED_IMAGE)], ...] = ()
    """Images that specs may name in `workload.image`: registries, folders of registries or repositories, with all that
    is below them, or whole names. Empty: every image that the nodes can pull."""


class Schedule(Section):
    """A run that starts at scheduled times."""

    name: Annotated[str, Field(pattern=NAME, max_length=40)]
    """Name of the schedule; the run is named after its spec."""
    expression: str
    """Times of the schedule: `cron(0 2 ? * SAT *)`, `rate(7 days)`, `at(2027-01-01T00:00:00)`."""
    time_zone: str = "UTC"
    """IANA name of the expression's time zone."""
    spec: str
    """Path of the run spec, relative to the repository."""
    enabled: bool = True
    """Whether the schedule starts runs; if not, it is kept but disabled."""
    overlap: Overlap = "allow"
    """Behaviour at a scheduled time while the schedule's previous run is active: `allow` starts another one, `skip`
    starts none and sends a message, `queue` starts it when that one has ended; at most one waits."""

    @field_validator("expression")
    @classmethod
    def _check_expression(cls, expression: str) -> str:
        schedule_expressions.parse(expression)
        return expression

    @field_validator("time_zone")
    @classmethod
    def _check_time_zone(cls, name: str) -> str:
        schedule_expressions.parse_time_zone(name)
        return name


class Alarms(Section):
    """Alarms for people: thresholds and subscribers."""

    emails: tuple[Annotated[str, Field(pattern=EMAIL)], ...] = ()
    """Subscribers of the topic; AWS asks each to confirm."""
    slack: SlackChannel | None = None
    """Channel of Slack that has the same messages; docs/deploy.md says what has to be authorized first."""
    teams: TeamsChannel | None = None
    """Channel of Microsoft Teams that has the same messages."""
    stalled_minutes: Annotated[int, Field(ge=5, le=1440)] = 30
    """No step for this long is an alarm; `limits.stall_minutes` of a spec ends the run."""
    daily_budget_usd: Annotated[float, Field(gt=0)] = 1000.0
    """Estimated cost of training nodes in a day above which an alarm is raised."""
    pod_logs_usd_per_hour: Annotated[float, Field(gt=0)] = 1.0
    """Cost of sending pods' stdout to CloudWatch within an hour above which an alarm is raised. 1 USD is 2 GB."""
    runbooks_url: Annotated[str, Field(pattern=HTTP_URL)] | None = None
    """Page with your copy of docs/runbooks.md. None: the runbooks are on a dashboard of the deployment."""


class Configuration(Section):
    """The configuration of a deployment."""

    model_config = ConfigDict(title="Trainflow configuration")

    version: Literal[1]
    """Version of this format."""
    name: Annotated[str, Field(pattern=NAME, max_length=20)]
    """First part of every stack's name, and the cluster's name; two deployments in one account need two names."""
    environment: Literal["development", "production"]
    """`production` wants images by digest and protects from deletion what cannot be made again."""
    region: str
    """AWS Region."""
    account: Annotated[str, Field(pattern=ACCOUNT)] | None = None
    """Only account to deploy to. None: the account of the credentials."""
    namespace: Annotated[str, Field(pattern=NAME, max_length=40)] = "training"
    """Kubernetes namespace of the runs."""
    default_team: TeamName | None = None
    """Team of runs whose specs name none; `trainflow costs --by team` has the cost of each."""
    default_project: TeamName | None = None
    """The same for projects."""
    pod_egress_ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = (443,)
    """TCP ports that pods of runs may reach outside of their namespace, at any address but the node's own services.
    443: S3, STS, package indexes, hubs and trackers over HTTPS."""
    network: Network | None = None
    """None with an existing cluster."""
    cluster: Cluster = Cluster()
    existing_cluster: ExistingCluster | None = None
    """Use an existing cluster."""
    capacity: Capacity
    storage: Storage = Storage()
    slurm: Slurm | None = None
    """None: runs train in the EKS cluster only."""
    images: Images = Images()
    run_secrets: tuple[SecretGrant, ...] = ()
    """Secrets of AWS Secrets Manager that the pods of every run may read; `workload.secrets` of a spec names those that
    a run does read."""
    schedules: tuple[Schedule, ...] = ()
    alarms: Alarms = Alarms()

    @field_validator("pod_egress_ports")
    @classmethod
    def _require_s3_port(cls, ports: tuple[int, ...]) -> tuple[int, ...]:
        if 443 not in ports:
            raise ValueError("port 443 is missing: data, checkpoints and credentials of runs come through it; add it")
        return ports

    @field_validator("region")
    @classmethod
    def _check_region(cls, region: str) -> str:
        if region not in REGIONS:
            raise ValueError(f"'{region}' is not a region with Trainium; choose one of {', '.join(REGIONS)}")
        return region

    @model_validator(mode="after")
    def _require_one_cluster(self) -> Self:
        if self.existing_cluster is not None:
            if self.network is not None:
                raise ValueError("network and existing_cluster exclude each other; remove one")
            if self.storage.lustre is not None:
                raise ValueError(
                    "storage.lustre must be null with existing_cluster: the cluster's own network holds the file system"
                )
        elif self.network is None:
            raise ValueError("network is missing; add it, or name an existing_cluster")
        elif self.capacity.cluster:
            raise ValueError(
                "capacity.cluster needs an existing_cluster, whose autoscaler makes the nodes; a cluster of this "
                "deployment has capacity.nodegroups"
            )
        return self

    @model_validator(mode="after")
    def _check_secrets(self) -> Self:
        if self.run_secrets and self.existing_cluster is not None:
            raise ValueError(
                "run_secrets and existing_cluster exclude each other: the role of the pods is not this deployment's; "
                "give the role of the service account 'training' secretsmanager:GetSecretValue there"
            )
        for secret in self.run_secrets:
            if secret.region != self.region:
                raise ValueError(
                    f"run_secrets: {secret.secret_arn} is in {secret.region}, and the deployment in {self.region}; "
                    "replicate the secret to that Region"
                )
        return self

    @model_validator(mode="after")
    def _check_slurm_network(self) -> Self:
        if self.slurm is None:
            return self
        if self.slurm.pcs is not None:
            if self.network is None or self.storage.lustre is None:
                raise ValueError(
                    "slurm.pcs stands in the network of this deployment and mounts its file system, and one of them is "
                    "missing; use slurm.existing, or add network and storage.lustre"
                )
            check_quotas(self.capacity.vcpu_quotas, self.capacity.nodegroups, self.slurm.pcs.vcpus_by_quota)
        elif self.slurm.existing is not None and self.slurm.existing.api_url is not None:
            theirs = self.existing_cluster
            if theirs is not None and theirs.vpc_id is None:
                raise ValueError(
                    "slurm.existing.api_url is a private address, and the functions stand outside any VPC; give "
                    "existing_cluster its vpc_id, subnet_ids and security_group_id"
                )
        return self

    @model_validator(mode="after")
    def _check_offerings(self) -> Self:
        if self.network is None:
            return self
        prefix = REGIONS[self.region]
        for field in ("zone_id", "second_zone_id"):
            zone = getattr(self.network, field)
            if not zone.startswith(f"{prefix}-az"):
                raise ValueError(f"network.{field}: '{zone}' is not a zone id of {self.region}, such as {prefix}-az1")
        for nodegroup in (*self.capacity.nodegroups, *self.queues):
            offering = OFFERINGS[nodegroup.instance_type]
            if not (nodegroup.zone_confirmed or offering.is_in(self.network.zone_id)):
                here = [zone for zone in offering.zone_ids or () if zone.startswith(prefix)]
                offered = f"in {', '.join(here)}" if here else f"nowhere in {self.region}"
                raise ValueError(
                    f"network.zone_id: {self.network.zone_id} does not offer {nodegroup.instance_type}, which is "
                    f"offered {offered}; choose another zone, or set zone_confirmed if EC2 tells you otherwise"
                )
        return self

    @model_validator(mode="after")
    def _require_images(self) -> Self:
        trn2 = [node.instance_type for node in self.capacity.nodegroups if node.instance_type.startswith("trn2.")]
        if trn2 and self.images.torchneuron_base is None:
            raise ValueError(f"images.torchneuron_base is missing; {trn2[0]} needs an image with TorchNeuron")
        if self.environment == "production":
            for field, image in self.images.model_dump().items():
                if isinstance(image, str) and not is_pinned(image):
                    raise ValueError(f"images.{field}: {unpinned(image)}")
        return self

    @model_validator(mode="after")
    def _check_node_images(self) -> Self:
        release, version = self.capacity.neuron_ami_release, self.cluster.kubernetes_version
        if self.existing_cluster is None and release is not None and not release.startswith(f"{version}."):
            raise ValueError(
                f"capacity.neuron_ami_release: '{release}' is not for Kubernetes {version}, the cluster's version; "
                f"choose a release that begins with {version}., or remove it for the newest"
            )
        return self

    @model_validator(mode="after")
    def _require_retention(self) -> Self:
        storage = self.storage
        deleted = [
            field
            for field, policy in (
                ("storage.buckets_on_destroy", storage.buckets_on_destroy),
                ("storage.lustre.on_destroy", storage.lustre.on_destroy if storage.lustre else "retain"),
            )
            if policy == "delete"
        ]
        if self.environment == "production" and deleted:
            raise ValueError(f"{deleted[0]} is 'delete', but production keeps its data; use 'retain'")
        if self.keeps_lustre and storage.buckets_on_destroy == "delete":
            raise ValueError(
                "storage.buckets_on_destroy is 'delete' and storage.lustre.on_destroy is 'retain': the file system "
                "would lose the buckets that it is linked to; delete both, or keep both"
            )
        return self

    @property
    def keeps_lustre(self) -> bool:
        """Whether the file system outlives the deployment."""
        return self.storage.lustre is not None and self.storage.lustre.on_destroy == "retain"

    @property
    def pcs(self) -> Pcs | None:
        """The Slurm cluster that this deployment makes."""
        return self.slurm.pcs if self.slurm is not None else None

    @property
    def queues(self) -> tuple[Nodegroup, ...]:
        """Queues of that cluster."""
        return self.pcs.queues if self.pcs is not None else ()

    @property
    def production(self) -> bool:
        """Whether this deployment must not lose data."""
        return self.environment == "production"

    @property
    def cluster_name(self) -> str:
        """The EKS cluster's name."""
        return self.existing_cluster.name if self.existing_cluster else self.name


def is_pinned(image: str) -> bool:
    """Whether an image is named by digest, so that it is the same one tomorrow."""
    return "@sha256:" in image


def unpinned(image: str) -> str:
    """Error message about an image that is named by a tag."""
    return f"'{image}' is a tag, which can move; production names images by digest (…@sha256:…)"


def load_configuration(path: Path) -> Configuration:
    """The configuration in a YAML file.

    Raises:
        ConfigurationError: If the file does not contain a configuration that can be deployed.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error.strerror}); make it from config/example.yaml of Trainflow's checkout."
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} must be a mapping of fields such as 'version', 'name' and 'region'.")
    try:
        return Configuration.model_validate(document)
    except ValidationError as invalid:
        raise ConfigurationError(
            f"{path}: {' '.join(sentences(invalid, model=Configuration, whole='configuration', in_words=IN_WORDS))}"
        ) from None


def scheduled_spec(configuration: Configuration, schedule: Schedule, *, repository: Path) -> RunSpec:
    """The run spec of a schedule: it is checked now, so that a fault does not appear only when the schedule fires.

    Raises:
        ConfigurationError: If the spec cannot be run by this deployment.
    """
    where = f"schedules.{schedule.name}: {schedule.spec}"
    try:
        spec = spec_from_document(
            decode((repository / schedule.spec).read_bytes(), is_json=schedule.spec.endswith(".json"))
        )
    except OSError as error:
        raise ConfigurationError(f"{where} cannot be read ({error.strerror}).") from None
    except InvalidRunSpec as error:
        raise ConfigurationError(f"{where} is not a run spec: {' '.join(str(error).split())}") from None
    group = _group(configuration, spec, where)
    if group is not None and spec.compute.num_nodes > group.max_nodes:
        raise ConfigurationError(
            f"{where} asks for {spec.compute.num_nodes} nodes, but max_nodes of {group.instance_type} is "
            f"{group.max_nodes}; raise it or ask for fewer."
        )
    image = spec.workload.image
    if configuration.production and image is not None and not is_pinned(image):
        raise ConfigurationError(f"{where}: workload.image: {unpinned(image)}.")
    return spec


def _group(configuration: Configuration, spec: RunSpec, where: str) -> Nodegroup | None:
    """The nodes that a spec asks for; None where an existing cluster has them."""
    groups, field, remedy = configuration.capacity.nodegroups, "capacity.nodegroups", "a node group"
    if spec.compute.backend_description.needs_slurm:
        if configuration.slurm is None:
            raise ConfigurationError(f"{where} asks for Slurm; add the section slurm, or choose another backend.")
        if configuration.slurm.pcs is None:
            return None
        groups, field, remedy = configuration.queues, "slurm.pcs.queues", "a queue"
    elif configuration.capacity.cluster:
        return None
    known = {group.instance_type: group for group in groups}
    for name in spec.compute.types:
        if name not in known:
            raise ConfigurationError(f"{where} asks for {name}, of which {field} has none; add {remedy}.")
    return known[spec.compute.instance_type]


def _network(cidr: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(cidr)
    except ValueError:
        raise ValueError(f"'{cidr}' is not an IPv4 network such as 203.0.113.0/24") from None
