"""A run is stopped at every Task and Wait state of both texts, and nothing is left of it.

Step Functions ends a stopped execution at once and tells EventBridge, whose rule calls CleanUp. The function that the
state has called goes on. It may end before CleanUp begins, or act when CleanUp has ended: SurveyFleet deletes what it
makes then. Each function is told what its state tells it of a run in the middle of its way.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Literal

import pytest

from lambdas.backends.job import render
from lambdas.gateways import executions
from lambdas.gateways.compile_caches import CompileCaches
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.handlers import clean_up, survey_fleet
from lambdas.logic.jobs import job_of
from lambdas.logic.leftovers import GRACE
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import SPEC, STARTED_AT, run_of
from tests.unit.lambdas.conftest import CACHE_TABLE, CONTEXT, NAMESPACE, Aws
from trainflow.deployment.functions import TASKS
from trainflow.errors import TrainflowError
from trainflow.state_machines import NAMES, definition
from trainflow.workflow.compile_cache import CacheUse, Hold, new_lease
from trainflow.workflow.leftovers import Execution
from trainflow.workflow.run import MetricsCursor, Run, Spending, Stage
from trainflow.workflow.run_record import RunStatus
from trainflow.workflow.run_table import LastSurvey, row_of

pytestmark = pytest.mark.lengthy

Order = Literal["it ends before CleanUp", "it acts after CleanUp"]
ORDERS: tuple[Order, ...] = ("it ends before CleanUp", "it acts after CleanUp")

TYPE = "trn1.32xlarge"
RUN = run_of()
TRAINING = job_of(RUN, Stage.TRAINING, 1, artifacts_url="s3://artifacts/")
MODULES = {f"${{{function.name}}}": function.module for function in TASKS}
STATES = {f"{text}:{name}": state for text in NAMES for name, state in definition(text)["States"].items()}
TASK_STATES = [name for name, state in STATES.items() if "Payload" in state.get("Parameters", {})]
WAITING_STATES = [
    name for name, state in STATES.items() if state["Type"] in ("Task", "Wait") and name not in TASK_STATES
]
"""States without a function: those that wait for a time, and those that wait for a child execution, which is stopped
with its parent."""

NOW = datetime.now(UTC)
CACHE = CacheUse(key="key", folder=RUN.run_id, hold=Hold.LEASE)
VARIABLES: dict[str, Any] = {
    "run": RUN.model_dump(mode="json"),
    "next_run": None,
    "attempt": 2,
    "job": TRAINING.ref.model_dump(mode="json"),
    "training": TRAINING.ref.model_dump(mode="json"),
    "rank0": f"{TRAINING.ref.name}-0",
    "image_digest": "sha256:0123",
    "cache": CACHE.model_dump(mode="json"),
    "lost_cache": None,
    "cache_waiting_since": None,
    "staging": None,
    "waiting_since": NOW.isoformat(),
    "stopping_since": NOW.isoformat(),
    "spending": Spending().model_dump(mode="json"),
    "progress": MetricsCursor().model_dump(mode="json"),
    "phase": "running",
    "log_unread": False,
    "error": {"Error": "NodeLost", "Cause": "{}"},
    "restart": {"error": {"Error": "NodeLost", "Cause": "{}"}, "job": TRAINING.ref.model_dump(mode="json")},
    "ends_by": NOW.isoformat(),
    "blind_after": NOW.isoformat(),
    "unread_after": NOW.isoformat(),
    "unread_error": {"Error": "ClusterUnavailable", "Cause": "{}"},
    "warning": None,
    "record_warnings": [],
    "restarts_in_vain": 0,
    "artifacts": None,
    "record_folder": None,
    "run_folder": "s3://artifacts/runs/",
    **dict.fromkeys(("preflight_waited", "staging_waited", "nodes_waited", "publish_waited"), 0),
    **dict.fromkeys(("preflight_attempt", "staging_attempt", "publish_attempt"), 1),
}
CONTEXT_OBJECT = {
    "Execution": {"Name": RUN.run_id, "Id": RUN.execution_arn, "StartTime": STARTED_AT.isoformat()},
    "State": {"EnteredTime": NOW.isoformat()},
}

MAKERS = {
    "AcquireCache",
    "EnsureCapacity",
    "PublishArtifacts",
    "PublishAtLimit",
    "StageData",
    "SubmitPrecompile",
    "SubmitTraining",
}
"""States whose functions make something that has to go. So does Preflight, for a cluster that is examined in other
tests."""


def told(state: dict[str, Any]) -> dict[str, Any]:
    """The event of the function that a state calls."""
    return {key.removesuffix(".$"): _value(key, given) for key, given in state["Parameters"]["Payload"].items()}


def _value(key: str, given: Any) -> Any:
    if not key.endswith(".$"):
        return given
    if given == "$":
        return SPEC
    found: Any = CONTEXT_OBJECT if given.startswith("$$.") else VARIABLES
    for name in re.sub(r"^\$+\.?", "", given).split("."):
        found = found[name]
    return found


def act(name: str) -> None:
    """Let the function end that a state has called. What it raises changes nothing: the execution has been stopped."""
    state = STATES[name]
    handler = import_module(f"lambdas.handlers.{MODULES[state['Parameters']['FunctionName']]}").lambda_handler
    try:
        handler(json.loads(json.dumps(told(state))), CONTEXT)
    except TrainflowError as error:
        assert name.rsplit(":", 1)[1] not in MAKERS, f"{error!r}: then it would make nothing"


def clean() -> None:
    detail = {
        "executionArn": RUN.execution_arn,
        "name": RUN.run_id,
        "status": "ABORTED",
        "stopDate": int(NOW.timestamp() * 1000),
        "input": None,
        "error": None,
    }
    clean_up.lambda_handler({"detail": detail}, CONTEXT)


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, begun_history: None) -> Execution:
    """The run's execution, as Step Functions describes it after the stop."""
    execution = Execution(status=RunStatus.ABORTED, ended_at=NOW - GRACE - timedelta(minutes=1))
    monkeypatch.setattr(executions, "describe", lambda _arn: execution)
    return execution


