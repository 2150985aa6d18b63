"""What may be uploaded: anything. What starts a run: a run spec."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lambdas.logic.run_requests import (
    Scheduled,
    Upload,
    execution_of_schedule,
    execution_of_upload,
    is_answered_by,
    parse_request,
)
from tests.fakes.runs import SPEC, spec_with
from tests.wording import wording
from trainflow.errors import InvalidRunSpec, RunRequestInvalid
from trainflow.spec.document import MAX_BYTES
from trainflow.workflow.leftovers import Execution as KnownExecution
from trainflow.workflow.run import run_id_for
from trainflow.workflow.run_status import RunStatus

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def upload(key: str = "runs/bert.yaml") -> Upload:
    return Upload(bucket="data", key=key, version_id=None)


def run_of_text(text: str, *, key: str = "runs/bert.yaml") -> Any:
    return execution_of_upload(upload(key), text.encode())


def event(key: str, **more: Any) -> str:
    """S3's event as EventBridge delivers it, with fields that are not read."""
    detail = {
        "version": "0",
        "bucket": {"name": "data"},
        "object": {"key": key, "size": 7, **more},
        "reason": "PutObject",
    }
    return json.dumps({"version": "0", "source": "aws.s3", "detail-type": "Object Created", "detail": detail})


def test_an_upload_is_known_by_bucket_key_and_version() -> None:
    request = parse_request(event("runs/my spec+1.yaml", **{"version-id": "v7"}))
    assert request == Upload(bucket="data", key="runs/my spec+1.yaml", version_id="v7")


def test_a_schedules_request_is_known_by_its_time() -> None:
    body = {"schedule": "nightly", "scheduled_at": "2026-11-21T02:00:00Z", "spec": SPEC}
    request = parse_request(json.dumps(body))
    assert request == Scheduled(schedule="nightly", scheduled_at="2026-11-21T02:00:00Z", spec=SPEC)


@pytest.mark.parametrize("key", ["runs/README.md", "runs/", "runs/spec.yaml.bak", "runs/yaml"])
def test_a_file_of_another_kind_is_refused_by_its_name(key: str) -> None:
    with pytest.raises(RunRequestInvalid, match="does not end as a run spec's does"):
        parse_request(event(key))


@settings(deadline=None)
@given(st.text() | JSON.map(json.dumps))
def test_any_other_message_is_refused_and_nothing_worse(body: str) -> None:
    with pytest.raises(RunRequestInvalid) as refused:
        parse_request(body)
    assert str(refused.value) == wording(
        "run_requests.any_other_message_is_refused_and_nothing_worse", "neither", "schedule"
    )


ENDED_AT = datetime(2026, 11, 21, 12, 0, 7, 654_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ended_at", "uploaded_at", "answered"),
    [
        (None, ENDED_AT, True),
        (ENDED_AT, None, False),
        (ENDED_AT, ENDED_AT.replace(second=6, microsecond=0), True),
        (ENDED_AT, ENDED_AT.replace(microsecond=0), False),
        (ENDED_AT, ENDED_AT.replace(second=8, microsecond=0), False),
    ],
    ids=["its run goes on", "of an unknown time", "before the end", "in the second of the end", "after the end"],
)
def test_an_upload_is_answered_by_a_run_that_had_not_ended_when_it_was_made(
    ended_at: datetime | None, uploaded_at: datetime | None, answered: bool
) -> None:
    made = Upload(bucket="data", key="runs/bert.yaml", version_id=None, uploaded_at=uploaded_at)
    status = RunStatus.SUCCEEDED if ended_at else RunStatus.RUNNING
    assert is_answered_by(made, KnownExecution(status=status, ended_at=ended_at)) is answered


def test_a_run_is_named_after_its_spec_and_takes_it_as_it_was_written() -> None:
    execution = run_of_text(yaml.safe_dump(SPEC))
    assert execution.name.startswith("bert-")
    assert len(execution.name) == len("bert-") + 12
    assert run_id_for(execution.name) == execution.name
    assert json.loads(execution.document) == SPEC


def test_layout_format_and_order_do_not_make_another_run() -> None:
    shuffled = dict(reversed(SPEC.items()))
    texts = {
        "runs/a.yaml": yaml.safe_dump(SPEC),
        "runs/b.yml": "# with a remark\n" + yaml.safe_dump(shuffled, sort_keys=False, default_flow_style=True),
        "runs/c.json": json.dumps(shuffled, indent=4),
    }
    assert len({run_of_text(text, key=key) for key, text in texts.items()}) == 1
    other = run_of_text(yaml.safe_dump(spec_with(compute__num_nodes=1)))
    assert other.name != run_of_text(texts["runs/a.yaml"]).name


