"""The runs of one deployment, only through the APIs of AWS and Kubernetes: also those of the twin, which has both."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from pydantic import ValidationError

from trainflow.background import Worker
from trainflow.client.artifacts import Artifact, artifacts_below, first_bytes
from trainflow.client.code import PackedCode
from trainflow.client.continuing import spec_continuing
from trainflow.client.files import write_record, write_steps
from trainflow.client.functions import invoke
from trainflow.client.hints import place_words
from trainflow.client.kept_logs import copy_logs, kept_lines
from trainflow.client.messages import Message
from trainflow.client.observe.cluster import KubernetesPods, PodSource, UnseenPods
from trainflow.client.observe.executions import ExecutionTree
from trainflow.client.observe.glance import glance
from trainflow.client.observe.observer import RunObserver
from trainflow.client.observe.slurm import SlurmJobs
from trainflow.client.observe.utilization import Utilization, read_utilization
from trainflow.client.place import (
    FollowedRun,
    LogNotFound,
    LogRequest,
    PlaceRefused,
    PlaceUnavailable,
    RunExists,
    RunNotFound,
    RunSummary,
    new_run_id,
)
from trainflow.client.pod_logs import PodNotFound, chosen_pod, followed_lines, log_lines
from trainflow.client.refusals import told
from trainflow.client.spot_prices import SpotPrice, spot_prices
from trainflow.client.stored_logs import LATE, PodFilter, StoredLogs
from trainflow.client.sweeping import sweep
from trainflow.client.whole_files import write_text
from trainflow.deployment.address import DeploymentAddress, container_log
from trainflow.deployment.backends import KUBERNETES_KINDS, BackendName
from trainflow.errors import InvalidRunSpec, TrainflowError
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.faults import CommandNotRun
from trainflow.observed.run_state import RunState
from trainflow.observed.step import Step
from trainflow.record.build import build_record
from trainflow.record.cost import region_of
from trainflow.record.history import arn_of_execution
from trainflow.record.run_states import state_of_record
from trainflow.record.steps import FILE_NAME as STEPS_FILE
from trainflow.record.steps import KeptSteps, kept_steps_from_json
from trainflow.report import render_report
from trainflow.spec.limits import require_limits_ahead
from trainflow.spec.run_spec import RunSpec, stored_run_spec
from trainflow.workflow.leftovers import SweepReport
from trainflow.workflow.owner import UNKNOWN, Owner, OwnerKind, spec_of_input, valid_owner
from trainflow.workflow.planned_run import PlannedRun, RunRequest
from trainflow.workflow.run import Stage
from trainflow.workflow.run_record import RunError, RunRecord, RunStatus

STOP_SECONDS = 30.0
"""Longest wait for an execution to end, and again for the clean-up: as long as a slow call and its retry."""

CALLER_SECONDS = 10.0
"""Longest wait for the identity of the caller; without an answer the run starts without an owner."""

MAX_STORED_BYTES = 64 * 1024 * 1024
"""Most bytes of a record or report: an eighth of the memory of the function that writes it. Every program of a run may
write objects there."""

NUM_AT_ONCE = 8
"""Records that are read at the same time."""

POLL_SECONDS = 0.5
"""Time between two polls of an execution's history."""


