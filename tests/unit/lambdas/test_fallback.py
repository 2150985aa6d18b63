"""Other instance types of a run, where there is no capacity of the first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.gateways.eks import Nodegroups
from lambdas.handlers import ensure_capacity, tear_down
from lambdas.logic.capacity import Capacity, is_given_up, newest_shortage
from lambdas.logic.compile_cache import cache_key
from lambdas.logic.jobs import job_of
from lambdas.logic.messages import message
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import STARTED_AT, run_of, spec_with
from tests.unit.lambdas.conftest import CONTEXT, Aws
from tests.wording import wording
from trainflow.errors import CapacityTimeout, InvalidRunSpec
from trainflow.nodes.instances import nodegroup_name
from trainflow.nodes.training_nodes import FailedLaunch
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run import Run, Stage
from trainflow.workflow.run_record import RunStatus
from trainflow.workflow.run_table import row_of

MINUTE = timedelta(minutes=1)
NONE_THERE = Capacity(nodes_ready=0, nodes_wanted=2)
SHORT = (
    "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient "
    "trn1.32xlarge capacity in the Availability Zone you requested (us-west-2d). Launching EC2 instance failed."
)


def run_with(*fallback: str, **compute: Any) -> Run:
    return run_of(spec_with(compute__fallback=list(fallback), **{f"compute__{key}": compute[key] for key in compute}))


def test_the_next_type_takes_the_place_of_the_first_in_all_that_is_made_of_the_run() -> None:
    run = run_with("trn1n.32xlarge", "trn1.32xlarge", instance_type="trn2.48xlarge", processes_per_node=1)
    following = run.on_next_type()
    assert following is not None
    assert following.given_up == ("trn2.48xlarge",)
    assert following.spec.compute.types == ("trn1n.32xlarge", "trn1.32xlarge")
    job = job_of(following, Stage.TRAINING, 1, artifacts_url="s3://a/")
    assert job.instance is not None and job.instance.name == "trn1n.32xlarge"
    assert cache_key(following.spec, image_digest=None) != cache_key(run.spec, image_digest=None)
    last = following.on_next_type()
    assert last is not None and last.on_next_type() is None
    assert last.given_up == ("trn2.48xlarge", "trn1n.32xlarge")


def test_a_run_is_the_same_after_its_way_through_the_state_machine() -> None:
    following = run_with("trn1n.32xlarge").on_next_type()
    assert following is not None
    assert Run.model_validate(following.model_dump(mode="json")) == following


def test_a_run_of_an_earlier_version_has_no_other_types() -> None:
    document = run_with().model_dump(mode="json")
    del document["given_up"], document["spec"]["compute"]["fallback"]
    run = Run.model_validate(document)
    assert (run.given_up, run.on_next_type()) == ((), None)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"compute__fallback": ["g5.xlarge"]},
            "compute: processes_per_node is 32, but a g5.xlarge in fallback has 1 GPUs; use at most 1.",
        ),
        (
            {"compute__fallback": ["trn2.48xlarge"]},
            "compute: processes_per_node is 32, but Neuron supports 1, 4, 16 or 64 on a trn2.48xlarge in fallback; "
            "choose one of them.",
        ),
        (
            {"compute__fallback": ["trn1.2xlarge"], "compute__processes_per_node": 2},
            "compute: num_nodes is 2, but a trn1.2xlarge in fallback has no EFA, without which Neuron",
        ),
        (
            {"compute__fallback": ["trn1.32xlarge"]},
            "compute: fallback repeats trn1.32xlarge; name each type once, in instance_type or in fallback.",
        ),
        (
            {"compute__fallback": ["trn9.large"]},
            "compute.fallback.0: 'trn9.large' is not supported; choose another such as ",
        ),
        (
            {
                "compute__fallback": ["trn1n.32xlarge"],
                "compute__backend": "slurm",
                "workload": {"module": "trainer.pretrain"},
            },
            "compute: fallback is of node groups, but Slurm's jobs wait in a partition; remove it.",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(map(str, value)),
)
def test_a_fallback_that_could_not_run_the_gang_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRunSpec) as refused:
        parse_run_spec(spec_with(**changes))
    assert sentence in str(refused.value)


def test_a_run_waits_for_the_first_type_while_its_time_lasts_and_aws_reports_nothing() -> None:
    run, late = run_with("trn1n.32xlarge"), STARTED_AT + 61 * MINUTE
    assert not is_given_up(run, NONE_THERE, waiting_since=STARTED_AT, now=STARTED_AT + 59 * MINUTE)
    assert is_given_up(run, NONE_THERE, waiting_since=STARTED_AT, now=late)
    short = Capacity(nodes_ready=1, nodes_wanted=2, shortage=SHORT)
    assert is_given_up(run, short, waiting_since=STARTED_AT, now=STARTED_AT + MINUTE)
    complete = Capacity(nodes_ready=2, nodes_wanted=2, shortage=SHORT)
    assert not is_given_up(run, complete, waiting_since=STARTED_AT, now=late)


def test_the_last_type_is_waited_for_to_the_end_and_the_error_names_those_before() -> None:
    last = run_with("trn1n.32xlarge").on_next_type()
    assert last is not None
    short = Capacity(nodes_ready=0, nodes_wanted=2, shortage=SHORT)
    assert not is_given_up(last, short, waiting_since=STARTED_AT, now=STARTED_AT + 59 * MINUTE)
    with pytest.raises(CapacityTimeout) as stopped:
        is_given_up(last, short, waiting_since=STARTED_AT, now=STARTED_AT + 61 * MINUTE)
    assert str(stopped.value) == (
        wording(
            "fallback.the_last_type_is_waited_for_to_the_end_and_the_error_names_those_before",
            "trn1n.32xlarge",
            "60",
            "trn1.32xlarge",
        )
    )


def test_only_a_launch_of_this_wait_that_failed_for_lack_of_capacity_counts() -> None:
    def at(minutes: int, text: str) -> FailedLaunch:
        return FailedLaunch(at=STARTED_AT + minutes * MINUTE, message=text)

    assert newest_shortage([at(-5, SHORT)], since=STARTED_AT) is None
    assert newest_shortage([at(0, SHORT)], since=STARTED_AT) == SHORT, "as soon as the wait has begun"
    assert newest_shortage([at(1, "Invalid IamInstanceProfile")], since=STARTED_AT) is None
    quota = "You have requested more vCPU capacity than your current vCPU limit. VcpuLimitExceeded"
    assert newest_shortage([at(1, SHORT), at(2, quota)], since=STARTED_AT) == quota


def asked(run: Run) -> dict[str, Any]:
    return {"run": run.model_dump(mode="json"), "waiting_since": datetime.now(UTC).isoformat()}


def test_what_was_requested_of_the_first_type_is_released_and_requested_of_the_next(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("trn1.32xlarge", "trn1n.32xlarge"):
        aws.add_nodegroup(name)
    first = run_with("trn1n.32xlarge")
    assert ensure_capacity.lambda_handler(asked(first), CONTEXT)["next_run"] is None
    assert aws.desired("trn1.32xlarge") == 2

    just_now = [FailedLaunch(at=datetime.now(UTC) + MINUTE, message=SHORT)]
    monkeypatch.setattr(Nodegroups, "failed_launches", lambda _self, _group: just_now)
    answer = ensure_capacity.lambda_handler(asked(first), CONTEXT)
    assert (answer["shortage"], answer["wait_seconds"]) == (SHORT, 0)
    tear_down.lambda_handler({"run": first.model_dump(mode="json")}, CONTEXT)
    assert aws.desired("trn1.32xlarge") == 0

    answer = ensure_capacity.lambda_handler({**asked(first), "run": answer["next_run"]}, CONTEXT)
    assert (answer["instance_type"], answer["given_up"]) == ("trn1n.32xlarge", ["trn1.32xlarge"])
    assert (aws.desired("trn1.32xlarge"), aws.desired("trn1n.32xlarge")) == (0, 2)


def test_a_run_without_other_types_does_not_ask_auto_scaling(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.add_nodegroup("trn1.32xlarge")
    monkeypatch.delattr(Nodegroups, "failed_launches")
    assert not ensure_capacity.lambda_handler(asked(run_with()), CONTEXT)["ready"]


def test_failed_launches_are_read_from_auto_scaling(aws: Aws) -> None:
    """moto knows no failed launch; the request is one that AWS's model accepts."""
    aws.add_nodegroup("trn1.32xlarge")
    groups = Nodegroups("trainflow")
    assert groups.failed_launches(groups.size(nodegroup_name("trn1.32xlarge"))) == []


def test_clean_up_knows_every_type_that_a_run_may_have_used() -> None:
    row = row_of(run_with("trn1n.32xlarge"))
    assert (row.instance_type, row.fallback) == ("trn1.32xlarge", ("trn1n.32xlarge",))


def test_the_message_names_the_nodes_where_they_are_not_the_first_of_the_spec() -> None:
    facts: dict[str, Any] = {"arn": run_with().execution_arn, "error": None, "progress": None, "artifacts": None}
    facts |= {"folder": None, "instance_type": "g5.xlarge"}
    told = message("demo-1", RunStatus.SUCCEEDED, **facts, given_up=["p5.48xlarge"])
    assert "Nodes: g5.xlarge, because there was no capacity of p5.48xlarge" in told.splitlines()
    assert "Nodes" not in message("demo-1", RunStatus.SUCCEEDED, **facts)
