"""Measures the cost of watching a job by its number of nodes: the same functions, in clusters of 2, 16, 128 and 1,024.

Each size has a cluster of its own: an API server over HTTPS, and nodes that register with it and run pods as no-ops
(`kubetwin.node.no_op`). The functions run as the twin's Lambdas. They are invoked in turn over all sizes, so
that other load of the machine affects all of them; times are medians, from the call to the answer. Requests are
counted by the API servers.

It is compared with how the tutorial finds rank 0, `find_rank0_pod.sh`: list the pods, read the log of each, and
search it. Here that is done by one process that keeps its connection, where the script starts `kubectl` for every pod.
"""

from __future__ import annotations

import json
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from kubetwin.node.shape import write_shape

from benchmarks.kubetwin_process import kubetwin_process, next_line
from benchmarks.result import BenchmarkFailed, Result, this_machine
from local.aws import deployment
from local.aws.lambda_runtime import FunctionConfiguration, LambdaRuntime
from local.aws.server import AwsServer
from local.node_shapes import instance_shape, instance_type_named
from local.shared_storage import grant, offer
from trainflow.deployment.functions import TASKS
from trainflow.deployment.kubernetes_access import Access
from trainflow.nodes.instances import nodegroup_name
from trainflow.protocol.metrics_line import metrics_line
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run import JobRef, MetricsCursor, Run

SPEC = Path(__file__).parent.parent / "runs" / "bert-large.yaml"
SIZES = (2, 16, 128, 1024)
ROUNDS = 100
SCANS = 5
CATCH_UP_MIB = 300
"""Growth of a log of 10 MiB per second in 30 seconds, the pause between two polls of a run of 15 days."""
NAMESPACE = deployment.NAMESPACE
START_SECONDS = 600.0
"""Time limit for the largest gang to start."""

LAST_STEP = 1_000_000

WATCHING = ("PollJob", "LocateRank0", "PublishMetrics")
FUNCTIONS = {function.name: function for function in TASKS}
REQUESTS = re.compile(r'^apiserver_request_total\{.*resource="(\w+)",subresource="(\w*)",verb="(\w+)"\} (\d+)$', re.M)
RANK_0 = b"rank 0"
"""Text that the script searches for."""


def run() -> Result:
    """Measures all sizes.

    Raises:
        BenchmarkFailed: If a cluster or a function fails.
    """
    with measuring(SIZES) as gangs:
        seconds = _times(gangs)
        scan = statistics.median(_timed(gangs[128].scan_logs) for _ in range(SCANS))
        calls = {size: gang.calls() for size, gang in gangs.items()}
        payloads = {size: gang.payload_bytes for size, gang in gangs.items()}
        gangs[2].write_log(CATCH_UP_MIB)
        started = time.perf_counter()
        polls = gangs[2].catch_up()
        catch_up = time.perf_counter() - started
    return Result(
        benchmark="scale",
        ratios={
            "poll_1024_over_16": round(seconds["PollJob"][1024] / seconds["PollJob"][16], 2),
            "rank0_1024_over_16": round(seconds["LocateRank0"][1024] / seconds["LocateRank0"][16], 2),
            "publish_1024_over_16": round(seconds["PublishMetrics"][1024] / seconds["PublishMetrics"][16], 2),
            "rank0_vs_log_scan_128": round(scan / seconds["LocateRank0"][128], 1),
            "log_rate_over_10_mib_per_second": round(CATCH_UP_MIB / catch_up / 10, 2),
        },
        seconds={
            **{
                name: {str(size): round(value, 5) for size, value in by_size.items()}
                for name, by_size in seconds.items()
            },
            "log_scan": {"128": round(scan, 4)},
            "catch_up": round(catch_up, 2),
        },
        machine=this_machine(),
        details={
            "requests": {str(size): requests for size, requests in calls.items()},
            "payload_bytes": {str(size): length for size, length in payloads.items()},
            "rounds": ROUNDS,
            "catch_up_mib": CATCH_UP_MIB,
            "catch_up_polls": polls,
            "publish_metrics_memory_mib": FUNCTIONS["PublishMetrics"].memory_mib,
        },
    )


