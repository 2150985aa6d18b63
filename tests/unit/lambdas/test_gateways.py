"""Small promises of the gateways to AWS."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lambdas.gateways import executions, objects
from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes_objects import pending_reason
from lambdas.gateways.notifications.topic import Topic
from tests.unit.lambdas.conftest import CLUSTER, DATA_BUCKET, Aws
from trainflow.errors import ServiceUnavailable
from trainflow.observed.pod import read_pod
from trainflow.workflow.run_record import RunStatus

TYPE = "trn1.32xlarge"


@pytest.mark.parametrize(
    "code",
    [
        "ThrottlingException",
        "ExecutionLimitExceeded",
        "ResourceInUseException",
        "KMSThrottling",
        "KmsThrottlingException",
    ],
)
def test_what_passes_is_worth_a_retry(aws: Aws, refusing: Callable[[str, str | None], None], code: str) -> None:
    refusing("StartExecution", code)
    with pytest.raises(ServiceUnavailable, match=f"states:StartExecution answered {code}"):
        executions.start(aws.state_machine_arn, name="bert", document="{}")


def test_an_execution_that_was_started_before_is_found_with_its_status(aws: Aws) -> None:
    first = executions.start(aws.state_machine_arn, name="bert", document='{"a": 1}')
    again = executions.start(aws.state_machine_arn, name="bert", document='{"a": 2}')
    assert (first.is_new, again.is_new) == (True, False)
    assert again.arn == first.arn
    assert executions.status(again.arn) is RunStatus.RUNNING


def test_an_object_is_read_no_further_than_asked(aws: Aws) -> None:
    aws.client("s3").put_object(Bucket=DATA_BUCKET, Key="runs/x.yaml", Body=b"0123456789")
    assert objects.read(DATA_BUCKET, "runs/x.yaml", version_id=None, limit_bytes=4) == b"0123"


@pytest.mark.parametrize("version", [None, "no-such-version"])
def test_an_object_that_is_gone_is_none(aws: Aws, version: str | None) -> None:
    aws.client("s3").put_object(Bucket=DATA_BUCKET, Key="runs/x.yaml", Body=b"0")
    key = "runs/x.yaml" if version else "runs/y.yaml"
    assert objects.read(DATA_BUCKET, key, version_id=version, limit_bytes=4) is None


def test_a_version_that_was_overwritten_can_still_be_read(aws: Aws) -> None:
    first = aws.client("s3").put_object(Bucket=DATA_BUCKET, Key="runs/x.yaml", Body=b"1")["VersionId"]
    aws.client("s3").put_object(Bucket=DATA_BUCKET, Key="runs/x.yaml", Body=b"2")
    assert objects.read(DATA_BUCKET, "runs/x.yaml", version_id=first, limit_bytes=4) == b"1"


@pytest.mark.parametrize("subject", ["x" * 300, "line\nbreak", "Ü" * 50, "\x00"])
def test_any_subject_can_be_sent(aws: Aws, subject: str) -> None:
    Topic(aws.topic_arn).send(subject=subject, message="\ud800" + "x" * 500_000)
    ((sent, message),) = aws.messages
    assert len(sent) < 100
    assert sent.isascii()
    assert sent.isprintable()
    assert len(message.encode()) < 256 * 1024


def test_a_node_group_that_is_gone_has_no_nodes_to_give_back(aws: Aws) -> None:
    assert Nodegroups(CLUSTER).release("trainflow-none") == 0


def test_a_node_group_releases_its_nodes_above_the_minimum(aws: Aws) -> None:
    aws.add_nodegroup(TYPE, desired=3, minimum=1)
    assert Nodegroups(CLUSTER).release("trainflow-trn1-32xlarge") == 2
    assert Nodegroups(CLUSTER).release("trainflow-trn1-32xlarge") == 0
    assert aws.desired(TYPE) == 1


def test_a_pod_whose_init_container_failed_is_explained_by_it() -> None:
    ended = {"exitCode": 1, "reason": "Error", "message": "no room", "finishedAt": "2026-11-21T09:31:00Z"}
    status = {
        "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}, {"state": {"terminated": ended}}],
        "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    found = read_pod({"metadata": {"name": "a"}, "spec": {}, "status": status})
    assert (found.exit_code, found.end_reason, found.termination_message) == (1, "Error", "no room")


def test_an_image_that_an_init_container_lacks_is_why_a_pod_is_pending() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "tools"'}
    status = {
        "initContainerStatuses": [{"state": {"waiting": waiting}}],
        "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    assert pending_reason({"status": status}) == 'ImagePullBackOff: Back-off pulling image "tools"'


@pytest.mark.parametrize(
    ("ended", "of_pod", "reason"),
    [
        ("Error", None, "EvictionByEvictionAPI"),
        (None, None, "EvictionByEvictionAPI"),
        ("OOMKilled", None, "OOMKilled"),
        ("Error", "Evicted", "Evicted"),
    ],
)
def test_the_reason_of_a_pod_is_the_one_that_tells_most(ended: str | None, of_pod: str | None, reason: str) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    terminated = {"state": {"terminated": {"exitCode": 143, "reason": ended}}}
    status = {"reason": of_pod, "conditions": [condition], "containerStatuses": [terminated]}
    assert read_pod({"metadata": {"name": "a"}, "spec": {}, "status": status}).end_reason == reason
