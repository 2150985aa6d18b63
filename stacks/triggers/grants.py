"""Permissions of the functions that events invoke.

`stacks.orchestration.functions` adds those that every function has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_sqs as sqs

from stacks.orchestration.grants import Grants
from stacks.orchestration.permissions import Grant, allow, objects
from stacks.shared.acknowledgements import Reason
from stacks.storage.run_requests import RUN_REQUESTS, SUFFIXES
from stacks.triggers.queues import RequestQueue
from trainflow.deployment.functions import Function
from trainflow.workflow.run_ended import DETAIL_TYPE, SOURCE
from trainflow.workflow.run_table import schedule_key

if TYPE_CHECKING:
    from stacks.cluster.cluster_reference import ClusterReference
    from stacks.orchestration.stack import OrchestrationStack
    from stacks.storage.stack import StorageStack

REFUSALS = tuple(f"{RUN_REQUESTS}.{suffix}.refused.txt" for suffix in SUFFIXES)
"""Objects beside uploads that say why a spec started no run. None of them requests a run."""

READING_A_QUEUE = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
"""Calls of Lambda's poller, with the function's role."""

SENDING_AGAIN = ("sqs:GetQueueUrl", "sqs:SendMessage")
"""Calls of StartRun for a scheduled request that waits for the run before it."""

NOTICES = ("#notice *",)
"""Items of the run table that note messages."""

ITEMS_OF_START_RUN = (f"{schedule_key('')}*", *NOTICES)
"""Items of the run table that are about schedules and messages: StartRun writes no run."""


class TriggerGrants:
    """Permissions of StartRun, ReportLostRequest, CleanUp and SurveyFleet."""

    def __init__(
        self,
        stack: cdk.Stack,
        *,
        orchestration: OrchestrationStack,
        storage: StorageStack,
        cluster: ClusterReference,
        run_requests: RequestQueue,
        lost_requests: sqs.IQueue,
    ) -> None:
        self._stack, self._training, self._shared = stack, orchestration.training, orchestration.grants
        self._storage, self._cluster = storage, cluster
        self._run_requests, self._lost_requests = run_requests, lost_requests

    def of(self, function: Function) -> Grants:
        """The permissions of a function."""
        grants: Mapping[str, Callable[[], Grants]] = {
            "StartRun": self.start_run,
            "ReportLostRequest": self.report_lost_request,
            "CleanUp": self.clean_up,
            "SurveyFleet": self.survey_fleet,
        }
        return grants[function.name]()

    def start_run(self) -> Grants:
        """Reads requests, starts runs, and keeps waiting schedules and sent messages."""
        table_actions = ("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
        return [
            *self._read_requests(),
            allow("states:StartExecution", on=self._training.state_machine_arn),
            self._shared.describe_runs(self._stack),
            *self._shared.use_table(*table_actions, items=ITEMS_OF_START_RUN),
            *self._shared.send_messages(),
        ]

    def report_lost_request(self) -> Grants:
        """Reads unanswered requests of StartRun, writes beside uploads and sends messages. It does not read the content
        of specs, but S3 lacks a permission for only an object's metadata."""
        specs, refusals = self._specs_and_refusals()
        return [
            allow(*READING_A_QUEUE, on=self._lost_requests.queue_arn),
            allow("s3:GetObject", on=specs, pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS),
            allow("s3:PutObject", on=refusals, pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS),
            allow("kms:Decrypt", "kms:GenerateDataKey", on=self._storage.key.key_arn),
            *self._shared.use_table("dynamodb:GetItem", "dynamodb:UpdateItem", items=NOTICES),
            *self._shared.send_messages(),
        ]

    def clean_up(self) -> Grants:
        """Deletes what a run has left, records its end and sends programs an event."""
        bus = self._stack.format_arn(service="events", resource="event-bus", resource_name="default")
        return [
            *self._shared.resize_nodegroups,
            *self._shared.write_records(),
            self._shared.describe_runs(self._stack),
            *self._shared.find_rank0(),
            *self._shared.use_kept_logs("s3:GetObject"),
            *self._shared.use_table("dynamodb:GetItem", "dynamodb:UpdateItem"),
            *self._shared.release_caches(),
            *self._shared.send_messages(),
            allow(
                "events:PutEvents",
                on=bus,
                when={"StringEquals": {"events:source": SOURCE, "events:detail-type": DETAIL_TYPE}},
            ),
        ]

    def survey_fleet(self) -> Grants:
        """Counts nodes and their cost, and releases what no run uses."""
        nodegroups: Grants = [
            *self._shared.resize_nodegroups,
            self._shared.policies.read_instances,
            self._shared.terminate_instances(),
            allow("eks:ListNodegroups", on=self._cluster.arn),
        ]
        return [
            *([] if self._shared.cluster_makes_nodes else nodegroups),
            self._shared.describe_runs(self._stack),
            *self._shared.use_table("dynamodb:GetItem", "dynamodb:PutItem"),
            *self._shared.use_table("dynamodb:UpdateItem", items=NOTICES),
            *self._shared.release_caches(),
            self._shared.policies.publish_metrics,
            *self._shared.send_messages(),
        ]

    def _read_requests(self) -> list[Grant]:
        specs, refusals = self._specs_and_refusals()
        return [
            allow(*READING_A_QUEUE, *SENDING_AGAIN, on=self._run_requests.queue_arn),
            allow("s3:GetObject", "s3:GetObjectVersion", on=specs, pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS),
            allow("s3:PutObject", "s3:DeleteObject", on=refusals, pattern_because=Reason.OBJECTS_ARE_NAMED_BY_RUNS),
            allow("kms:Decrypt", "kms:GenerateDataKey", on=self._storage.key.key_arn),
        ]

    def _specs_and_refusals(self) -> tuple[str, list[str]]:
        """The objects that request runs, and those that answer them."""
        bucket = self._storage.data_bucket
        return objects(self._storage, bucket, RUN_REQUESTS), [objects(self._storage, bucket, each) for each in REFUSALS]