def _times(gangs: Mapping[int, Gang]) -> dict[str, dict[int, float]]:
    """Medians by function and size."""
    times: dict[str, dict[int, list[float]]] = {name: {size: [] for size in gangs} for name in WATCHING}
    for _ in range(ROUNDS):
        for name in WATCHING:
            for size, gang in gangs.items():
                times[name][size].append(_timed(lambda gang=gang, name=name: gang.poll(name)))  # type: ignore[misc]
    return {name: {size: statistics.median(found) for size, found in sizes.items()} for name, sizes in times.items()}


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@dataclass
class Gang:
    """A training job that runs on all nodes of a cluster of its own."""

    cluster_name: str
    kubeconfig: Path
    runtime: LambdaRuntime
    log: Path
    pods_dir: Path
    run: Run
    environment: Mapping[str, str]
    """Environment of every function: the endpoint of its AWS, and the credentials of a role that the cluster knows."""
    job: JobRef = field(init=False)
    rank0: str = field(init=False)
    cursor: MetricsCursor = field(default_factory=MetricsCursor)

    def start(self) -> None:
        """Submit the job and wait until every pod runs.

        Raises:
            BenchmarkFailed: If they do not run in time.
        """
        submitted_at = datetime.now(UTC).isoformat()
        asked = {
            "run": self._run_document,
            "stage": "training",
            "attempt": 1,
            "cache": None,
            "submitted_at": submitted_at,
        }
        self.job = JobRef.model_validate(self._invoke("SubmitJob", asked)["job"])
        api = ApiClient(load_connection(self.kubeconfig))
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{self.job.name}"
        deadline = time.monotonic() + START_SECONDS
        while (api.get(path).get("status") or {}).get("ready") != self.job.num_nodes:
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"{self.job.num_nodes} pods did not run after {START_SECONDS:g} s.")
            time.sleep(0.5)
        api.close()
        self.rank0 = self.poll("LocateRank0")["pod"]
        self.cursor = MetricsCursor.model_validate(self.poll("PublishMetrics")["cursor"])
        for name in WATCHING:
            self.poll(name)

    def poll(self, name: str) -> Any:
        """Invoke a function that polls the job once, as the state machine does."""
        return self._invoke(name, {**self._state, "cursor": self._state["progress"]})

    @property
    def payload_bytes(self) -> int:
        """State that the state machine passes from poll to poll."""
        return len(json.dumps(self._state))

    def calls(self) -> dict[str, dict[str, int]]:
        """Requests that one invocation of each function makes, by resource and verb, as the server counts them."""
        counted = {}
        for name in WATCHING:
            before = self._requests()
            self.poll(name)
            after = self._requests()
            counted[name] = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
        return counted

    def scan_logs(self) -> str:
        """Find rank 0 in the tutorial's way.

        Raises:
            BenchmarkFailed: If it does not find rank 0.
        """
        found = [pod for pod in self._pod_names() if RANK_0 in self._raw(f"{self._pods}/{pod}/log")]
        if self.rank0 not in found:
            raise BenchmarkFailed(f"No pod of {self.cluster_name} says that it is rank 0.")
        return found[0]

    def write_log(self, mib: int) -> None:
        """Append so many lines to rank 0's log, of a hundred bytes, ten microseconds apart; the last one is a step."""
        pod = json.loads(self._raw(f"{self._pods}/{self.rank0}"))
        path = self.pods_dir / pod["metadata"]["uid"] / f"{pod['spec']['containers'][0]['name']}.log"
        text, start = "x" * 68, time.time_ns()
        with path.open("a") as file:
            for number in range(mib * 1024 * 1024 // 100):
                second, nanosecond = divmod(start + number * 10_000, 1_000_000_000)
                file.write(f"{_stamp(second)}.{nanosecond:09d}Z {text}\n")
            file.write(f"{_stamp(second + 1)}.000000000Z {_metrics_line(LAST_STEP)}\n")

    def catch_up(self) -> int:
        """Poll until all of the log has been read, and return the number of polls.

        Raises:
            BenchmarkFailed: If the polls do not reach the last step.
        """
        polls, caught_up = 0, False
        while not caught_up:
            answer = self.poll("PublishMetrics")
            self.cursor, caught_up = MetricsCursor.model_validate(answer["cursor"]), answer["caught_up"]
            polls += 1
        if self.cursor.last_step != LAST_STEP:
            raise BenchmarkFailed(f"The end of a log of {CATCH_UP_MIB} MiB was not found: {self.cursor}")
        return polls

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{NAMESPACE}/pods"

    def _pod_names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in json.loads(self._raw(self._pods))["items"]]

    def _requests(self) -> dict[str, int]:
        """Requests so far, without those of the kubelets and of this benchmark."""
        text = self._raw("/metrics").decode()
        return {
            f"{verb} {resource}{f'/{sub}' if sub else ''}": int(total)
            for resource, sub, verb, total in REQUESTS.findall(text)
            if resource != "leases"
        }

    def _raw(self, path: str) -> bytes:
        connection, pool = self._connection
        answer = pool.request("GET", connection.server + path, headers={"Authorization": connection.authorization()})
        return bytes(answer.data)

    @property
    def _connection(self) -> tuple[Any, urllib3.PoolManager]:
        if not hasattr(self, "_kept"):
            connection = load_connection(self.kubeconfig)
            self._kept = connection, urllib3.PoolManager(ssl_context=connection.tls)
        return self._kept

    @property
    def _run_document(self) -> dict[str, Any]:
        return self.run.model_dump(mode="json")

    @property
    def _state(self) -> dict[str, Any]:
        return {
            "run": self._run_document,
            "job": self.job.model_dump(mode="json"),
            "rank0": getattr(self, "rank0", None),
            "phase": "running",
            "progress": self.cursor.model_dump(mode="json"),
        }

    def _invoke(self, name: str, event: Any) -> Any:
        function = FUNCTIONS[name]
        known = {
            "CLUSTER_NAME": self.cluster_name,
            "NAMESPACE": NAMESPACE,
            "ARTIFACT_BUCKET": deployment.ARTIFACT_BUCKET,
            "DEPLOYMENT": deployment.DEPLOYMENT_NAME,
        }
        configuration = FunctionConfiguration(
            name=name,
            arn=f"arn:aws:lambda:::function:{name}",
            handler=function.handler,
            environment={
                **self.environment,
                **{variable: known.get(variable, "") for variable in function.environment},
                "AWS_LAMBDA_FUNCTION_NAME": name,
            },
            timeout_seconds=function.timeout_seconds,
            memory_mib=function.memory_mib,
            log=str(self.log),
        )
        answer, failed = self.runtime.invoke(configuration, event)
        if failed:
            raise BenchmarkFailed(f"{name} failed on {self.cluster_name}: {answer}")
        return json.loads(answer)


