"""Injects faults into runs of the twin and counts what they cost: runs lost, effects doubled, things left behind.

The parts, each of which can be measured alone with `--part`:

* `cells`: every Task state × {crash before it acts, crash after, time-out after}. In a run, the first try of every call
  fails. Six kinds of run reach all states: one that succeeds with data and graphs, one whose worker dies, one that
  reaches a limit, one of which the first instance type has no capacity, one that cannot be polled, one that is refused.
* `outages`: the Kubernetes API fails for a while, in each way, for five runs at once.
* `stops`: runs that are stopped in the middle.
* `uploads`: 228 uploads of four contents, shuffled, 20 of them invalid.
* `recovery`: how long it takes to see a failure, and to start the job again, beyond what the fault itself takes.
* `crowd`: 500 runs at once.
* `year`: a year of polls, each of which may fail, against the quota of the history.

A run is lost if it does not end as it would without faults; so are the steps of its log without a data point, and
messages that were not sent. Doubled are data points, messages and pods of gangs beyond those of a run without faults.
What is lost does not make up for what is doubled. Left are objects in the cluster, nodes, and messages of requests that
wait. Injected are faults alone: runs, valid uploads and polls of a simulation are none.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from kubetwin.troubles import Trouble

from benchmarks.fault_loads import crowd, recovery, stops, uploads, year
from benchmarks.fault_runs import TIME_SCALE, Expected, Part, Row, faulty_twin, injected, outcome, steps
from benchmarks.result import BenchmarkFailed, Result, this_machine
from local.api_outages import FunctionsGateway, OutageInEachPhase
from local.fault_injection import FAULTS, Blindness, FirstTries, Mail, Plan
from local.twin import Twin
from trainflow.state_machines import NAMES, definition

REPOSITORY = Path(__file__).parent.parent
CELL_FAULTS = ("crash-before", "crash-after", "timed-out-after")
WITHOUT_CAPACITY = "g6.12xlarge"
GANG: Mapping[str, int] = {"training": 2}
"""Pods of a run without compilation that is never restarted."""


def run(parts: Sequence[str] = ()) -> Result:
    """Measures the parts that are named, or all.

    Raises:
        BenchmarkFailed: If a part cannot be measured.
    """
    unknown = set(parts) - PARTS.keys()
    if unknown:
        raise BenchmarkFailed(f"There is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}.")
    measured: dict[str, Any] = {}
    total = Row()
    for name in parts or PARTS:
        table, seconds, facts = PARTS[name]()
        for row in table.values():
            total.add(row)
        measured[name] = {"rows": {label: asdict(row) for label, row in table.items()}, "seconds": seconds, **facts}
    return Result(
        benchmark="faults",
        ratios={name: getattr(total, name) for name in ("injected", "lost", "doubled", "left")},
        seconds={name: part.pop("seconds") for name, part in measured.items() if part["seconds"]},
        machine=this_machine(),
        details=measured,
    )


def _demo(variant: int) -> dict[str, Any]:
    """The demo; another number stands for other graphs, which are in no compile cache."""
    spec: dict[str, Any] = yaml.safe_load((REPOSITORY / "runs" / "demo.yaml").read_text(encoding="utf-8"))
    spec["workload"]["arguments"] |= {"max_steps": 12, "warmup_steps": 2, "checkpoint_steps": 6, "compile": False}
    spec["workload"]["arguments"]["max_position_embeddings"] += variant
    return spec


def kinds_of_runs(variant: int = 0) -> dict[str, Expected]:
    """Runs that together reach every Task state, where no run before them had the same number."""
    scarce = {"instance_type": WITHOUT_CAPACITY, "fallback": ["g6e.12xlarge"], "num_nodes": 2, "processes_per_node": 1}
    return {
        "demo": Expected(spec=_demo(variant), points=12, pods={"precompile": 2, "training": 2}),
        "dying": Expected(
            spec=steps(max_steps=3, dies_by_signal_at=3) | {"limits": {"max_restarts": 1}},
            status="FAILED",
            error="WorkerFailed",
            points=2,
            messages=["restarts", "FAILED"],
            pods={"training": 2 * 2},
        ),
        "limited": Expected(
            spec=steps(max_steps=600) | {"limits": {"max_total_hours": 90 / 3600}},
            status="FAILED",
            error="DeadlineReached",
            messages=["nears its limit", "DeadlineReached"],
            pods=GANG,
        ),
        "scarce": Expected(spec=steps(max_steps=2) | {"compute": scarce}, points=2, pods=GANG),
        "unseen": Expected(
            spec=steps(max_steps=3) | {"limits": {"blind_minutes": 0.03}},
            points=3,
            messages=["cannot be seen", "SUCCEEDED"],
            pods=GANG,
        ),
        "refused": Expected(
            spec={"version": 1, "name": "refused"},
            status="FAILED",
            error="InvalidRunSpec",
            points=0,
            messages=["FAILED"],
        ),
    }


def cells() -> Part:
    """Every Task state × every fault."""
    plan, table, seconds = Plan(), dict[str, Row](), dict[str, Any]()
    met: dict[str, Counter[str]] = {}
    with faulty_twin(plan, time_scale=TIME_SCALE, without_capacity=[WITHOUT_CAPACITY]) as twin:
        for variant, fault in enumerate(CELL_FAULTS):
            began, met[fault] = time.monotonic(), Counter()
            for kind, expected in kinds_of_runs(variant).items():
                row, found = _cell(twin, plan, fault, kind, expected)
                table[f"{fault} {kind}"] = row
                met[fault].update(found)
            seconds[fault] = round(time.monotonic() - began, 1)
    every = {name for text in NAMES for name, state in definition(text)["States"].items() if _calls_a_function(state)}
    missed = {fault: sorted(every - found.keys()) for fault, found in met.items()}
    by_state = {fault: dict(found) for fault, found in met.items()}
    return table, seconds, {"injected_by_state": by_state, "missed": missed}


def _calls_a_function(state: Mapping[str, Any]) -> bool:
    return state["Type"] == "Task" and "lambda" in state["Resource"]


def _cell(twin: Twin, plan: Plan, fault: str, kind: str, expected: Expected) -> tuple[Row, Counter[str]]:
    run_id, mail = f"{fault}-{kind}-aa", Mail(twin, f"{fault}-{kind}")
    first_tries = FirstTries(FAULTS[fault])
    blind = Blindness("PollJob", error="ClusterUnavailable", seconds=6)

    def also_blind(function: str, event: Any) -> Any:
        return first_tries(function, event) or blind(function, event)

    with plan.replaced(also_blind if kind == "unseen" else first_tries):
        row, executions = outcome(twin, {run_id: expected}, mail)
    found = Counter(injected(executions))
    row.injected = sum(found.values())
    return row, found


OUTAGES = {
    "429 for 60 s": (Trouble.THROTTLED, 60.0),
    "500 for 300 s": (Trouble.ERROR, 300.0),
    "401 for 60 s": (Trouble.UNAUTHORIZED, 60.0),
    "hang for 600 s": (Trouble.HANG, 600.0),
    "reset for 600 s": (Trouble.RESET, 600.0),
    "another authority for 600 s": (Trouble.OTHER_AUTHORITY, 600.0),
}
NUM_RUNS = 5


def outages() -> Part:
    """The API fails in the training of five runs."""
    plan, table, seconds = Plan(), dict[str, Row](), dict[str, Any]()
    with faulty_twin(plan, time_scale=TIME_SCALE) as twin:
        gateway = FunctionsGateway(twin)
        with gateway.open():
            for number, (name, (trouble, length)) in enumerate(OUTAGES.items()):
                began, mail = time.monotonic(), Mail(twin, f"outage-{number}")
                runs = {
                    f"outage-{number}-{each}-aa": Expected(spec=steps(max_steps=5), points=5, pods=GANG)
                    for each in range(NUM_RUNS)
                }
                outage = OutageInEachPhase(gateway, trouble, seconds=length / TIME_SCALE, phases=["training"])
                with outage, plan.replaced(outage):
                    table[name], _ = outcome(twin, runs, mail)
                table[name].injected = len(outage.met)
                seconds[name] = round(time.monotonic() - began, 1)
            for function, error in (("PublishMetrics", "ServiceUnavailable"), ("PollJob", "ClusterAccessDenied")):
                mail, name = Mail(twin, f"outage-{function}"), f"{error} of {function} for 300 s"
                blind = Blindness(function, error=error, seconds=300 / TIME_SCALE)
                with plan.replaced(blind):
                    runs = {f"outage-{function.lower()}-aa": Expected(spec=steps(max_steps=5), points=5, pods=GANG)}
                    table[name], _ = outcome(twin, runs, mail)
                table[name].injected = blind.failed
    return table, seconds, {}


PARTS: Mapping[str, Callable[[], Part]] = {
    "cells": cells,
    "outages": outages,
    "stops": stops,
    "uploads": uploads,
    "recovery": recovery,
    "crowd": crowd,
    "year": year,
}