class DeployedRuns:
    """A `Place` over a deployment's state machine, bucket and cluster."""

    def __init__(
        self,
        address: DeploymentAddress,
        *,
        client: Callable[[str], Any],
        kubernetes: Callable[[], KubernetesApi],
        poll_seconds: float = POLL_SECONDS,
        hint_words: tuple[str, ...] | None = None,
    ) -> None:
        """Makes no request yet.

        Args:
            address: Names of the deployment's resources.
            client: A boto3 client of a service.
            kubernetes: Connects to the cluster; called where a run has pods.
            poll_seconds: Time between two polls of an execution's history.
            hint_words: Options of a command that name the place; without them it is named by its deployment.
        """
        self.name = self._deployment = address.deployment
        self.hint_words: tuple[str, ...] = place_words(address.deployment) if hint_words is None else hint_words
        self._address = address
        self._client, self._stepfunctions = client, client("stepfunctions")
        self._state_machine_arn, self._bucket = address.state_machine_arn, address.artifact_bucket
        self._log_group = container_log(address.cluster, "application")
        self._kubernetes, self._namespace, self._poll_seconds = kubernetes, address.namespace, poll_seconds

    @told
    def start(self, spec: RunSpec, *, code: PackedCode | None = None, run_id: str | None = None) -> str:
        """See `Place`."""
        now = datetime.now(UTC)
        require_limits_ahead(spec, now=now, region=region_of(self._state_machine_arn))
        if code is not None:
            spec = code.named_in(spec, bucket=self._bucket)
            code.upload(self._client("s3"), bucket=self._bucket)
        name = run_id or new_run_id(spec, now)
        given = json.dumps(self._caller().added_to(spec.model_dump(mode="json")), ensure_ascii=False)
        try:
            self._stepfunctions.start_execution(stateMachineArn=self._state_machine_arn, name=name, input=given)
        except self._stepfunctions.exceptions.ExecutionAlreadyExists:
            raise RunExists(f"There is a run {name} already, in the deployment '{self._deployment}'.") from None
        return name

    def _caller(self) -> Owner:
        """The identity of the credentials. Nobody may be refused the answer, but a network may lack a way to STS: that
        must not keep a run from its start."""
        sts, answers = self._client("sts"), SimpleQueue[Owner]()

        def ask() -> None:
            answers.put(valid_owner(OwnerKind.CALLER, sts.get_caller_identity()["Arn"]))

        Worker(ask, name="caller", on_error=lambda _: answers.put(UNKNOWN)).start()
        try:
            return answers.get(timeout=CALLER_SECONDS)
        except Empty:
            return UNKNOWN

    @told
    def resume(self, run_id: str, *, changes: Mapping[str, Any] | None = None, from_step: int | None = None) -> str:
        """See `Place`. The new run's preflight, which sees the file system, checks the checkpoints."""
        return self.start(self.spec_continuing(run_id, changes, from_step=from_step))

    @told
    def spec_continuing(
        self, run_id: str, changes: Mapping[str, Any] | None = None, *, from_step: int | None = None
    ) -> RunSpec:
        """The spec of a run that continues this one; see `resume`."""
        steps = self.steps(run_id) if from_step is not None else ()
        return spec_continuing(self.record(run_id), changes, steps=steps, from_step=from_step)

    @told
    def plan(self, spec: RunSpec, *, code: PackedCode | None = None) -> PlannedRun:
        """See `Place`. The function of the Task state `Preflight` answers."""
        now = datetime.now(UTC)
        if code is not None:
            spec = code.named_in(spec, bucket=self._bucket)
        name = new_run_id(spec, now)
        request = RunRequest(
            spec=spec.model_dump(mode="json"),
            execution_name=name,
            execution_arn=arn_of_execution(self._state_machine_arn, name),
            started_at=now,
        )
        text = invoke(
            self._client("lambda"),
            self._address.plan_function,
            {"plan": request.model_dump(mode="json")},
            deployment=self._deployment,
            purpose="that plans",
        )
        return PlannedRun.model_validate_json(text)

    @property
    def region(self) -> str:
        """The Region of the deployment."""
        return str(self._stepfunctions.meta.region_name)

    def spot_prices(self, instance_types: Sequence[str]) -> dict[str, SpotPrice]:
        """See `trainflow.client.spot_prices`."""
        return spot_prices(self._client("ec2"), instance_types, now=datetime.now(UTC))

    @told
    def cluster(self, run_id: str) -> tuple[KubernetesApi, str]:
        """See `RunReader`."""
        self._execution(run_id)
        return self._kubernetes(), self._namespace

    @property
    def address(self) -> DeploymentAddress:
        """Names of the deployment's resources."""
        return self._address

    def client(self, service: str) -> Any:
        """A boto3 client of a service, with the caller's credentials."""
        return self._client(service)

    def kubernetes(self) -> KubernetesApi:
        """A connection to the cluster; raises `PlaceRefused` if AWS does not let the caller find it."""
        return told(self._kubernetes)()

    @told
    def sweep(self, *, delete: bool) -> SweepReport:
        """See `RunReader`."""
        return sweep(self._client("lambda"), self._address, delete=delete)

    @told
    def runs(self) -> list[RunSummary]:
        """See `Place`."""
        return sorted(map(_summary, self._executions()), key=lambda run: run.started_at, reverse=True)

    def _executions(self) -> list[Any]:
        pages = self._stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=self._state_machine_arn)
        return [execution for page in pages for execution in page["executions"]]

    @told
    def describe(self, run_id: str) -> RunSummary:
        """See `Place`."""
        return _summary(self._execution(run_id))

    @told
    def follow(self, run_id: str, *, log_dir: Path) -> FollowedRun:
        """See `Place`."""
        execution = self._execution(run_id)
        # A caller who may not read it is told at once; the observer, which polls, notes what fails meanwhile.
        self._stepfunctions.get_execution_history(executionArn=execution["executionArn"], maxResults=1)
        observer = RunObserver(
            stepfunctions=self._stepfunctions,
            cloudwatch=self._client("cloudwatch"),
            pods=self._pods_of(execution),
            run_id=run_id,
            execution_arn=execution["executionArn"],
            deployment=self._deployment,
            log_dir=log_dir,
            cluster=self._address.cluster,
            poll_seconds=self._poll_seconds,
        )
        return ObservedRun(self, run_id, observer, poll_seconds=self._poll_seconds)

    @told
    def stop(self, run_id: str, *, reason: RunError) -> None:
        """See `Place`. What the run holds is released by the rule for executions that are stopped."""
        arn = self._execution(run_id)["executionArn"]
        self._stepfunctions.stop_execution(executionArn=arn, error=reason.name, cause=reason.message)
        deadline = time.monotonic() + STOP_SECONDS
        while self.describe(run_id).status is RunStatus.RUNNING and time.monotonic() < deadline:
            time.sleep(0.1)
        self.settle()

    @told
    def definition(self, run_id: str) -> Mapping[str, Any]:
        """See `trainflow.page.drawings.KeepsDefinitions`: a deployment does not change it for runs that have begun."""
        arn = arn_of_execution(self._state_machine_arn, run_id)
        found: Mapping[str, Any] = json.loads(
            self._stepfunctions.describe_state_machine_for_execution(executionArn=arn)["definition"]
        )
        return found

    @told
    def details(self, run_id: str) -> RunState:
        """See `RunReader`. The pods of a run that goes on need access to the cluster."""
        execution = self._execution(run_id)
        if (record := self._final_record(execution)) is not None:
            return state_of_record(record)
        kept, pods = self.kept_steps(run_id) or KeptSteps(), self._pods_of(execution)
        return glance(run_id, self._tree(execution, with_children=False), pods, kept)

    @told
    def record(self, run_id: str) -> RunRecord:
        """See `RunReader`."""
        execution = self._execution(run_id)
        return self._final_record(execution) or self._record_now(execution, self.kept_steps(run_id) or KeptSteps())

    @told
    def final_record(self, run_id: str) -> RunRecord:
        """See `RunReader`. A run that ends by itself has written it; of one that was stopped a rule has it written."""
        execution = self._execution(run_id)
        deadline = execution.get("stopDate", datetime.now(UTC)) + timedelta(seconds=STOP_SECONDS)
        while (record := self._final_record(execution)) is None and datetime.now(UTC) < deadline:
            time.sleep(self._poll_seconds)
        return record or self.record(run_id)

    @told
    def records(self) -> list[tuple[str, RunRecord | None]]:
        """See `RunReader`. Step Functions forgets executions 90 days after their end; their records are in the bucket
        for as long as the deployment keeps artifacts."""
        s3, known = self._client("s3"), {execution["name"]: execution for execution in self._executions()}
        folders = s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix="runs/", Delimiter="/")
        kept = [found["Prefix"].split("/")[1] for page in folders for found in page.get("CommonPrefixes", ())]
        ended = [name for name in dict.fromkeys([*known, *kept]) if name not in known or _has_ended(known[name])]
        with ThreadPoolExecutor(NUM_AT_ONCE) as pool:
            stored = pool.map(lambda name: _parsed_record(self._stored(name, "run.json", s3=s3)), ended)
            found = dict(zip(ended, stored, strict=True))
        for name, execution in known.items():
            if found.get(name) is None:
                found[name] = self._record_now(execution, KeptSteps())
        return list(found.items())

    def copy_ended(self, run_id: str, folder: Path) -> bool:
        """See `trainflow.page.library.KeepsRuns`."""
        record = self._ended_record(run_id)
        if record is None:
            return False
        write_record(record, folder / "run.json")
        write_steps((self.kept_steps(run_id) or KeptSteps()).steps, folder / STEPS_FILE)
        write_text(folder / "report.html", self.report(run_id))
        with suppress(PlaceRefused):  # a caller who may not list the bucket sees the rest
            self._copy_logs(run_id, folder / "logs")
        return True

    @told
    def _ended_record(self, run_id: str) -> RunRecord | None:
        return self._final_record(self._execution(run_id))

    @told
    def _copy_logs(self, run_id: str, folder: Path) -> None:
        copy_logs(self._client("s3"), self._bucket, run_id, folder)

    @told
    def report(self, run_id: str) -> str:
        """See `RunReader`."""
        execution = self._execution(run_id)
        if _has_ended(execution) and (stored := self._stored(run_id, "report.html")):
            return stored.decode(errors="replace")
        kept = self.kept_steps(run_id) or KeptSteps()
        record = self._final_record(execution) or self._record_now(execution, kept)
        return render_report(record, kept.steps, words=self.hint_words)

    @told
    def steps(self, run_id: str) -> list[Step]:
        """See `RunReader`."""
        self._execution(run_id)
        return list((self.kept_steps(run_id) or KeptSteps()).steps)

    @told
    def log(self, run_id: str, request: LogRequest) -> Iterator[str]:
        """See `RunReader`. The cluster has the logs of pods until they are deleted, and CloudWatch Logs afterwards.

        If CloudWatch Logs lacks them, the last lines of an ended run are in the artifact bucket.
        """
        execution = self._execution(run_id)
        if request.pod is None:
            _require_rank(execution, request.rank)
        source, follows_rank = self._pods_of(execution), request.follow and request.pod is None
        try:
            pod = chosen_pod(source, run_id, request)
        except TrainflowError as unseen:
            may_come = follows_rank and isinstance(unseen, LogNotFound) and not _has_ended(execution)
            try:
                return self._stored_log(execution, request, unseen)
            except LogNotFound:
                if not may_come:
                    raise
            request.notify(f"Waiting for the log of rank {request.rank}.")
            pod = None
        if pod is not None and not follows_rank:
            return log_lines(source, run_id, pod, request)
        return followed_lines(
            source,
            run_id,
            pod,
            request,
            has_run_ended=lambda: self.describe(run_id).status is not RunStatus.RUNNING,
            poll_seconds=self._poll_seconds,
        )

    @told
    def execute(
        self, run_id: str, request: LogRequest, command: Sequence[str], write: Callable[[bool, bytes], None]
    ) -> int:
        """Run a command in the container of a rank, or of a pod by its name; see `KubernetesApi.run_command`.

        Raises:
            CommandNotRun: If the cluster does not take it.
            TrainflowError: If the run lacks the pod, or the caller may not see the cluster.
        """
        execution = self._execution(run_id)
        if _spec_backend(execution) not in KUBERNETES_KINDS:
            raise CommandNotRun(f"The jobs of {run_id} are Slurm's, which have no pods; use `srun --overlap --jobid`.")
        if _has_ended(execution):
            raise CommandNotRun(f"The run {run_id} has ended ({execution['status']}), and its pods with it.")
        pod = chosen_pod(self._pods_of(execution), run_id, request)
        return self._kubernetes().run_command(self._namespace, pod.name, pod.container, command, write)

    def _stored_log(self, execution: Any, request: LogRequest, unseen: TrainflowError) -> Iterator[str]:
        """The log of a pod that cannot be seen, or of one that is gone.

        Raises:
            TrainflowError: `unseen`, if the log is nowhere else.
        """
        run_id = execution["name"]
        spec = _execution_spec(execution)
        kind = KUBERNETES_KINDS.get(spec.compute.backend) if spec else None
        has_not_begun = isinstance(unseen, LogNotFound) and not isinstance(unseen, PodNotFound)
        if self._log_group is None or spec is None or kind is None or has_not_begun:
            raise unseen
        record = self.record(run_id)
        job = record.jobs.get(Stage.TRAINING)
        if request.pod is not None:
            pod = PodFilter(name=request.pod, is_whole=True)
        elif job is None:
            raise unseen
        elif request.rank == 0 and job.rank0 is not None:
            pod = PodFilter(name=job.rank0, is_whole=True)
        else:
            pod = PodFilter(name=kind.pod_name(job.name, request.rank, elastic=spec.compute.elastic is not None))
        stored = StoredLogs(self._client("logs"), self._log_group)
        try:
            return stored.lines(
                pod,
                since=request.since or record.started_at,
                until=record.ended_at + LATE if record.ended_at else None,
                has_ended=(lambda: self.describe(run_id).status is not RunStatus.RUNNING) if request.follow else None,
            )
        except (LogNotFound, PlaceRefused) as missing:
            reasons = [unseen, missing]
            if _has_ended(execution):
                try:
                    kept = kept_lines(self._client("s3"), self._bucket, run_id, pod, since=request.since)
                except PlaceRefused as refused:
                    reasons.append(refused)
                else:
                    if kept is not None:
                        request.notify(f"These are the last lines that {run_id} has kept, at most 1,000. {missing}")
                        return kept
            raise type(missing)(" ".join(map(str, reasons))) from None

    @told
    def artifacts(self, run_id: str) -> list[Artifact]:
        """See `RunReader`."""
        self._execution(run_id)
        return artifacts_below(self._client("s3"), self._bucket, f"runs/{run_id}/")

    def artifacts_url(self, run_id: str) -> str:
        """The folder of a run's artifacts in S3."""
        return f"s3://{self._bucket}/runs/{run_id}/"

    def messages(self, run_id: str) -> list[Message]:
        """See `RunReader`."""
        raise PlaceUnavailable(
            f"{self.name} keeps no messages: it sends them to the subscribers of its topic, which are `alarms.emails` "
            "and the chats of its configuration."
        )

    @told
    def fetch(self, artifact: Artifact, path: Path) -> None:
        """See `RunReader`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._client("s3").download_file(self._bucket, artifact.key, str(path))

    @told
    def node_utilization(self, run_id: str, nodes: Collection[str]) -> Utilization | None:
        """See `trainflow.page.utilization.MeasuresNodes`."""
        del run_id  # metrics are the cluster's
        return read_utilization(
            self._client("cloudwatch"), cluster=self._address.cluster, nodes=nodes, now=datetime.now(UTC)
        )

    def settle(self) -> None:
        """Wait until the functions that the end of a run triggers are done, if the place can know it: AWS cannot."""

    @told
    def kept_steps(self, run_id: str) -> KeptSteps | None:
        """The steps that the workflow kept of a run; None without any."""
        stored = self._stored(run_id, STEPS_FILE)
        return kept_steps_from_json(stored) if stored else None

    def _final_record(self, execution: Any) -> RunRecord | None:
        """The record that the end of the run has written; None before that, or for one of a later version."""
        return _parsed_record(self._stored(execution["name"], "run.json")) if _has_ended(execution) else None

    def _record_now(self, execution: Any, kept: KeptSteps) -> RunRecord:
        tree = self._tree(execution)
        return build_record(
            run_id=execution["name"],
            history=tree.history,
            children=tree.children,
            kept=kept,
            now=datetime.now(UTC),
        )

    def _tree(self, execution: Any, *, with_children: bool = True) -> ExecutionTree:
        tree = ExecutionTree(self._stepfunctions, execution["executionArn"])
        tree.read(with_children=with_children)
        if tree.trouble is not None:  # an execution that was not read is not one that goes on
            raise PlaceRefused(tree.trouble)
        return tree

    def _stored(self, run_id: str, name: str, *, s3: Any = None) -> bytes | None:
        """A file that the workflow keeps of a run; None if it is missing, or too large to be the workflow's."""
        s3 = s3 or self._client("s3")
        try:
            found = first_bytes(s3, self._bucket, f"runs/{run_id}/{name}", limit=MAX_STORED_BYTES + 1)
        except s3.exceptions.NoSuchKey:
            return None
        return found if len(found) <= MAX_STORED_BYTES else None

    def _pods_of(self, execution: Any) -> PodSource:
        """Source of the run's pods: runs can be observed without access to the cluster, too."""
        try:
            spec = stored_run_spec(spec_of_input(json.loads(execution["input"])))
            if spec.compute.backend in KUBERNETES_KINDS:
                return KubernetesPods(self._kubernetes(), self._namespace)
        except TrainflowError as refused:
            return UnseenPods(refused)
        return SlurmJobs(self._client("s3"), bucket=self._bucket, run_id=execution["name"])

    def _execution(self, run_id: str) -> Any:
        arn = arn_of_execution(self._state_machine_arn, run_id)
        try:
            return self._stepfunctions.describe_execution(executionArn=arn)
        except (self._stepfunctions.exceptions.ExecutionDoesNotExist, self._stepfunctions.exceptions.InvalidArn):
            raise RunNotFound(f"There is no run '{run_id}' in the deployment '{self._deployment}'.") from None


