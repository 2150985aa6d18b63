"""The reasons to accept findings of cdk-nag; each is used beside the resources that need it.

A test counts them over the whole app, and refuses another one.
"""

from __future__ import annotations

from enum import StrEnum

import aws_cdk as cdk
from constructs import IConstruct


class Reason(StrEnum):
    """Reasons, written for an auditor."""

    TASKS_ARE_WAITED_FOR = (
        "The functions of this stack are never invoked asynchronously: a Task state waits for the answer, retries what "
        "passes, and the execution keeps what failed."
    )
    DEPLOYMENTS_WAIT = (
        "CDK's function for custom resources runs during a deployment and at no other time. CloudFormation waits "
        "for its answer: a call that fails, fails the deployment and is in its log."
    )
    RUNTIME_OF_CDK = (
        "The function of CDK that applies manifests and charts keeps the runtime that CDK generates and tests it with. "
        "Everything in the cluster depends on it, and a newer runtime is supported no longer than CDK's next version."
    )
    NO_RESOURCE_LEVEL = (
        "AWS's service authorization reference lists no resource type for these actions: traces, metrics (limited to "
        "Trainflow's namespace by a condition), network interfaces of functions in a VPC, log deliveries, logins to a "
        "registry, and reading zones, offerings, quotas and launches. stacks/checks/access.py holds the list and "
        "refuses any other action on every resource."
    )
    AGENTS_REPORT_THEMSELVES = (
        "Systems Manager's agent registers its own instance, whose id is not known before, and opens channels that "
        "have no resource type. Nothing of the account can be read or changed by these actions."
    )
    SERVICES_CHOOSE_IDS = (
        "EKS chooses the ids at the end of the ARNs of node groups and Auto Scaling groups, FSx those of its tasks. "
        "The patterns leave nothing else open: node groups have our prefix and this cluster by name or by condition, "
        "and making a task also takes the file system's own ARN, so that only other tasks can be read."
    )
    LOG_GROUPS_END_WITH_A_STAR = (
        "CloudWatch Logs writes a log group in policies with ':*' at the end of its ARN. The group itself is named."
    )
    OBJECTS_ARE_NAMED_BY_RUNS = (
        "People and runs name data sets, run specs and results themselves, so these objects cannot be listed here. "
        "Bucket and prefix are named, and of the actions only those that read, or add: nothing can be deleted."
    )
    RUNS_CHOOSE = (
        "Executions carry the names of their runs, and a run calls the versions of functions that it began with, also "
        "after a deployment has published newer ones. Neither is known before; a pattern covers the executions of one "
        "state machine or the versions of one function."
    )
    CONTROL_PLANE_POLICY = (
        "Only the control plane that AWS runs can take this role, and EKS asks for this policy by name; a copy of it "
        "would break with a platform version that needs more."
    )
    NODE_POLICIES = (
        "What EKS documents for nodes: they describe instances and the cluster, pull images, also into a cache of ECR "
        "(ecr:BatchImportUpstreamImage), and get the credentials of their pods' roles "
        "(eks-auth:AssumeRoleForPodIdentity), for which EKS asks for the token of a service account. A node gets "
        "tokens of its own pods alone, and pods reach no metadata service, where the node's credentials are. The calls "
        "change with the node image, which AWS maintains together with these policies."
    )
    ADD_ON_POLICY = (
        "AWS's policy for AWS's add-on: EKS chooses the add-on's version, and what the version needs is maintained in "
        "the policy. Only this add-on's service account in this cluster can take the role."
    )
    END_OF_THE_WAY = (
        "These are dead-letter queues: an alarm notifies a person as soon as one of them is not empty. A function "
        "reports the requests for runs in one of them, and a message that it cannot report stays there."
    )
    QUEUE_HAS_ITS_OWN = (
        "Lambda offers failure destinations for streams, not for SQS, where the queue's own dead-letter queue takes "
        "what failed three times."
    )
    MAIL_IS_NO_WORK = (
        "A mail that could not be delivered is of no use in a queue. Its content is in the run table, and SNS has "
        "tried for hours (NumberOfNotificationsFailed counts it)."
    )

    POLICY_OF_ONE_ROLE = (
        "The policy is for one role. Inside of it, it exists as long as the role, and can be attached to no other; "
        "policies that several roles have in common are managed policies."
    )
    FEW_AT_A_TIME = (
        "A run calls one function after another, the queue of run requests has a concurrency of its own, and a "
        "deployment changes few resources at a time. A reservation would take from the account's quota, and an account "
        "of 100 or less has none to give (AWS Lambda developer guide, 'Configuring reserved concurrency')."
    )
    NOTHING_IN_THE_VPC = (
        "What these functions call is outside of the VPC: APIs of AWS, or the public endpoint of a cluster that is "
        "there already. No connection reaches a function, inside a VPC or not."
    )
    ONE_REGION = (
        "A second region doubles the price of all data sets and checkpoints. S3 keeps them in three zones, and old "
        "versions for 30 days against mistakes. A deployment that has to outlive its region adds a replication rule."
    )
    LOG_DELIVERY_HAS_NO_KEY = (
        "S3 delivers access logs only to buckets whose default encryption is with its own keys (Amazon S3 user guide, "
        "'Enabling Amazon S3 server access logging')."
    )
    TABLES_GO_BACK_IN_TIME = (
        "Both tables can be restored to any second of the last 35 days (point-in-time recovery), and DynamoDB keeps a "
        "backup of a deleted one as long. A plan of AWS Backup would keep the same a second time."
    )
    NAT_GATEWAY_ONLY = (
        "The route is that of the public subnets, in which stands the NAT gateway and nothing else. They give out no "
        "public addresses, and nodes and functions are in private subnets."
    )
    FROM_ITSELF_ALONE = (
        "The source of this rule is its own security group, as EFA demands: training nodes among themselves. The "
        "auditor's rule looks at the protocol and not at the source."
    )
    ANOTHER_TELLS = (
        "Of these failures people hear by other ways: the message of the run that failed, and the composite alarm "
        "where a person is needed. The alarm is there to be seen."
    )
    SOURCE_IS_AN_OBJECT = (
        "The source of the build is an object in S3, which the build's role may read. The auditor's rule asks every "
        "project for OAuth, wherever its source is."
    )


def in_both_baselines(rule: str) -> tuple[str, str]:
    """Full names of a rule that the packs for NIST 800-53 R5 and for HIPAA have in common."""
    return f"NIST.800.53.R5-{rule}", f"HIPAA.Security-{rule}"


def acknowledge(construct: IConstruct, *rules: str, reason: Reason) -> None:
    """Accept findings on a construct and on its children.

    The acknowledgement carries the name of the rule's pack, so that CDK itself matches it with the finding, and the
    validation report lists both with the reason. cdk-nag drops a finding that is acknowledged without the name of its
    pack (`isAcknowledged` in nag-pack.js of cdk-nag 3.0.2), and CDK leaves a pack that reports nothing out of the
    report, as if it had not run (`buildPluginReports` in aws-cdk-lib 2.275.0).

    Args:
        construct: The construct, as small as possible.
        rules: The rules' full names, with the finding in brackets where cdk-nag names one. A rule's name begins with
            its pack's.
        reason: The reason to accept the findings.
    """
    cdk.Validations.of(construct).acknowledge(
        *(cdk.Acknowledgment(id=f"{rule.partition('-')[0]}::{rule}", reason=reason.value) for rule in rules)
    )
