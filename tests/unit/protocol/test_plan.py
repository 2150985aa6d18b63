"""A gang's plan: what is written is read again, and what is wrong is named by its field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol.plan import (
    MAX_PIECE,
    AbandonedLocks,
    Code,
    CompileCache,
    Elastic,
    Launch,
    LockedMemory,
    NodeTest,
    Plan,
    PlanInvalid,
    Precompile,
    Probe,
    Progress,
    Report,
    Resume,
    Secrets,
    SecretSource,
    parse_plan,
    to_text,
    to_words,
    with_texts,
)

LAUNCH = Launch(launcher="torchrun", num_nodes=2, processes=32, port=20001, program=("-m", "train", "--out", "/runs/a"))
WHOLE = Plan(
    secrets=Secrets(variables={"A": SecretSource(secret="/data/hub", key="token"), "B": SecretSource(secret="b")}),
    locked_memory=LockedMemory(mebibytes=5120),
    abandoned_locks=AbandonedLocks(job="run-training-2", caches=("/cache/runs/run",), results=("/runs/run",)),
    node_test=NodeTest(processes=32),
    compile_cache=CompileCache(source="/cache/key/run"),
    resume=Resume(path="step-{step}.pt", words=("--resume", "{checkpoint}"), marker="DONE", decision="run-training-1"),
    code=Code(folder="/workspace", requirements="requirements.txt", packages="/cache/runs/a/packages"),
    precompile=Precompile(retry_failed=True),
    progress=Progress(tensorboard="logs"),
    report=Report(volumes=("/models",)),
    launch=LAUNCH,
)
ELASTIC = Elastic(min_nodes=1, max_nodes=4, store="a-worker-0:20001", id="a", max_restarts=3)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def document(**changes: Any) -> dict[str, Any]:
    return {**json.loads(to_text(Plan(launch=LAUNCH))), **changes}


@pytest.mark.parametrize("plan", [WHOLE, Plan(launch=LAUNCH), Plan(probe=Probe(words=("--module", "train", "--")))])
def test_a_plan_is_read_as_it_was_written(plan: Plan) -> None:
    assert parse_plan(to_text(plan)) == plan


@given(st.lists(TEXTS, min_size=1, max_size=5), st.dictionaries(TEXTS, st.builds(SecretSource, secret=TEXTS)))
def test_any_words_arrive_as_they_were_written(program: list[str], variables: dict[str, SecretSource]) -> None:
    launch = Launch(launcher="none", num_nodes=1, processes=1, port=1, elastic=ELASTIC, program=tuple(program))
    plan = Plan(secrets=Secrets(variables=variables), launch=launch)
    assert parse_plan("".join(to_words(plan))) == plan


def test_a_plan_has_a_line_for_each_step_without_what_is_left_out() -> None:
    assert to_text(Plan(report=Report(), launch=LAUNCH)).splitlines() == [
        "{",
        '  "version": 1,',
        '  "report": {},',
        '  "launch": {"launcher": "torchrun", "num_nodes": 2, "processes": 32, "port": 20001, "program": '
        '["-m", "train", "--out", "/runs/a"]}',
        "}",
    ]


def test_a_plan_that_is_longer_than_linux_takes_in_one_word_is_several() -> None:
    launch = Launch(launcher="none", num_nodes=1, processes=1, port=1, program=("train", "€" * 3 * MAX_PIECE))
    words = to_words(Plan(launch=launch))
    assert len(words) == 4
    assert max(len(word.encode()) for word in words) < 128 * 1024


def test_the_steps_are_in_the_order_of_their_execution() -> None:
    assert [type(step) for step in WHOLE.steps] == [
        Secrets,
        LockedMemory,
        AbandonedLocks,
        NodeTest,
        CompileCache,
        Resume,
        Code,
        Precompile,
        Progress,
        Report,
        Launch,
    ]


def test_paths_are_changed_everywhere_but_in_the_names_of_secrets() -> None:
    changed = with_texts(WHOLE, lambda text: f"/fsx{text}" if text.startswith("/") else text)
    assert changed.secrets == WHOLE.secrets
    assert changed.compile_cache == CompileCache(source="/fsx/cache/key/run")
    assert changed.code is not None and changed.code.packages == "/fsx/cache/runs/a/packages"
    assert changed.launch is not None and changed.launch.program == ("-m", "train", "--out", "/fsx/runs/a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "plan: is not JSON"),
        ("[" * 100_000, "plan: is not JSON"),
        ("[]", "plan: has to be a JSON object"),
        ("{}", "version: has to be 1"),
        (json.dumps(document(version=2)), "version: has to be 1"),
        (json.dumps(document(version=True, launch=1)), "launch: has to be an object"),
        (json.dumps(document(secret={})), "secret: is not a field of a plan"),
        (json.dumps({"version": 1}), "launch: a plan needs either this or 'probe'"),
        (json.dumps(document(probe={"words": []})), "launch: a plan needs either this or 'probe'"),
        (json.dumps(document(node_test={})), "node_test.processes: is missing"),
        (json.dumps(document(node_test={"processes": "2"})), 'node_test.processes: has to be a whole number, got "2"'),
        (json.dumps(document(node_test={"processes": True})), "node_test.processes: has to be a whole number"),
        (json.dumps(document(report={"volumes": "/a"})), "report.volumes: has to be"),
        (json.dumps(document(report={"volumes": ["/a", 2]})), "report.volumes.1: has to be text, got 2"),
        (json.dumps(document(secrets={"variables": {"A": {}}})), "secrets.variables.A.secret: is missing"),
        (json.dumps(document(launch={"launcher": "ssh"})), "launch.num_nodes: is missing"),
        (json.dumps({**document(), "code": {"folder": "a", "packages": "b"}}), "code: needs requirements and packages"),
    ],
)
def test_a_text_that_is_not_a_plan_is_refused_with_the_name_of_the_field(text: str, message: str) -> None:
    with pytest.raises(PlanInvalid) as refused:
        parse_plan(text)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"launcher": "ssh"}, "launch.launcher: has to be 'torchrun' or 'none' or 'mpi', got \"ssh\""),
        ({"program": []}, "launch.program: needs the program's name"),
        ({"elastic": {**vars(ELASTIC), "id": 7}}, "launch.elastic.id: has to be text, got 7"),
    ],
)
def test_a_launch_that_cannot_be_executed_is_refused(changes: dict[str, Any], message: str) -> None:
    launch = {**json.loads(to_text(Plan(launch=LAUNCH)))["launch"], **changes}
    with pytest.raises(PlanInvalid) as refused:
        parse_plan(json.dumps(document(launch=launch)))
    assert str(refused.value).startswith(message)


def test_the_nodes_of_an_elastic_gang_are_not_tested() -> None:
    launch = Launch(launcher="torchrun", num_nodes=2, processes=1, port=1, elastic=ELASTIC, program=("a",))
    with pytest.raises(PlanInvalid, match="node_test"):
        Plan(node_test=NodeTest(processes=1), launch=launch)
