"""Amazon SQS: puts a message into its queue once more, for later."""

from __future__ import annotations

from lambdas.gateways.aws import client, translated


def send_later(queue_arn: str, body: str, *, delay_seconds: int) -> None:
    """Send a message that becomes visible after a while.

    Args:
        queue_arn: ARN of the queue.
        body: The message.
        delay_seconds: At most 900 (SQS quotas).
    """
    sqs, name = client("sqs"), queue_arn.rsplit(":", 1)[1]
    with translated("sqs:SendMessage"):
        url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody=body, DelaySeconds=delay_seconds)