class ObservedRun:
    """A `FollowedRun` of a deployment."""

    def __init__(self, place: DeployedRuns, run_id: str, observer: RunObserver, *, poll_seconds: float) -> None:
        self._place, self._run_id, self._observer, self._poll_seconds = place, run_id, observer, poll_seconds
        self._finished, self._asked_at = False, -math.inf

    def __enter__(self) -> ObservedRun:
        self._observer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._observer.stop()

    def snapshot(self) -> RunState:
        """See `FollowedRun`."""
        return self._observer.snapshot()

    def is_finished(self) -> bool:
        """See `FollowedRun`. A view asks several times a second; AWS is asked once a poll, and may fail to answer."""
        if not self._finished and time.monotonic() >= self._asked_at + self._poll_seconds:
            self._asked_at = time.monotonic()
            with suppress(PlaceRefused):
                self._finished = self._place.describe(self._run_id).status is not RunStatus.RUNNING
        return self._finished

    def record(self, *, aborted: RunError | None = None) -> RunRecord:
        """See `FollowedRun`.

        Raises:
            PlaceRefused: If the caller may not read the run's execution any more.
        """
        # The end of the execution has a record written of it; this one is made of the same facts and what was observed.
        self._place.settle()
        return self._observer.record(
            status=RunStatus.ABORTED if aborted else None,
            error=aborted,
            kept=self._place.kept_steps(self._run_id),
        )

    def steps(self) -> list[Step]:
        """See `FollowedRun`."""
        return self._observer.steps()


