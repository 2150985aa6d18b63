"""Queues: encrypted, over TLS only, and none without a place for what cannot be delivered."""

from __future__ import annotations

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.shared.acknowledgements import Reason, acknowledge

RETENTION = cdk.Duration.days(14)
"""The longest that SQS offers: time for a person to come back from a holiday."""


class DeadLetterQueues(Construct):
    """Where what could not be delivered or handled waits for a person."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey, names: Sequence[str]) -> None:
        super().__init__(scope, construct_id)
        self.queues = {
            name: sqs.Queue(
                self,
                name,
                encryption=sqs.QueueEncryption.KMS,
                encryption_master_key=key,
                enforce_ssl=True,
                retention_period=RETENTION,
            )
            for name in names
        }
        acknowledge(self, "Serverless-SQSRedrivePolicy", reason=Reason.END_OF_THE_WAY)


class RequestQueue(sqs.Queue):
    """Work for one function, tried three times at most."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        key: kms.IKey,
        handled_in: cdk.Duration,
        dead_letter_queue: sqs.IQueue,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            encryption=sqs.QueueEncryption.KMS,
            encryption_master_key=key,
            enforce_ssl=True,
            retention_period=cdk.Duration.days(4),
            # Six times the function's timeout: a batch that Lambda's pollers hold back for throttling must not come
            # back meanwhile (AWS Lambda developer guide, SQS event sources).
            visibility_timeout=cdk.Duration.seconds(6 * handled_in.to_seconds()),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letter_queue, max_receive_count=3),
        )
