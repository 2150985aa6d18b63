"""The workflow: the state machines as the repository has them, a function a Task state, the run table, the topic.

The execution's input is the run spec and its name is the run's id.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from stacks.orchestration.bundling import function_code
from stacks.orchestration.functions import Surroundings, TrainflowFunction
from stacks.orchestration.grants import Resources, TaskGrants
from stacks.orchestration.permissions import USE_OF_KEY, SharedPolicies, service
from stacks.orchestration.state_machines import LOG_PREFIX, StateMachines
from stacks.shared.acknowledgements import Reason, acknowledge, in_both_baselines
from stacks.shared.log_keys import let_logs_use
from stacks.slurm.access import NOWHERE, SlurmReference, let_functions_in
from trainflow.configuration.deployment import Configuration
from trainflow.deployment.address import DeploymentAddress, parameter_name
from trainflow.deployment.functions import LINK, LIVE, TASKS, deployed_name

if TYPE_CHECKING:
    from stacks.cluster.cluster_reference import ClusterReference
    from stacks.images.stack import ImagesStack
    from stacks.storage.stack import StorageStack


class OrchestrationStack(cdk.Stack):
    """State machines, their functions, and what these write to."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        cluster: ClusterReference,
        storage: StorageStack,
        images: ImagesStack,
        slurm: SlurmReference | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        self._configuration, self._cluster, self._storage, self._slurm = configuration, cluster, storage, slurm
        self._images = images
        self.on_destroy = cdk.RemovalPolicy.RETAIN if configuration.production else cdk.RemovalPolicy.DESTROY
        self.log_days = logs.RetentionDays.ONE_YEAR if configuration.production else logs.RetentionDays.THREE_MONTHS
        self.key = self._make_key()
        self.topic = self._make_topic()
        self.run_table = self._make_run_table()
        self.cache_table = self._make_cache_table()
        self.policies = SharedPolicies(
            self,
            "Policies",
            in_network=cluster.placement is not None,
            slurm=slurm.grants(self, storage) if slurm else (),
        )
        self.grants = TaskGrants(
            Resources(
                stack=self,
                configuration=configuration,
                storage=storage,
                images=images,
                key=self.key,
                topic=self.topic,
                run_table=self.run_table,
                cache_table=self.cache_table,
                policies=self.policies,
            )
        )
        waited_for = ("Serverless-LambdaDLQ", *in_both_baselines("LambdaDLQ"))
        acknowledge(self, *waited_for, reason=Reason.TASKS_ARE_WAITED_FOR)
        surroundings = self.surroundings(self)
        self.functions = self._make_functions(surroundings)
        machines = StateMachines(self, "StateMachines", surroundings=surroundings, functions=self.functions)
        self.watch_job, self.training = machines.watch_job, machines.training
        if slurm is not None and cluster.placement is not None:
            ours = configuration.network is not None
            let_functions_in(self, slurm, cluster.placement.security_group, functions_are_ours=ours)
        self._write_address()
        self._make_outputs()

    def surroundings(self, stack: cdk.Stack, **variables: str) -> Surroundings:
        """Settings that functions of this deployment share, in this stack and in others; `variables` come on top."""
        shared = {
            "CLUSTER_NAME": self._cluster.name,
            "DEPLOYMENT": self._configuration.name,
            "NAMESPACE": self._configuration.namespace,
            "ARTIFACT_BUCKET": self._storage.artifact_bucket.bucket_name,
            "TOPIC_ARN": self.topic.topic_arn,
            "RUN_TABLE": self.run_table.table_name,
            "CACHE_TABLE": self.cache_table.table_name,
            "TOOLS_IMAGE": self._images.tools_image,
            "ALLOWED_IMAGES": json.dumps(self._configuration.images.allowed),
            "DEFAULT_TEAM": self._configuration.default_team or "",
            "DEFAULT_PROJECT": self._configuration.default_project or "",
            "CLUSTER_MAKES_NODES": str(self._configuration.capacity.cluster).lower(),
            "REPLACE_BAD_NODES": str(self._configuration.capacity.replace_bad_nodes).lower(),
            **(self._slurm.variables if self._slurm else NOWHERE),
            **self._link(),
        }
        return Surroundings(
            deployment=self._configuration.name,
            code=function_code(stack),
            variables={**shared, **variables},
            cluster=self._cluster,
            # By its ARN: a stack that uses the key must not change the key's policy.
            key=self.key if stack is self else kms.Key.from_key_arn(stack, "Key", self.key.key_arn),
            policies=self.policies,
            log_days=self.log_days,
            on_destroy=self.on_destroy,
        )

    def _link(self) -> dict[str, str]:
        """Data that the file system shows without a copy: nothing if an existing file system is mounted."""
        shared = self._storage.shared
        names = (shared.file_system_id, shared.linked_url) if shared else ("", "")
        return dict(zip(LINK, names, strict=True))

    def _make_functions(self, surroundings: Surroundings) -> dict[str, TrainflowFunction]:
        return {
            function.name: TrainflowFunction(
                self, function.name, function=function, surroundings=surroundings, grants=self.grants.of(function)
            )
            for function in TASKS
        }

    def _make_key(self) -> kms.Key:
        key = kms.Key(
            self,
            "Key",
            alias=f"{self._configuration.name}-orchestration",
            description="Trainflow: functions, state machines, run table, topic, queues and their logs",
            enable_key_rotation=True,
            removal_policy=self.on_destroy,
        )
        # EventBridge rules send to encrypted queues; no role of ours is in play there.
        key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="RulesSend",
                principals=[service(self, "events.amazonaws.com")],
                actions=list(USE_OF_KEY),
                resources=["*"],
            )
        )
        let_logs_use(key, (f"{self._configuration.name}-*", f"{LOG_PREFIX}/{self._configuration.name}-*"))
        return key

    def _make_topic(self) -> sns.Topic:
        topic = sns.Topic(self, "Topic", display_name="Trainflow", master_key=self.key, enforce_ssl=True)
        for email in self._configuration.alarms.emails:
            subscription = topic.add_subscription(subscriptions.EmailSubscription(email))
            acknowledge(subscription, "Serverless-SNSRedrivePolicy", reason=Reason.MAIL_IS_NO_WORK)
        return topic

    def _make_run_table(self) -> dynamodb.Table:
        """One item a run, kept for a year; the clean-up and the survey read the runs of nodes there."""
        return self._make_table("Runs", key="run_id")

    def _make_cache_table(self) -> dynamodb.Table:
        """One item for each set of compiled graphs: who compiles it, or that it is ready."""
        return self._make_table("Caches", key="cache_key")

    def _make_table(self, construct_id: str, *, key: str) -> dynamodb.Table:
        table = dynamodb.Table(
            self,
            construct_id,
            partition_key=dynamodb.Attribute(name=key, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute="expires_at",
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED,
            encryption_key=self.key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=self._configuration.production,
            removal_policy=self.on_destroy,
        )
        acknowledge(table, *in_both_baselines("DynamoDBInBackupPlan"), reason=Reason.TABLES_GO_BACK_IN_TIME)
        return table

    def _write_address(self) -> None:
        """Write the parameter that `trainflow list`, `status`, `logs` … read to find the deployment by its name."""
        address = DeploymentAddress(
            deployment=self._configuration.name,
            state_machine_arn=self.training.state_machine_arn,
            artifact_bucket=self._storage.artifact_bucket.bucket_name,
            data_bucket=self._storage.data_bucket.bucket_name,
            cluster=self._cluster.name,
            namespace=self._configuration.namespace,
            plan_function=deployed_name(self._configuration.name, "Preflight"),
            survey_function=f"{deployed_name(self._configuration.name, 'SurveyFleet')}:{LIVE}",
        )
        ssm.StringParameter(
            self,
            "Address",
            parameter_name=parameter_name(self._configuration.name),
            string_value=address.model_dump_json(),
            description="Trainflow: what the command needs to know of this deployment",
        )

    def _make_outputs(self) -> None:
        start = f"aws stepfunctions start-execution --state-machine-arn {self.training.state_machine_arn}"
        for name, value, description in (
            ("TrainingStateMachine", self.training.state_machine_arn, "Its executions are the runs"),
            ("NotificationTopic", self.topic.topic_arn, "Topic of the messages about how runs end"),
            ("RunTable", self.run_table.table_name, "Every run of the last year"),
            ("StartCommand", f"{start} --name NAME --input file://SPEC.json", "Or upload a spec to runs/ of the data"),
        ):
            cdk.CfnOutput(self, name, value=value, description=description)