def _spec_backend(execution: Any) -> BackendName | None:
    """The backend of an execution's spec; None for an execution with another input."""
    spec = _execution_spec(execution)
    return spec.compute.backend if spec else None


def _execution_spec(execution: Any) -> RunSpec | None:
    """The spec of an execution; None for an execution with another input."""
    try:
        return stored_run_spec(spec_of_input(json.loads(execution["input"])))
    except InvalidRunSpec:
        return None


def _parsed_record(stored: bytes | None) -> RunRecord | None:
    try:
        return RunRecord.model_validate_json(stored) if stored else None
    except ValidationError:
        return None


def _require_rank(execution: Any, rank: int) -> None:
    """Raises `LogNotFound` for a rank that no gang of the run's spec has."""
    spec = _execution_spec(execution)
    if spec is not None and rank >= spec.compute.most_nodes:
        last = spec.compute.most_nodes - 1
        there = f"ranks 0 to {last}" if last else "rank 0 alone"
        raise LogNotFound(f"The run {execution['name']} has no node of rank {rank}; it has {there}.")


def _has_ended(execution: Any) -> bool:
    return bool(execution["status"] != RunStatus.RUNNING)


def _summary(execution: Any) -> RunSummary:
    return RunSummary(
        run_id=execution["name"],
        status=RunStatus(execution["status"]),
        started_at=execution["startDate"],
        ended_at=execution.get("stopDate"),
    )
