"""A file of faults says what happens in one sentence each, and its faults happen once, at the call that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.aws.faults import Fault
from local.fault_file import Faults, read_faults
from local.planned_faults import PlannedFaults
from tests.wording import wording
from trainflow.client.place import PlaceUnavailable

CRASH = Fault(error="Runtime.ExitError")


def planned(text: str, folder: Path, *, time_scale: float = 1) -> PlannedFaults:
    return PlannedFaults(faults_in(text, folder), time_scale=time_scale)


def faults_in(text: str, folder: Path) -> Faults:
    path = folder / "faults.yaml"
    path.write_text(f"version: 1\n{text}\n")
    return read_faults(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("functions: [{state: PolJob}]", "functions.0.state: must be a Task state that calls a function"),
        ("functions: [{function: Poll}]", "functions.0.function: must be a function of trainflow"),
        ("functions: [{state: PollJob, error: Timedout}]", "functions.0.error: must be an error of Lambda"),
        ("functions: [{state: PollJob, function: PollJob}]", "functions.0: give either a state or a function"),
        ("functions: [{call: 2}]", "functions.0: a fault of a function needs a state or a function; add one."),
        ("functions: [{state: PollJob, call: 0}]", "functions.0.call: must be at least 1, got 0."),
        ("throttling: [{service: sqs}]", "throttling.0.service: must be 's3' or 'dynamodb', got 'sqs'."),
        ("throttling: [{service: s3, operation: GetItem}]", "throttling.0.operation: must be one of Abort"),
        ("throttling: [{service: s3, error: Throttling}]", "throttling.0.error: must be one of SlowDown"),
        ("kubernetes_api: [{state: PollJob}]", "kubernetes_api.0.trouble: this field is missing; add it."),
        ("kubernetes_api: [{trouble: '404'}]", "kubernetes_api.0.trouble: "),
        ("nodes: [{node: Node 1}]", "nodes.0.node: must be the name of a node"),
        ("node: []", "node: there is no such field; did you mean 'nodes'?"),
        ("functions: 3", "functions: must be a list, got 3."),
    ],
)
def test_a_file_at_fault_is_refused_in_one_sentence_with_the_field(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(PlaceUnavailable) as refusal:
        faults_in(text, tmp_path)
    assert str(refusal.value).startswith(f"--faults {tmp_path / 'faults.yaml'}: {sentence}")
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_no_document_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    for content, sentence in (
        (b"a: [", "The file is not YAML"),
        (b"- 1", "must be a mapping with 'version'"),
        (b"version: 2", "version: must be 1, got 2."),
    ):
        path.write_bytes(content)
        with pytest.raises(PlaceUnavailable, match=f": {sentence}"):
            read_faults(path)
    with pytest.raises(PlaceUnavailable, match=r"cannot be read \(Is a directory\)"):
        read_faults(tmp_path)


def test_the_example_has_a_fault_of_each_kind() -> None:
    faults = read_faults(Path("examples/faults.yaml"))
    assert all((faults.functions, faults.throttling, faults.kubernetes_api, faults.nodes))


def test_a_fault_happens_with_the_calls_that_it_names_and_no_others(tmp_path: Path) -> None:
    plan = planned("functions: [{function: PollJob, call: 2, calls: 2}]", tmp_path)
    assert plan("trainflow-PollJob", {}) is None, "no run has started, so this call is not counted"
    plan.started()
    assert [plan("trainflow-PollJob", {}) for _ in range(4)] == [None, CRASH, CRASH, None]
    assert plan("trainflow-Notify", {}) is None
    assert plan.results() == [
        wording(
            "planned_faults.a_fault_happens_with_the_calls_that_it_names_and_no_others", "PollJob", "Runtime.ExitError"
        )
    ]


def test_of_two_faults_of_one_call_the_second_one_waits_for_the_next_call(tmp_path: Path) -> None:
    plan = planned(
        "functions: [{function: PollJob}, {function: PollJob, error: Sandbox.Timedout, after_acting: true}]", tmp_path
    )
    plan.started()
    both = [plan("trainflow-PollJob", {}) for _ in range(3)]
    assert both == [CRASH, Fault(error="Sandbox.Timedout", after_acting=True), None]


def test_what_never_came_or_came_in_part_is_told(tmp_path: Path) -> None:
    text = "functions: [{state: DeleteJob}, {function: Notify, calls: 3}]\nthrottling: [{service: s3, request: 2}]"
    plan = planned(text, tmp_path)
    assert plan.announced() == [
        wording("planned_faults.what_never_came_or_came_in_part_is_told.1", "DeleteJob", "Runtime.ExitError"),
        wording("planned_faults.what_never_came_or_came_in_part_is_told.2", "Runtime.ExitError"),
        "Fault: request 2 of s3:* is throttled with SlowDown.",
    ]
    plan.started()
    plan("trainflow-Notify", {})
    assert [plan.throttle("s3", "GetObject"), plan.throttle("dynamodb", "GetItem")] == [None, None]
    assert [sentence.split(":")[0] for sentence in plan.results()] == [
        "Never came",
        "Injected 1 of 3 times",
        "Never came",
    ]
    assert plan.throttle("s3", "PutObject") == "SlowDown"


def test_an_operation_alone_is_throttled_with_the_code_that_was_asked_for(tmp_path: Path) -> None:
    text = "throttling: [{service: dynamodb, operation: PutItem, error: ThrottlingException}]"
    plan = planned(text, tmp_path)
    plan.started()
    asked = [plan.throttle("dynamodb", operation) for operation in ("GetItem", "PutItem", "PutItem")]
    assert asked == [None, "ThrottlingException", None]


def test_calls_before_the_time_of_a_fault_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("local.planned_faults.time.monotonic", lambda: now[0])
    plan = planned("functions: [{function: PollJob, after_seconds: 60}]", tmp_path, time_scale=10)
    plan.started()
    now[0] += 5.9
    assert plan("trainflow-PollJob", {}) is None
    now[0] += 0.2
    assert plan("trainflow-PollJob", {}) == CRASH