@pytest.fixture
def run(aws: Aws, cluster: FakeKubernetesApi, stopped: Execution) -> Run:
    """A run that trains: it has a row, a claim, a lease, two nodes, a job with its service, and its pods."""
    aws.add_nodegroup(TYPE, desired=2)
    aws.table.begin(row_of(RUN))
    CompileCaches(CACHE_TABLE).lease(new_lease(RUN, CACHE.key, now=NOW), instead_of=None)
    backend = KubernetesCluster(cluster, namespace=NAMESPACE)
    backend.claim_nodes(RUN.run_id, TYPE, 2)
    backend.create(render(TRAINING))
    return RUN


def left(aws: Aws, cluster: FakeKubernetesApi) -> list[str]:
    """What is there of the run. The list of grants stays, in which a run counts only with its claim."""
    objects = [f"{kind}/{name}" for kind, name in sorted(cluster.objects) if not name.startswith("granted-")]
    leases = [f"lease/{lease.cache_key}" for lease in CompileCaches(CACHE_TABLE).leases()]
    return [*objects, *leases, *[f"node/{number}" for number in range(aws.desired(TYPE))]]


def survey(aws: Aws) -> None:
    """Two surveys: the first deletes what is left, the second finds the nodes idle for long enough."""
    survey_fleet.lambda_handler({}, CONTEXT)
    last = aws.table.last_survey()
    assert last is not None
    idle = {each: NOW - timedelta(minutes=31) for each in last.idle_since}
    aws.table.remember(LastSurvey(surveyed_at=last.surveyed_at, idle_since=idle), previous=last)
    survey_fleet.lambda_handler({}, CONTEXT)


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", TASK_STATES)
def test_nothing_is_left_of_a_run_that_is_stopped_while_a_function_works(
    aws: Aws, cluster: FakeKubernetesApi, name: str, order: Order
) -> None:
    if order == "it ends before CleanUp":
        act(name)
        clean()
    else:
        clean()
        act(name)
        survey(aws)
    assert left(aws, cluster) == []


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("name", WAITING_STATES)
def test_nothing_is_left_of_a_run_that_is_stopped_while_it_waits(
    aws: Aws, cluster: FakeKubernetesApi, name: str
) -> None:
    assert len(left(aws, cluster)) == 6
    clean()
    assert left(aws, cluster) == []


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("name", sorted(f"training:{name}" for name in MAKERS))
def test_what_a_state_makes_would_be_left_without_the_survey(aws: Aws, cluster: FakeKubernetesApi, name: str) -> None:
    """So that the tests above can fail."""
    aws.add_nodegroup(TYPE)
    aws.table.begin(row_of(RUN))
    clean()
    assert left(aws, cluster) == []
    act(name)
    made = left(aws, cluster)
    assert made != []
