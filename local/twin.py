"""The twin as a whole: both clouds, started and stopped together.

AWS runs in this process, Lambda handlers in forked workers, the Kubernetes API and the nodes in processes of their
own. Every one of them ends when this process does, however it ends: they watch their standard input.
"""

from __future__ import annotations

import base64
import functools
import gc
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import yaml
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from kubetwin.node.isolation import machine_can_isolate, missing_network
from kubetwin.node.pod_network import PodNetwork

from local import runtime_folder
from local.autoscaler import Autoscaler
from local.aws import capacity, deployment, folder_buckets, folder_secrets, kept_tables, mailbox
from local.aws.deployment import CLUSTER_NAME, NAMESPACE, Deployment
from local.aws.faults import FaultPlan, RequestPlan, no_faults, no_throttling
from local.aws.lambda_runtime import LambdaRuntime
from local.aws.server import AwsServer
from local.aws.services import LAMBDA, PODS
from local.granted_buckets import GrantedBuckets, granted_buckets
from local.known_images import known_images
from local.node_shapes import SMALL_JOBS_NODEGROUP
from local.node_times import NodeTimes, node_times
from local.node_utilization import NodeUtilization
from local.nodegroups import Nodegroups, NodeSettings
from local.shared_storage import announce_network_plugin, announce_plugins, grant, offer, open_queue
from local.slurm.cluster import SlurmCluster
from local.slurm.configuration import SlurmSettings
from trainflow.client.messages import MESSAGES
from trainflow.client.private_folder import make_private
from trainflow.client.twin_address import TwinAddress
from trainflow.protocol.pods import SERVICE_ACCOUNT

REPOSITORY = Path(__file__).parents[1]

CALLS = "permissions.jsonl"
"""Name of the log of every permission that functions, pods, state machines, rules and schedules have needed."""

CACHES = "caches.json"
"""Name of a file below the home that records which compile caches of its file system are ready."""


class TwinError(Exception):
    """The twin could not be started; the message is one sentence for the user."""