def test_a_schedule_makes_one_run_for_each_of_its_times() -> None:
    def name(time: str) -> str:
        return execution_of_schedule(Scheduled(schedule="nightly", scheduled_at=time, spec=SPEC)).name

    assert name("2026-11-21T02:00:00Z") == name("2026-11-21T02:00:00Z")
    assert name("2026-11-21T02:00:00Z") != name("2026-11-22T02:00:00Z")


def test_a_schedule_with_a_bad_spec_is_refused_with_the_field() -> None:
    with pytest.raises(InvalidRunSpec, match=r"compute\.num_nodes"):
        execution_of_schedule(Scheduled(schedule="n", scheduled_at="t", spec=spec_with(compute__num_nodes=0)))


def test_a_file_that_is_gone_is_named() -> None:
    with pytest.raises(RunRequestInvalid, match=r"s3://data/runs/bert\.yaml is gone"):
        execution_of_upload(upload(), None)


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "uses an alias"),
        ("a: &a [*a]", "uses an alias"),
        ("- " * 30 + "x", "nests more than 20"),
        ("[" * 5000, "nests more than 20"),
        ("x" * (MAX_BYTES + 1), "larger than 128 KiB"),
        ("name: [unclosed", "not YAML at line 2, column 1"),
        ("when: 2026-13-45", "not YAML: month must be in 1..12; correct it, or put a text in quotes"),
        ("name: a\nname: b", "the field 'name' twice, the second time at line 2; remove one of them"),
        ("workload: {env: {A: x, A: y}}", "the field 'A' twice"),
        ("n: !!int ''", "not YAML"),
        ("o: !!python/object:os.system x", "not YAML"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("when: 2026-11-21", "a value at 'when' that JSON cannot hold .*put dates and the like in quotes"),
        (yaml.safe_dump(spec_with(workload__arguments={"rate": float("nan")})), "JSON cannot hold"),
        (
            yaml.safe_dump(spec_with(workload__arguments={"rate": 1})).replace("rate: 1", "rate: 0x" + "f" * 5000),
            "hold",
        ),
        ("", "must be a mapping"),
        ("just words", "must be a mapping"),
        ("{}", "version: this field is missing"),
        (yaml.safe_dump(spec_with(name="Not A Name")), "name: must begin with a lower-case letter"),
        (yaml.safe_dump(spec_with(flavour="vanilla")), "flavour: there is no such field"),
    ],
)
def test_what_is_no_run_spec_is_refused_in_a_sentence(text: str, reason: str) -> None:
    began = time.perf_counter()
    with pytest.raises(InvalidRunSpec, match=reason):
        run_of_text(text)
    assert time.perf_counter() - began < 5


def test_a_field_that_is_there_twice_in_json_is_refused() -> None:
    with pytest.raises(InvalidRunSpec, match=r"field 'a'.*twice"):
        run_of_text('{"a": 1, "a": 2}', key="runs/bert.json")


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"a": NaN}', "nonsense", '{"a": 1' + "0" * 5000 + "}"])
def test_what_is_no_json_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(InvalidRunSpec):
        run_of_text(text, key="runs/bert.json")


@pytest.mark.parametrize("key", ["runs/a.yaml", "runs/a.json"])
@settings(deadline=None)
@given(content=st.binary() | st.text().map(str.encode) | JSON.map(lambda value: json.dumps(value).encode()))
@example(content=b"\xef\xbb\xbf{}")
@example(content=b"=")
@example(content=b'"\\ud800": 1')
@example(content=b"? [a]\n: b")
@example(content=b"1: 1\na: 1")
def test_any_content_that_is_no_spec_is_refused_and_nothing_worse(key: str, content: bytes) -> None:
    with pytest.raises(InvalidRunSpec):
        execution_of_upload(upload(key), content)


FIELDS = [(section, field) for section, inner in SPEC.items() if isinstance(inner, dict) for field in inner]


@settings(deadline=None)
@given(where=st.sampled_from(FIELDS), value=JSON)
def test_any_value_in_any_field_starts_a_run_or_is_refused(where: tuple[str, str], value: Any) -> None:
    section, field = where
    spec = spec_with(**{f"{section}__{field}": value})
    try:
        execution = run_of_text(json.dumps(spec), key="runs/a.json")
    except InvalidRunSpec:
        return
    assert json.loads(execution.document) == spec