@contextmanager
def measuring(sizes: Sequence[int]) -> Iterator[dict[int, Gang]]:
    """A gang of each size, running."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainflow-scale-")))
        aws = AwsServer(time_scale=1)
        aws.start()
        stack.callback(aws.stop)
        deployment.create_bucket(aws, deployment.ARTIFACT_BUCKET)
        runtime = LambdaRuntime(function_environment(aws), log_dir=folder / "log")
        runtime.start()
        stack.callback(runtime.stop)
        runtime.wait_ready()
        gangs = {size: stack.enter_context(_gang(size, aws, runtime, folder)) for size in sizes}
        for gang in gangs.values():
            gang.start()
        yield gangs


@contextmanager
def _gang(size: int, aws: AwsServer, runtime: LambdaRuntime, folder: Path) -> Iterator[Gang]:
    name = f"scale-{size}"
    credentials = _make_cluster(aws, name)
    kubeconfig, log = folder / f"{name}.kubeconfig", folder / "log" / f"{name}.log"
    serve = ("--nodes", "0", "--kubeconfig", str(kubeconfig), "--sts-endpoint", aws.endpoint, "--cluster-name", name)
    access_key = ":".join(aws.owner_credentials.values())
    with kubetwin_process(log, *serve, environment={"KUBETWIN_AWS_ACCESS_KEY": access_key}) as server:
        endpoint = json.loads(next_line(server, log))["endpoint"]
        authority = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["certificate-authority-data"]
        deployment.set_endpoint(kubernetes_endpoint=endpoint, ca_data=authority, cluster_name=name)
        run = _make_run(size)
        api = ApiClient(load_connection(kubeconfig))
        offer(api, folder / name, namespace=NAMESPACE)
        grant(api, namespace=NAMESPACE)
        api.close()
        names = [text for index in range(size) for text in ("--name", f"node-{index}")]
        pods_dir = folder / f"{name}.pods"
        instance = run.spec.compute.instance_type
        shape = folder / f"{name}.shape.json"
        write_shape(shape, instance_shape(instance_type_named(instance), nodegroup=nodegroup_name(instance)))
        no_op = ("node", "--kubeconfig", str(kubeconfig), "--no-op", "86400", "--pods-dir", str(pods_dir), *names)
        with kubetwin_process(log, *no_op, "--no-op-log", "local.no_op_logs:log_lines", "--shape", str(shape)) as nodes:
            next_line(nodes, log)
            yield Gang(name, kubeconfig, runtime, log, pods_dir, run, {**function_environment(aws), **credentials})


def function_environment(aws: AwsServer) -> dict[str, str]:
    """Environment of every function besides its own variables."""
    return {**aws.client_environment, "PATH": "/usr/bin:/bin", "POWERTOOLS_TRACE_DISABLED": "true"}


def _make_cluster(aws: AwsServer, name: str) -> dict[str, str]:
    """An EKS cluster, and credentials of a role that may submit and watch jobs in it."""
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    role_arn = aws.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=policy)["Role"]["Arn"]
    everything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    aws.client("iam").put_role_policy(RoleName=name, PolicyName="everything", PolicyDocument=json.dumps(everything))
    eks = aws.client("eks")
    eks.create_cluster(name=name, roleArn=role_arn, resourcesVpcConfig={"subnetIds": ["subnet-0", "subnet-1"]})
    eks.create_access_entry(
        clusterName=name, principalArn=role_arn, kubernetesGroups=[Access.SUBMIT.value, Access.WATCH.value]
    )
    return aws.credentials_of(role_arn, name)


@lru_cache(maxsize=2)
def _stamp(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _metrics_line(step: int) -> str:
    return metrics_line(
        {"epoch": 0, "step": step, "loss": 1.0, "learning_rate": 1e-4, "sequences_per_second": 100.0},
        logged_at=datetime.now(UTC),
    )


def _make_run(size: int) -> Run:
    spec = yaml.safe_load(SPEC.read_text())
    del spec["compute"]["queue"]
    spec["compute"] |= {"backend": "job", "num_nodes": size}
    return Run(
        run_id="bert-large-0123456789ab",
        execution_arn=f"arn:aws:states:us-west-2:123456789012:execution:trainflow-training:bert-large-{size}",
        started_at=datetime.now(UTC),
        spec=parse_run_spec(spec),
    )
