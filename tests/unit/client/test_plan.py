"""What a run would cost, by its spec and by earlier runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.stub import Stubber

from tests.fakes.runs import spec_with
from trainer.pretrain import parse
from trainflow.cli.operate.shown import objects_text, plan_text
from trainflow.client.place import PlaceRefused
from trainflow.client.plan import Candidate, Estimate, plan_of
from trainflow.client.spot_prices import SpotPrice, spot_prices
from trainflow.nodes.prices import usd_per_hour
from trainflow.report.published_figures import figure_of_spec
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.spec.workload import option_words
from trainflow.workflow.planned_run import PlannedJob, PlannedRun
from trainflow.workflow.run import Stage
from trainflow.workflow.run_record import MetricsPublished, RunRecord, RunStatus, StateVisit, Training

BEGAN = datetime(2026, 11, 22, 8, tzinfo=UTC)
REGION = "us-west-2"


def spec_of(num_nodes: int = 2, **arguments: Any) -> dict[str, Any]:
    workload = {"script": "train.py", "image": "image:1", "arguments": arguments}
    compute = {"instance_type": "trn1.32xlarge", "num_nodes": num_nodes, "processes_per_node": 32}
    return spec_with(workload=workload, compute=compute, limits={"max_duration_hours": 10})


def record_of(spec: dict[str, Any], *, status: RunStatus = RunStatus.SUCCEEDED, run_id: str = "old") -> RunRecord:
    """A run of two hours: half an hour before and behind the training, which takes 100 steps of 36 s."""
    trained = StateVisit(
        name="WatchTraining",
        entered_at=BEGAN + timedelta(minutes=30),
        exited_at=BEGAN + timedelta(minutes=90),
    )
    return RunRecord(
        run_id=run_id,
        status=status,
        spec=parse_run_spec(spec).model_dump(mode="json"),
        started_at=BEGAN,
        ended_at=BEGAN + timedelta(hours=2),
        states=[trained],
        training=Training(steps=100),
    )


def test_a_plan_has_the_price_of_all_nodes_and_the_bound() -> None:
    plan = plan_of(parse_run_spec(spec_of()), region=REGION)
    price = usd_per_hour("trn1.32xlarge", region=REGION)
    assert price is not None
    assert plan.candidates == [Candidate(instance_type="trn1.32xlarge", usd_per_hour=round(2 * price, 2))]
    assert (plan.max_hours, plan.max_usd) == (10, round(20 * price, 2))
    assert plan.estimate is None
    assert "estimate  none: the spec names no number of steps, such as workload.arguments.max_steps" in plan_text(plan)


def test_spares_cost_as_much_as_the_nodes_of_the_gang() -> None:
    spec = parse_run_spec(spec_with(compute__spares=1))
    plan, without = plan_of(spec, region=REGION), plan_of(parse_run_spec(spec_with()), region=REGION)
    assert (plan.num_nodes, plan.spares, plan.processes) == (2, 1, without.processes)
    one = usd_per_hour("trn1.32xlarge", region=REGION)
    assert one is not None
    assert plan.candidates[0].usd_per_hour == pytest.approx(3 * one)
    assert "2 × trn1.32xlarge and 1 spare, 64 processes" in plan_text(plan)
    assert "2 × trn1.32xlarge, 64 processes" in plan_text(without)


def test_a_price_that_is_not_known_is_said_so() -> None:
    plan = plan_of(parse_run_spec(spec_of()), region="mars-1")
    assert (plan.candidates[0].usd_per_hour, plan.max_usd) == (None, None)
    assert "no price known an hour in mars-1" in plan_text(plan)


def test_an_earlier_run_of_the_same_shape_tells_how_long_it_takes() -> None:
    plan = plan_of(
        parse_run_spec(spec_of(max_steps=200)),
        region=REGION,
        earlier=[
            record_of(spec_of(max_steps=100), status=RunStatus.FAILED, run_id="failed"),
            record_of(spec_of(num_nodes=4, max_steps=100), run_id="larger"),
            record_of(spec_of(max_steps=100)),
        ],
    )
    price = plan.candidates[0].usd_per_hour
    assert price is not None
    # 200 steps of 36 s, and the hour around the training.
    assert plan.estimate == Estimate(hours=3.0, usd=round(3 * price, 2), run_id="old", seconds_per_step=36.0)
    assert "estimate  3 h 00 min for 200 steps" in plan_text(plan)
    assert plan.as_json()["estimate"]["run_id"] == "old"


def test_a_run_that_continued_another_counts_only_the_steps_that_it_trained() -> None:
    record = record_of(
        {**spec_of(max_steps=1000), "resume_from": ["old-1"], "checkpoint": {"path": "step-{step}.pt"}}
    ).model_copy(
        update={
            "training": Training(steps=1000),
            "metrics_published": MetricsPublished(datapoints=100, first_step=901, last_step=1000),
        }
    )
    plan = plan_of(parse_run_spec(spec_of(max_steps=200)), region=REGION, earlier=[record])
    assert plan.estimate is not None
    assert (plan.estimate.hours, plan.estimate.seconds_per_step) == (3.0, 36.0)


def test_a_run_of_the_twin_tells_no_price() -> None:
    spec = parse_run_spec(spec_of(max_steps=200))
    plan = plan_of(spec, region=REGION, earlier=[record_of(spec_of(max_steps=100))], of_twin=True)
    assert plan.estimate == Estimate(hours=3.0, usd=None, run_id="old", seconds_per_step=36.0)
    assert "estimate  3 h 00 min for 200 steps; by 36 s a step in old" in plan_text(plan)


@pytest.mark.parametrize("training", [None, Training(steps=0)])
def test_a_run_that_never_trained_tells_nothing(training: Training | None) -> None:
    record = record_of(spec_of(max_steps=100)).model_copy(update={"training": training})
    assert plan_of(parse_run_spec(spec_of(max_steps=200)), region=REGION, earlier=[record]).estimate is None


def stubbed_ec2(**answer: Any) -> Any:
    client = boto3.client("ec2", region_name=REGION, aws_access_key_id="id", aws_secret_access_key="secret")
    stubber = Stubber(client)
    if "error" in answer:
        stubber.add_client_error("describe_spot_price_history", answer["error"], "Not allowed.")
    else:
        asked = {"InstanceTypes": ["trn1.32xlarge"], "ProductDescriptions": ["Linux/UNIX"]}
        asked |= {"StartTime": BEGAN, "EndTime": BEGAN}
        stubber.add_response("describe_spot_price_history", {"SpotPriceHistory": answer["prices"]}, asked)
    stubber.activate()
    return client


def spot(zone: str, usd: str, *, hour: int) -> dict[str, Any]:
    at = BEGAN.replace(hour=hour)
    return {"InstanceType": "trn1.32xlarge", "AvailabilityZone": zone, "SpotPrice": usd, "Timestamp": at}


def test_the_spot_price_is_the_newest_one_of_the_zone_where_it_is_least() -> None:
    prices = [spot("us-west-2a", "1.5", hour=3), spot("us-west-2a", "9.5", hour=7), spot("us-west-2b", "8.25", hour=5)]
    found = spot_prices(stubbed_ec2(prices=prices), ["trn1.32xlarge", "trn1.32xlarge"], now=BEGAN)
    assert found == {"trn1.32xlarge": SpotPrice(usd_per_hour=8.25, zone="us-west-2b")}
    plan = plan_of(parse_run_spec(spec_of()), region=REGION, spot=found)
    assert (plan.candidates[0].spot_usd_per_hour, plan.candidates[0].spot_zone) == (16.5, "us-west-2b")
    assert "spot      16.50 USD an hour for trn1.32xlarge in us-west-2b, the cheapest now" in plan_text(plan)


def test_spot_prices_that_the_caller_may_not_ask_for_are_one_sentence() -> None:
    with pytest.raises(PlaceRefused, match=r"ec2:DescribeSpotPriceHistory: .*allowed"):
        spot_prices(stubbed_ec2(error="UnauthorizedOperation"), ["trn1.32xlarge"], now=BEGAN)
    plan = plan_of(parse_run_spec(spec_of()), region=REGION, spot_trouble="These credentials may not.")
    assert plan.candidates[0].spot_usd_per_hour is None
    assert "spot      price not known, so that the one on demand counts: These credentials may not." in plan_text(plan)


def test_a_plan_names_the_limits_at_which_the_whole_run_ends() -> None:
    spec = spec_of()
    spec["limits"] = {**spec.get("limits", {}), "max_total_hours": 48, "max_usd": 500}
    plan = plan_of(parse_run_spec(spec), region=REGION)
    assert plan.as_json()["run_limits"] == {"max_total_hours": 48.0, "max_usd": 500.0}
    assert "limits.max_total_hours 48.0, limits.max_usd 500.0, whichever comes first" in plan_text(plan)
    assert "ends at" not in plan_text(plan_of(parse_run_spec(spec_of()), region=REGION))


def tutorial(name: str, **arguments: Any) -> RunSpec:
    document: dict[str, Any] = yaml.safe_load(Path(f"runs/{name}.yaml").read_text())
    document["workload"]["arguments"] |= arguments
    return parse_run_spec(document)


def test_without_an_earlier_run_a_tutorials_recipe_is_estimated_by_its_published_figure() -> None:
    plan = plan_of(tutorial("bert-large"), region=REGION)
    price = usd_per_hour("trn1.32xlarge", region=REGION)
    assert plan.estimate is not None and price is not None
    # 28,125 steps of 16 × 32 sequences on each of 64 processes, at 6,450 sequences a second.
    assert plan.estimate.hours == pytest.approx(39.69, abs=0.01)
    assert plan.estimate.usd == pytest.approx(2 * price * 39.69, rel=0.001)
    assert (plan.total_steps, plan.estimate.run_id) == (28125, None)
    assert "; 5.08 s a step by published figures" in plan_text(plan)
    assert "log of the TorchX tutorial" in plan_text(plan)


def test_the_published_estimate_is_of_the_specs_own_steps_and_of_no_other_recipe() -> None:
    shorter = plan_of(tutorial("bert-large", max_steps=2812), region=REGION).estimate
    assert shorter is not None
    assert shorter.hours == pytest.approx(3.97, abs=0.01)
    assert plan_of(tutorial("bert-large", batch_size=8), region=REGION).estimate is None
    weak = plan_of(tutorial("bert-lamb-slurm-weak"), region=REGION).estimate
    assert weak is not None
    assert weak.hours == pytest.approx(35.68, abs=0.01)


@pytest.mark.parametrize("name", ["bert-large", "bert-lamb-slurm-weak"])
def test_the_published_recipes_have_the_steps_and_the_batch_of_the_program(name: str) -> None:
    spec = tutorial(name)
    figure = figure_of_spec(spec.model_dump(mode="json"))
    config = parse([*option_words(spec.workload.arguments), "--data_dir", "x", "--output_dir", "y"], {})
    assert figure is not None
    batch = config.optimization.micro_batch_size * config.optimization.gradient_accumulation_steps
    assert figure.sequences_per_step == batch * spec.compute.world_size
    assert figure.max_steps == config.optimization.max_steps


def test_a_plan_says_what_would_be_created_and_what_is_in_the_way() -> None:
    service = {"kind": "Service", "metadata": {"name": "bert-0-training-1"}}
    submission = {"name": "bert-0-publish-1", "script": "a\nb\n"}
    jobs = (
        PlannedJob(stage=Stage.TRAINING, name="bert-0-training-1", objects=(service,)),
        PlannedJob(
            stage=Stage.PUBLISH, name="bert-0-publish-1", objects=({"name": "bert-0-publish-1", "script": "a\nb\n"},)
        ),
    )
    planned = PlannedRun(jobs=jobs, problems=("compute.num_nodes is 17.",), notes=("workload: image.",))
    shown = plan_text(plan_of(parse_run_spec(spec_of()), region=REGION, planned=planned))
    assert "training  Service  bert-0-training-1\npublish   sbatch   bert-0-publish-1\n" in shown
    assert "The run could not start:\n  - compute.num_nodes is 17." in shown
    assert "Not checked, or known later:\n  - workload: image." in shown
    written = objects_text(planned)
    assert [*yaml.safe_load_all(written)] == [service, submission]
    assert "script: |\n  a\n  b\n" in written


def test_a_plan_names_the_bound_on_events_only_near_the_quota() -> None:
    plan = plan_of(parse_run_spec(spec_of()), region=REGION, planned_trouble="name a place.")
    assert "Step Functions allows" not in plan_text(plan)
    many = replace(plan, events=replace(plan.events, events=24_000))
    assert "24,000 of the 25,000 that Step Functions allows, in a year with all 100 attempts" in plan_text(many)


def test_a_plan_without_a_place_counts_events_and_says_what_it_does_not_know() -> None:
    plan = plan_of(parse_run_spec(spec_of()), region=REGION, planned_trouble="name a place.")
    assert plan.events.attempts == 100
    assert plan_text(plan).endswith("What the run would create was not asked: name a place.")
    found = plan.as_json()
    assert (found["jobs"], found["problems"], found["planned_trouble"]) == (None, None, "name a place.")
    spec = spec_of() | {"limits": {"max_restarts": 0}}
    assert plan_of(parse_run_spec(spec), region=REGION).events.attempts == 1