@contextmanager
def _garbage_left() -> Iterator[None]:
    """Collect no garbage while moto is loaded: its objects stay, and searching them took over a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Twin:
    """Both clouds on this machine. Use as a context manager."""

    def __init__(
        self,
        *,
        home: Path,
        log_dir: Path,
        time_scale: float,
        kubeconfig: Path | None = None,
        image_root: Path = REPOSITORY,
        deployed: bool = True,
        no_op_seconds: float | None = None,
        slurm: SlurmSettings | None = None,
        without_capacity: Collection[str] = (),
        autoscaled: Mapping[str, int] | None = None,
        walls: bool | None = None,
        hidden: Collection[Path] = (),
        faults: FaultPlan = no_faults,
        throttled: RequestPlan = no_throttling,
    ) -> None:
        """Prepare, without starting anything.

        Args:
            home: Folder of what outlasts a run: `s3/<bucket>/<key>`, the shared file system in `volumes/`, and which
                compile caches in it are ready.
            log_dir: Folder for the logs of the twin's own parts.
            time_scale: Waits of the state machines take `1 / time_scale` of their time.
            kubeconfig: A cluster to use instead of the twin's own API server.
            image_root: The folder that stands for the workload's image: the working directory of its containers. The
                tools image is this repository.
            deployed: Whether the resources of `cdk deploy` exist; if not, the account has a cluster and is ready for
                the deployment.
            no_op_seconds: Pods run no programs: each prints its identity and succeeds after so many seconds
                (`no_op.py`).
            slurm: A Slurm cluster to start as well; None for a deployment without one.
            without_capacity: Instance types that EC2 cannot start: their node groups get no nodes, and Auto Scaling
                reports why.
            autoscaled: None for node groups. Otherwise the cluster makes nodes for pending pods, at most so many of
                these types: the deployment's `capacity.cluster`.
            walls: Whether pods run as their user, with their own root file system and mounts. None: where the machine
                allows it.
            hidden: Files and folders that pods behind walls do not see, beside the home, the logs and what the twin has
                while it runs.
            faults: Invocations of functions that fail.
            throttled: Requests to S3 and DynamoDB that are throttled.
        """
        self.home, self.log_dir, self.image_root = home.resolve(), log_dir.resolve(), image_root.resolve()
        self.namespace = NAMESPACE
        self.aws = AwsServer(time_scale=time_scale, keep_settings=kubeconfig is not None, throttled=throttled)
        self._foreign_kubeconfig = kubeconfig
        self._temporary = runtime_folder.create("trainflow-")
        self._runtime = Path(self._temporary.name)
        self.kubeconfig = kubeconfig or self._runtime / "kubeconfig"
        # Paths for programs in pods, in place of folders with a space in their path.
        self._volumes, self._programs, self._repository = self.home / "volumes", self.image_root, REPOSITORY
        self._python = Path(sys.executable)
        self._known_images: Sequence[str] = ()
        self._without_capacity = frozenset(without_capacity)
        # Its own runtime folder, and those of other twins beside it.
        self._hidden = (self.home, self.log_dir, self._runtime, self._runtime.parent, *hidden)
        self._deployed, self._no_op_seconds, self._walls = deployed, no_op_seconds, walls
        # Nodes without programs have few heartbeats, as there may be a thousand; a cluster of one's own has its times.
        scaled = no_op_seconds is None and kubeconfig is None
        self._node_times = node_times(time_scale) if scaled else NodeTimes()
        self.slurm = SlurmCluster(slurm, log_dir=self.log_dir / "slurm") if slurm else None
        self._lambdas = LambdaRuntime(
            self._lambda_environment(),
            log_dir=self.log_dir / "lambda",
            credentials=functools.partial(self.aws.credentials_of, service=LAMBDA),
            faults=faults,
        )
        self._cluster: subprocess.Popen[bytes] | None = None
        self._nodegroups: Nodegroups | None = None
        self._autoscaled = autoscaled
        self.autoscaler: Autoscaler | None = None
        self._network: PodNetwork | None = None
        self._utilization: NodeUtilization | None = None
        self.deployment: Deployment | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything.

        Raises:
            TwinError: If a part could not be started; nothing runs then.
            SlurmError: If Slurm is configured and could not be started; nothing runs then.
        """
        try:
            with _garbage_left():
                self._start()
        except BaseException:
            self.stop()
            raise

    def client(self, service: str) -> Any:
        """A boto3 client of the twin's AWS."""
        return self.aws.client(service)

    def address(self, *, started_at: datetime) -> TwinAddress:
        """The address for other processes of this machine.

        Args:
            started_at: Start of the run that it is looked up for.
        """
        assert self.deployment is not None, "the twin runs, with everything deployed"  # noqa: S101
        environment = self.aws.client_environment
        return TwinAddress(
            endpoint=self.aws.endpoint,
            region=environment["AWS_REGION"],
            access_key_id=environment["AWS_ACCESS_KEY_ID"],
            secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
            credentials=str(self._runtime / "owner.json"),
            kubeconfig=str(self.kubeconfig.absolute()),
            started_at=started_at.isoformat(),
            deployment=self.deployment.address.model_dump(),
        )

    def stop(self) -> None:
        """End everything that was started, also where something of it fails.

        Raises:
            OSError: If something could not be written, such as on a full disk.
        """
        with ExitStack() as last:  # the last one is called first
            last.callback(self._temporary.cleanup)
            last.callback(self.aws.stop)
            last.callback(self._stop_cluster)
            if self.slurm is not None:
                last.callback(self.slurm.stop)
            if self.log_dir.is_dir():
                last.callback(self.aws.guard.write, self.log_dir / CALLS)
            last.callback(self._lambdas.stop)
            last.callback(self._save)
            if self._network is not None:
                last.callback(self._network.close)
            if self._nodegroups is not None:
                last.callback(self._nodegroups.stop)
            if self.autoscaler is not None:
                last.callback(self.autoscaler.stop)
            if self._utilization is not None:
                last.callback(self._utilization.stop)
            last.callback(self.aws.start_nothing)

    def _save(self) -> None:
        """Write what later twins of this folder find."""
        if self.deployment is None:
            return
        self.deployment = None
        folder_buckets.save(self.aws, deployment.ARTIFACT_BUCKET, self.home / "s3")
        kept_tables.save(self.aws, deployment.CACHE_TABLE, self.home / CACHES)

    @property
    def is_isolated(self) -> bool:
        """Whether pods run as their user, with their own root file system and mounts."""
        if self._no_op_seconds is not None:
            return False
        return machine_can_isolate() if self._walls is None else self._walls

    @property
    def missing_network(self) -> str | None:
        """The reason why pods have the machine's network; None if they have one that other users and other machines do
        not reach, or if no programs run in them."""
        if self._no_op_seconds is not None:
            return None
        return missing_network() if self.is_isolated else "the pods have no walls"

    def _stop_cluster(self) -> None:
        if self._cluster is not None and self._cluster.stdin and self._cluster.stdout:
            self._cluster.stdin.close()
            self._cluster.wait(15)
            self._cluster.stdout.close()
            self._cluster = None

    def _start(self) -> None:
        if self._walls and not machine_can_isolate():
            raise TwinError("--walls: this machine gives its users no namespaces; leave the option out.")
        for folder in (self.home / "s3", self._volumes, self.log_dir):
            make_private(folder)
        self._volumes = runtime_folder.plain_path(self._volumes, link=self._runtime / "shared")
        self._programs = runtime_folder.plain_path(self.image_root, link=self._runtime / "image")
        self._repository = runtime_folder.plain_path(REPOSITORY, link=self._runtime / "repository")
        self._python = runtime_folder.plain_python(link=self._runtime / "environment")
        try:
            self._known_images = known_images(self.home)
        except ValueError as empty:
            raise TwinError(str(empty)) from None
        if self.slurm is not None:
            self.slurm.start()
        # The slow imports run side by side: workers' libraries, the API server's, moto's.
        self._cluster = self._start_cluster()
        self._lambdas.start()
        if not self._deployed:
            self.aws.take_stacks()
        self.aws.start()
        buckets = folder_buckets.load(self.aws, self.home / "s3", private=deployment.BUCKETS)
        secrets = folder_secrets.load(self.aws, self.home / "secrets")
        deployment.make_cluster(self.aws)
        capacity.serve(self._without_capacity)
        mailbox.serve(self.log_dir / MESSAGES.name)
        if self._deployed:
            self.deployment = deployment.deploy(
                self.aws,
                slurm=self._slurm_settings if self.slurm else None,
                granted_buckets=self._granted_buckets(buckets),
                granted_secrets=secrets,
                cluster_makes_nodes=self._autoscaled is not None,
            )
            kept_tables.load(self.aws, deployment.CACHE_TABLE, self.home / CACHES)
        endpoint, ca_data = self._await_cluster()
        deployment.set_endpoint(kubernetes_endpoint=endpoint, ca_data=ca_data)
        self._prepare_cluster()
        if self.is_isolated and self.missing_network is None:
            self._network = PodNetwork()
        if self._autoscaled is not None:
            api = ApiClient(load_connection(self.kubeconfig))
            self.autoscaler = Autoscaler(api, limits=self._autoscaled, maximum=deployment.MAX_NODES)
            self.autoscaler.start()
        self._nodegroups = Nodegroups(self._started_sizes, self._node_settings())
        self._nodegroups.start()
        if self._no_op_seconds is None and self._foreign_kubeconfig is None:
            self._utilization = self._publish_utilization(self._nodegroups)
        self._lambdas.wait_ready()

    def _granted_buckets(self, buckets: Collection[str]) -> GrantedBuckets:
        try:
            return granted_buckets(self.home, buckets, own=deployment.BUCKETS)
        except ValueError as mistaken:
            raise TwinError(str(mistaken)) from None

    def _publish_utilization(self, nodegroups: Nodegroups) -> NodeUtilization:
        api = ApiClient(load_connection(self.kubeconfig))

        def nodes() -> dict[str, str]:
            pods = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
            return {
                pod["spec"].get("hostname") or pod["metadata"]["name"]: pod["spec"]["nodeName"]
                for pod in pods
                if pod["status"].get("phase") == "Running" and "nodeName" in pod["spec"]
            }

        published = NodeUtilization(
            cluster=CLUSTER_NAME,
            cloudwatch=lambda: self.client("cloudwatch"),
            roots=nodegroups.processes,
            nodes=nodes,
        )
        published.start()
        return published

    def _started_sizes(self) -> dict[str, tuple[str, int]]:
        """Sizes that the node groups reach: those that are desired, but for types without capacity; in a cluster that
        makes nodes for pods, those of its autoscaler."""
        if self.autoscaler is not None:
            permanent = deployment.desired_sizes()[SMALL_JOBS_NODEGROUP]
            return {**self.autoscaler.sizes(), SMALL_JOBS_NODEGROUP: permanent}
        return {
            name: (instance_type, 0 if instance_type in self._without_capacity else size)
            for name, (instance_type, size) in deployment.desired_sizes().items()
        }

    def _prepare_cluster(self) -> None:
        api = ApiClient(load_connection(self.kubeconfig))
        offer(api, self._volumes, namespace=NAMESPACE)
        announce_plugins(api, namespace=NAMESPACE)
        grant(api, namespace=NAMESPACE, holds_nodes=self._autoscaled is not None)
        if self._foreign_kubeconfig is None:  # one's own cluster may be without Volcano, and has its own network
            open_queue(api)
            announce_network_plugin(api, namespace=NAMESPACE)

    def _start_cluster(self) -> subprocess.Popen[bytes]:
        """Start the Kubernetes API that the Lambdas find through EKS: the twin's own, or a proxy to an existing
        cluster."""
        serve = (
            ("gateway", "--kubeconfig", str(self._foreign_kubeconfig))
            if self._foreign_kubeconfig
            else (
                *("--nodes", "0", "--kubeconfig", str(self.kubeconfig)),
                *("--node-grace-seconds", str(self._node_times.grace_seconds)),
                *("--default-toleration-seconds", str(self._node_times.toleration_seconds)),
            )
        )
        with (self.log_dir / "cluster.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "kubetwin", *serve, "--until-stdin-closes"),
                    *("--sts-endpoint", self.aws.endpoint, "--cluster-name", CLUSTER_NAME),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "KUBETWIN_AWS_ACCESS_KEY": ":".join(self.aws.owner_credentials.values())},
            )

    def _await_cluster(self) -> tuple[str, str]:
        assert self._cluster is not None and self._cluster.stdout is not None, "it was started"  # noqa: S101
        line = self._cluster.stdout.readline()
        if not line:
            reason = (self.log_dir / "cluster.log").read_text().strip().splitlines()[-1:] or ["it said nothing"]
            raise TwinError(f"The twin's Kubernetes API could not be started: {reason[0]}")
        ready = json.loads(line)
        if "ca_data" in ready:
            return ready["endpoint"], ready["ca_data"]
        cluster = yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]
        return ready["endpoint"], cluster["certificate-authority-data"]

    def _node_settings(self) -> NodeSettings:
        return NodeSettings(
            kubeconfig=self.kubeconfig,
            python=self._python,
            pods_dir=self._runtime / "pods",
            log_file=self.log_dir / "nodes.log",
            image_root=self._programs,
            image_roots={self.deployment.tools_image: self._repository} if self.deployment else {},
            environment=self._job_environment(),
            known_images=self._known_images,
            no_op_seconds=self._no_op_seconds,
            is_isolated=self.is_isolated,
            network=self._network.pid if self._network else None,
            hidden=self._hidden,
            heartbeat_seconds=self._node_times.heartbeat_seconds,
        )

    def _job_environment(self) -> dict[str, str]:
        """Environment that EKS's webhooks and a node's instance profile would give to pods: the endpoint of AWS, and
        settings for processes that share this machine."""
        return {
            **self.aws.client_environment,
            **(self._pod_credentials() if self._deployed else {}),
            "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
            # A rank by itself on its node has as many threads as there are cores, which all nodes share here. OpenMP's
            # spin while they wait: two ranks on two cores took four times the processor time, and five times as long.
            "OMP_WAIT_POLICY": "PASSIVE",
            "PYTHON_EXEC": str(self._python),  # what torchrun starts workers with, whatever started torchrun
        }

    def _pod_credentials(self) -> dict[str, str]:
        """Credentials that EKS Pod Identity gives to the runs' pods, with its session tags (EKS user guide, 'Grant Pods
        access to AWS resources based on tags')."""
        tags = {
            "eks-cluster-name": CLUSTER_NAME,
            "kubernetes-namespace": NAMESPACE,
            "kubernetes-service-account": SERVICE_ACCOUNT,
        }
        return self.aws.credentials_of(deployment.POD_ROLE, "pods", service=PODS, tags=tags)

    def _slurm_settings(self) -> dict[str, str]:
        """Variables of the functions for Slurm, with its key in Secrets Manager, as with AWS PCS."""
        if self.slurm is None:
            raise TwinError("This twin has no Slurm.")
        key = base64.b64encode(self.slurm.jwt_key).decode()
        return {
            "SLURM_API_URL": self.slurm.rest_url,
            "SLURM_KEY_SECRET": deployment.create_secret(self.aws, "trainflow-slurm-jwt", key),
            "SLURM_USER": self.slurm.user,
            "SLURM_SHARED_FOLDER": str(self._volumes),
            "SLURM_ENVIRONMENT": str(self._python.parent.parent),
            "SLURM_PROGRAM_FOLDER": str(self._programs),
            "SLURM_PROPERTIES": json.dumps(self._job_environment()),
        }

    def _lambda_environment(self) -> dict[str, str]:
        return {
            **self.aws.client_environment,
            "PATH": "/usr/bin:/bin",
            "TMPDIR": self._temporary.name,
            "POWERTOOLS_TRACE_DISABLED": "true",  # no X-Ray daemon runs here
            "TZ": "UTC",
        }
