"""Starts runs and watches them: uploads, schedules, the clean-up after an abort, the survey of the nodes.

All run requests use one queue: an object under `runs/` in the data bucket, or a schedule. Only
StartRun may start an execution; it names it after the request's content, so that the same request twice is one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.orchestration.bundling import REPOSITORY
from stacks.orchestration.functions import TrainflowFunction
from stacks.shared.acknowledgements import Reason, acknowledge
from stacks.storage.run_requests import RUN_REQUESTS, SUFFIXES
from stacks.triggers.grants import TriggerGrants
from stacks.triggers.queues import DeadLetterQueues, RequestQueue
from stacks.triggers.schedules import MAX_EVENT_AGE_SECONDS, RETRIES, SCHEDULED_AT, Schedules
from trainflow.configuration.deployment import Configuration, Schedule, scheduled_spec
from trainflow.deployment.functions import EVENT_HANDLERS, LIVE, Function

if TYPE_CHECKING:
    from stacks.cluster.cluster_reference import ClusterReference
    from stacks.orchestration.stack import OrchestrationStack
    from stacks.storage.stack import StorageStack

BATCH = 1
"""Messages that a function is handed at once. One that hangs or crashes takes no other along."""
MAX_CONCURRENCY = 5
"""Calls of a function for its queue at the same time: a message that hangs keeps one of them busy until its time-out.
Not more, because a folder that was uploaded by mistake should not go off at once."""

# Decision 10: uploads and schedules go through one queue to StartRun, which names the execution by content.
START_RUN, REPORT_LOST_REQUEST = EVENT_HANDLERS[:2]
QUEUE_READERS = {START_RUN.name: "RunRequests", REPORT_LOST_REQUEST.name: "RunRequests"}
"""Dead-letter queue of the functions that read queues. Others have one of their own."""

SURVEY_EVERY = "rate(5 minutes)"
"""Rate of counting nodes; idle ones cost money for this much longer than IDLE_MINUTES at most."""


class TriggersStack(cdk.Stack):
    """Queue, rules, schedules and the functions behind them."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        orchestration: OrchestrationStack,
        storage: StorageStack,
        cluster: ClusterReference,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        self._configuration, self._orchestration = configuration, orchestration
        self._storage = storage
        self._surroundings = orchestration.surroundings(
            self,
            TRAINING_STATE_MACHINE_ARN=orchestration.training.state_machine_arn,
            IDLE_MINUTES=str(configuration.capacity.idle_minutes),
        )
        self.dead_letter_queues = DeadLetterQueues(
            self,
            "DeadLetters",
            key=self._surroundings.key,
            names=("RunRequests", "CleanUp", "SurveyFleet"),
            handled_in=cdk.Duration.seconds(REPORT_LOST_REQUEST.timeout_seconds),
        ).queues
        self.run_requests = RequestQueue(
            self,
            "RunRequests",
            key=self._surroundings.key,
            handled_in=cdk.Duration.seconds(START_RUN.timeout_seconds),
            dead_letter_queue=self.dead_letter_queues["RunRequests"],
        )
        self.functions = self._make_functions(cluster)
        self.aliases = {name: self._make_alias(function) for name, function in self.functions.items()}
        self._read("RunRequests", self.run_requests, by=START_RUN)
        self._read("LostRequests", self.dead_letter_queues["RunRequests"], by=REPORT_LOST_REQUEST)
        self.rules: dict[str, str] = {}
        self._schedules = Schedules(self, "Schedules", group=configuration.name, key=self._surroundings.key)
        self._start_on_upload()
        self._start_by_schedule()
        self._clean_up_after_abort()
        self._survey_by_schedule()
        cdk.CfnOutput(self, "RunRequestQueue", value=self.run_requests.queue_url, description="Requests for runs")

    def _make_functions(self, cluster: ClusterReference) -> dict[str, TrainflowFunction]:
        grants = TriggerGrants(
            self,
            orchestration=self._orchestration,
            storage=self._storage,
            cluster=cluster,
            run_requests=self.run_requests,
            lost_requests=self.dead_letter_queues["RunRequests"],
        )
        return {
            function.name: TrainflowFunction(
                self,
                function.name,
                function=function,
                surroundings=self._surroundings,
                grants=grants.of(function),
                dead_letter_queue=self.dead_letter_queues[QUEUE_READERS.get(function.name, function.name)],
            )
            for function in EVENT_HANDLERS
        }

    def _make_alias(self, function: TrainflowFunction) -> lambda_.Alias:
        return lambda_.Alias(function, "Live", alias_name=LIVE, version=function.version)

    def _read(self, name: str, queue: sqs.IQueue, *, by: Function) -> None:
        mapping = lambda_.CfnEventSourceMapping(
            self,
            f"{name}To{by.name}",
            event_source_arn=queue.queue_arn,
            function_name=self.aliases[by.name].function_arn,
            batch_size=BATCH,
            function_response_types=["ReportBatchItemFailures"],
            scaling_config=lambda_.CfnEventSourceMapping.ScalingConfigProperty(maximum_concurrency=MAX_CONCURRENCY),
        )
        acknowledge(mapping, "Serverless-LambdaEventSourceMappingDestination", reason=Reason.QUEUE_HAS_ITS_OWN)

    def _start_on_upload(self) -> None:
        rule = self._rule(
            "Uploads",
            description="A run spec was uploaded",
            pattern={
                "source": ["aws.s3"],
                "detail-type": ["Object Created"],
                "detail": {
                    "bucket": {"name": [self._storage.data_bucket.bucket_name]},
                    "object": {"key": [{"wildcard": f"{RUN_REQUESTS}.{suffix}"} for suffix in SUFFIXES]},
                },
            },
            target=self.run_requests.queue_arn,
            dead_letter_queue=self.dead_letter_queues["RunRequests"],
        )
        _let_rule_send(rule, self.run_requests)

    def _clean_up_after_abort(self) -> None:
        """Every end is recorded; one by an abort, a time-out or a full history runs no Catch: its nodes would stay."""
        clean_up = self.aliases["CleanUp"]
        rule = self._rule(
            "AbortedRuns",
            description="A run has ended: its record, and what it did not clean up itself; or it was redriven",
            pattern={
                "source": ["aws.states"],
                "detail-type": ["Step Functions Execution Status Change"],
                "detail": {
                    "status": ["RUNNING", "SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT"],
                    "stateMachineArn": [self._orchestration.training.state_machine_arn],
                },
            },
            target=clean_up.function_arn,
            dead_letter_queue=self.dead_letter_queues["CleanUp"],
        )
        lambda_.CfnPermission(
            self,
            "AbortedRunsInvoke",
            action="lambda:InvokeFunction",
            function_name=clean_up.function_arn,
            principal="events.amazonaws.com",
            source_arn=rule.attr_arn,
        )

    def _rule(
        self, construct_id: str, *, description: str, pattern: dict[str, Any], target: str, dead_letter_queue: sqs.Queue
    ) -> events.CfnRule:
        rule = events.CfnRule(
            self,
            construct_id,
            description=description,
            event_pattern=pattern,
            targets=[
                events.CfnRule.TargetProperty(
                    id="Target",
                    arn=target,
                    dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=dead_letter_queue.queue_arn),
                    retry_policy=events.CfnRule.RetryPolicyProperty(
                        maximum_retry_attempts=RETRIES, maximum_event_age_in_seconds=MAX_EVENT_AGE_SECONDS
                    ),
                )
            ],
        )
        _let_rule_send(rule, dead_letter_queue)
        self.rules[construct_id] = rule.ref
        return rule

    def _start_by_schedule(self) -> None:
        if not self._configuration.schedules:
            return
        request = self._schedules.target(
            "RunRequests",
            arn=self.run_requests.queue_arn,
            action="sqs:SendMessage",
            dead_letter_queue=self.dead_letter_queues["RunRequests"],
        )
        for schedule in self._configuration.schedules:
            self._schedules.add(
                f"run-{schedule.name}",
                expression=schedule.expression,
                time_zone=schedule.time_zone,
                enabled=schedule.enabled,
                target=request,
                message=self._run_request(schedule),
            )

    def _run_request(self, schedule: Schedule) -> dict[str, Any]:
        spec = scheduled_spec(self._configuration, schedule, repository=REPOSITORY)
        return {
            "schedule": schedule.name,
            "scheduled_at": SCHEDULED_AT,
            "overlap": schedule.overlap,
            "spec": spec.model_dump(mode="json"),
        }

    def _survey_by_schedule(self) -> None:
        survey = self._schedules.target(
            "Survey",
            arn=self.aliases["SurveyFleet"].function_arn,
            action="lambda:InvokeFunction",
            dead_letter_queue=self.dead_letter_queues["SurveyFleet"],
        )
        self._schedules.add("survey-fleet", expression=SURVEY_EVERY, target=survey, message={})


def _let_rule_send(rule: events.CfnRule, queue: sqs.Queue) -> None:
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            principals=[iam.ServicePrincipal("events.amazonaws.com")],
            actions=["sqs:SendMessage"],
            resources=[queue.queue_arn],
            conditions={"ArnEquals": {"aws:SourceArn": rule.attr_arn}},
        )
    )
