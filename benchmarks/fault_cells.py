"""The cells of the table of faults: every function that a run calls or an event invokes, and each way to fail."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.fault_events import EVENTS, event_cell
from benchmarks.fault_injection import EVENT_FUNCTIONS, FAULTS, Blindness, FirstTries, Mail, Plan
from benchmarks.fault_runs import TIME_SCALE, Expected, Part, Row, faulty_twin, injected, outcome, steps
from local.twin import Twin
from trainflow.state_machines import NAMES, definition

REPOSITORY = Path(__file__).parent.parent
CELL_FAULTS = ("crash-before", "crash-after", "timed-out-after")
WITHOUT_CAPACITY = "g6.12xlarge"
GANG: Mapping[str, int] = {"training": 2}
"""Pods of a run without compilation that is never restarted."""
BLIND: Mapping[str, tuple[str, ...]] = {"unseen": ("PollJob",), "unread": ("PublishMetrics", "LocateRank0")}
"""Functions that also fail for a while in runs of a kind."""
BLIND_SECONDS = 6


def states_of_functions() -> frozenset[str]:
    """Every Task state that calls a function, as the definitions say."""
    return frozenset(
        name
        for text in NAMES
        for name, state in definition(text)["States"].items()
        if state["Type"] == "Task" and "lambda" in state["Resource"]
    )


def _demo(variant: int) -> dict[str, Any]:
    """The demo; another number stands for other graphs, which are in no compile cache."""
    spec: dict[str, Any] = yaml.safe_load((REPOSITORY / "runs" / "demo.yaml").read_text(encoding="utf-8"))
    spec["workload"]["arguments"] |= {"max_steps": 12, "warmup_steps": 2, "checkpoint_steps": 6, "compile": False}
    spec["workload"]["arguments"]["max_position_embeddings"] += variant
    return spec


def kinds_of_runs(variant: int = 0) -> dict[str, Expected]:
    """Runs that together reach every Task state, where no run before them had the same number."""
    scarce = {"instance_type": WITHOUT_CAPACITY, "fallback": ["g6e.12xlarge"]}
    return {
        "demo": Expected(
            spec=_demo(variant),
            points=12,
            pods={"precompile": 2, "training": 2},
            states=frozenset(
                {
                    "ValidateRun",
                    "Preflight",
                    "StageData",
                    "AcquireCache",
                    "EnsureCapacity",
                    "SubmitPrecompile",
                    "CheckCompilation",
                    "SubmitTraining",
                    "PollJob",
                    "LocateRank0",
                    "PublishMetrics",
                    "TearDown",
                    "PublishArtifacts",
                    "WriteRecord",
                    "Notify",
                }
            ),
        ),
        "dying": Expected(
            spec=steps(max_steps=3, dies_by_signal_at=3) | {"limits": {"max_restarts": 1, "restart_in_place": False}},
            status="FAILED",
            error="WorkerFailed",
            points=2,
            messages=["restarts", "FAILED"],
            pods={"training": 2 * 2},
            states=frozenset(
                {
                    "PublishLastMetrics",
                    "DeleteJob",
                    "NotifyRestart",
                    "CollectDiagnostics",
                    "TearDownAfterFailure",
                    "WriteFailureRecord",
                    "NotifyFailure",
                }
            ),
        ),
        "limited": Expected(
            spec=steps(max_steps=600) | {"limits": {"max_total_hours": 90 / 3600}},
            status="FAILED",
            error="DeadlineReached",
            messages=["nears its limit", "DeadlineReached"],
            pods=GANG,
            states=frozenset({"WarnOwner", "StopAtLimit", "PublishAtLimit"}),
        ),
        "scarce": Expected(
            spec=steps(max_steps=2) | {"compute": steps()["compute"] | scarce},
            points=2,
            pods=GANG,
            states=frozenset({"ReleaseNodes"}),
        ),
        "unseen": Expected(
            spec=steps(max_steps=3) | {"limits": {"blind_minutes": 0.03}},
            points=3,
            messages=["cannot be seen", "SUCCEEDED"],
            pods=GANG,
            states=frozenset({"TellOwner"}),
        ),
        "unread": Expected(
            spec=steps(max_steps=40, seconds_per_step=0.5) | {"limits": {"blind_minutes": 0.03}},
            points=40,
            messages=["has no readable log", "SUCCEEDED"],
            pods=GANG,
            states=frozenset({"TellOwnerOfLog"}),
        ),
        "refused": Expected(
            spec={"version": 1, "name": "refused"},
            status="FAILED",
            error="InvalidRunSpec",
            points=0,
            messages=["FAILED"],
            states=frozenset({"WriteRejectionRecord", "NotifyRejection"}),
        ),
    }


def cells() -> Part:
    """Every Task state, and every function of an event × every fault. A cell that was not reached is lost."""
    plan, table, seconds = Plan(), dict[str, Row](), dict[str, Any]()
    by_state, by_function = dict[str, Counter[str]](), dict[str, Counter[str]]()
    with faulty_twin(plan, time_scale=TIME_SCALE, without_capacity=[WITHOUT_CAPACITY]) as twin:
        for variant, fault in enumerate(CELL_FAULTS):
            began, by_state[fault], by_function[fault] = time.monotonic(), Counter(), Counter()
            for kind, expected in kinds_of_runs(variant).items():
                table[f"{fault} {kind}"], found = run_cell(twin, plan, fault, kind, expected)
                by_state[fault].update(found)
            for event in EVENTS:
                table[f"{fault} {event}"], found = event_cell(twin, plan, fault, event)
                by_function[fault].update(found)
            seconds[fault] = round(time.monotonic() - began, 1)
    for fault in CELL_FAULTS:
        missed = sorted(states_of_functions() - by_state[fault].keys())
        missed += sorted(EVENT_FUNCTIONS - by_function[fault].keys())
        if missed:
            table[f"{fault} elsewhere"] = Row(lost=len(missed), notes=[f"not reached: {', '.join(missed)}"])
    facts = {"injected_by_state": by_state, "injected_by_function": by_function}
    return table, seconds, {name: {fault: dict(found) for fault, found in each.items()} for name, each in facts.items()}


def run_cell(twin: Twin, plan: Plan, fault: str, kind: str, expected: Expected) -> tuple[Row, Counter[str]]:
    """A run of a kind whose calls all fail at the first attempt: its row, and the number of failures by state."""
    run_id, mail = f"{fault}-{kind}-aa", Mail(twin, f"{fault}-{kind}")
    first_tries = FirstTries(FAULTS[fault])
    blind = Blindness(*BLIND.get(kind, ()), error="ClusterUnavailable", seconds=BLIND_SECONDS)

    def both(function: str, event: Any) -> Any:
        return first_tries(function, event) or blind(function, event)

    with plan.replaced(both):
        row, executions = outcome(twin, {run_id: expected}, mail)
    found = Counter(injected(executions))
    row.injected = sum(found.values())
    return row, found
