"""The twin as a whole: both clouds, started and stopped together.

AWS runs in this process, Lambda handlers in forked workers, the Kubernetes API and the nodes in processes of their
own. Every one of them ends when this process does, however it ends: they watch their standard input.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import yaml

from local.aws import deployment, folder_buckets
from local.aws.deployment import CLUSTER_NAME, NAMESPACE, Deployment
from local.aws.lambda_runtime import LambdaRuntime
from local.aws.server import AwsServer
from local.cluster.node.api import KubernetesApi
from local.cluster.node.kubeconfig import load_connection
from local.nodegroups import Nodegroups, NodeSettings
from local.shared_storage import grant, offer

REPOSITORY = Path(__file__).parents[1]


class TwinError(Exception):
    """The twin could not be started; the message is one sentence for the person who asked for it."""


@contextmanager
def _garbage_left() -> Iterator[None]:
    """Collect no garbage while moto is loaded: its objects stay, and looking through them took over a second."""
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
    ) -> None:
        """Prepare, without starting anything.

        Args:
            home: What outlasts a run: `s3/<bucket>/<key>`, and the shared file system in `volumes/`.
            log_dir: Where the twin's own parts write what they have to say.
            time_scale: Waits of the state machines take `1 / time_scale` of their time.
            kubeconfig: A cluster to use instead of the twin's own API server.
            image_root: The folder that stands for every container image's working directory.
            deployed: Whether everything is there that `cdk deploy` makes; if not, the account has a cluster and is
                ready for the real one.
        """
        self.home, self.log_dir, self.image_root = home.resolve(), log_dir.resolve(), image_root.resolve()
        self.namespace = NAMESPACE
        self.aws = AwsServer(time_scale=time_scale)
        self._foreign_kubeconfig = kubeconfig
        self._temporary = tempfile.TemporaryDirectory(prefix="trainflow-")
        self.kubeconfig = kubeconfig or Path(self._temporary.name) / "kubeconfig"
        self._deployed = deployed
        self._lambdas = LambdaRuntime(
            self._lambda_environment(), log_dir=self.log_dir / "lambda", credentials=self.aws.credentials_of
        )
        self._cluster: subprocess.Popen[bytes] | None = None
        self._nodegroups: Nodegroups | None = None
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

    def stop(self) -> None:
        """End everything that was started."""
        self.aws.start_nothing()
        if self._nodegroups is not None:
            self._nodegroups.stop()
        if self.deployment is not None:
            folder_buckets.save(self.aws, deployment.ARTIFACT_BUCKET, self.home / "s3")
            self.deployment = None
        self._lambdas.stop()
        if self._cluster is not None and self._cluster.stdin and self._cluster.stdout:
            self._cluster.stdin.close()
            self._cluster.wait(15)
            self._cluster.stdout.close()
            self._cluster = None
        self.aws.stop()
        self._temporary.cleanup()

    def _start(self) -> None:
        for folder in (self.home / "s3", self.log_dir):
            folder.mkdir(parents=True, exist_ok=True)
        # The slow imports run side by side: workers' libraries, the API server's, moto's.
        self._cluster = self._start_cluster()
        self._lambdas.start()
        if not self._deployed:
            self.aws.take_stacks()
        self.aws.start()
        folder_buckets.load(self.aws, self.home / "s3")
        deployment.make_cluster(self.aws)
        if self._deployed:
            self.deployment = deployment.deploy(self.aws)
        endpoint, ca_data = self._await_cluster()
        deployment.set_endpoint(kubernetes_endpoint=endpoint, ca_data=ca_data)
        self._prepare_cluster()
        self._nodegroups = Nodegroups(deployment.desired_sizes, self._node_settings())
        self._nodegroups.start()
        self._lambdas.wait_ready()

    def _prepare_cluster(self) -> None:
        api = KubernetesApi(load_connection(self.kubeconfig))
        offer(api, self.home / "volumes", namespace=NAMESPACE)
        if self._foreign_kubeconfig is None:  # whoever comes through the door has the kubeconfig's rights
            grant(api, namespace=NAMESPACE)

    def _start_cluster(self) -> subprocess.Popen[bytes]:
        """The Kubernetes API that the Lambdas will find through EKS: our own, or a door to somebody's."""
        serve = (
            ("gateway", "--kubeconfig", str(self._foreign_kubeconfig))
            if self._foreign_kubeconfig
            else ("--nodes", "0", "--kubeconfig", str(self.kubeconfig))
        )
        with (self.log_dir / "cluster.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "local.cluster", *serve, "--until-stdin-closes"),
                    *("--sts-endpoint", self.aws.endpoint, "--cluster-name", CLUSTER_NAME),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
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
            pods_dir=Path(self._temporary.name) / "pods",
            log_file=self.log_dir / "nodes.log",
            image_root=self.image_root,
            environment={
                **self.aws.client_environment,
                # Pods share the machine's loopback interface.
                "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
            },
        )

    def _lambda_environment(self) -> dict[str, str]:
        return {
            **self.aws.client_environment,
            "PATH": "/usr/bin:/bin",
            "TMPDIR": self._temporary.name,
            "POWERTOOLS_TRACE_DISABLED": "true",  # there is no X-Ray daemon here
            "TZ": "UTC",
        }
