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


def hidden_for(timeout: cdk.Duration) -> cdk.Duration:
    """Visibility timeout of a function's messages: six times the function's timeout.

    A message that Lambda's pollers hold back for throttling must not come back meanwhile (AWS Lambda developer guide,
    SQS event sources).
    """
    return cdk.Duration.seconds(6 * timeout.to_seconds())


class DeadLetterQueues(Construct):
    """Queues of messages that could not be delivered or handled, until a function or a person reads them."""

    def __init__(
        self, scope: Construct, construct_id: str, *, key: kms.IKey, names: Sequence[str], handled_in: cdk.Duration
    ) -> None:
        """
        Args:
            scope: The stack.
            construct_id: Name in it.
            key: Encrypts the messages.
            names: A queue for each.
            handled_in: Timeout of the function that reads one of them.
        """
        super().__init__(scope, construct_id)
        self.queues = {
            name: sqs.Queue(
                self,
                name,
                encryption=sqs.QueueEncryption.KMS,
                encryption_master_key=key,
                enforce_ssl=True,
                retention_period=RETENTION,
                visibility_timeout=hidden_for(handled_in),
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
            visibility_timeout=hidden_for(handled_in),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letter_queue, max_receive_count=3),
        )
