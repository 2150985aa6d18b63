"""Injects faults into runs of the twin and counts what they cost: runs lost, effects doubled, things left behind.

The parts; `--part` measures a single one:

* `cells`: every Task state, and every function of an event × {crash before it acts, crash after, time-out after}. The
  first try of every call fails. Seven kinds of run reach all states: one that succeeds with data and graphs, one whose
  worker dies, one that reaches a limit, one whose first instance type lacks capacity, one that cannot be polled, one
  whose log cannot be read, one that is refused. An upload, one that is refused, a run that is stopped and idle nodes
  reach all functions of events.
* `outages`: the Kubernetes API fails for a while, in each way, for five runs at once; and in each phase of a run.
* `stops`: runs that are stopped in the middle.
* `uploads`: 228 uploads of four contents, shuffled, 20 of them invalid.
* `recovery`: how long it takes to see a failure of each class that a twin can cause in a running job, and to submit the
  job again, beyond what the fault itself takes.
* `crowd`: 500 runs at once.
* `year`: a year of polls that may each fail, against the quota of the history.

A run is lost if it does not end as it would without faults; so are the steps of its log without a data point, and
messages that were not sent. Doubled are data points, messages and pods of gangs beyond those of a run without faults.
What is lost does not make up for what is doubled. Left are objects in the cluster, nodes, and messages of requests that
wait. The number of injected faults counts only faults: not runs, valid uploads or polls of a simulation.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kubetwin.troubles import Trouble

from benchmarks.api_outages import OF_FAILURES, OUTAGE_SECONDS, PHASES, OutageInEachPhase
from benchmarks.fault_cells import GANG, cells, kinds_of_runs
from benchmarks.fault_injection import Blindness, Mail, Plan
from benchmarks.fault_loads import crowd, stops, uploads, year
from benchmarks.fault_recovery import recovery
from benchmarks.fault_runs import TIME_SCALE, Expected, Part, Row, faulty_twin, outcome, steps
from benchmarks.result import BenchmarkFailed, Result, this_machine
from local.functions_gateway import FunctionsGateway


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
        for label, row in table.items():
            total.add(row)
            print(f"{name}: {label}: {asdict(row)}", file=sys.stderr, flush=True)
        measured[name] = {"rows": {label: asdict(row) for label, row in table.items()}, "seconds": seconds, **facts}
    return Result(
        benchmark="faults",
        ratios={name: getattr(total, name) for name in ("injected", "lost", "doubled", "left")},
        seconds={name: part.pop("seconds") for name, part in measured.items() if part["seconds"]},
        machine=this_machine(),
        details=measured,
    )


OUTAGES = {
    "429 for 60 s": (Trouble.THROTTLED, 60.0),
    "500 for 300 s": (Trouble.ERROR, 300.0),
    "401 for 60 s": (Trouble.UNAUTHORIZED, 60.0),
    "hang for 600 s": (Trouble.HANG, 600.0),
    "reset for 600 s": (Trouble.RESET, 600.0),
    "another authority for 600 s": (Trouble.OTHER_AUTHORITY, 600.0),
}
NUM_RUNS = 5
PHASES_OF_KINDS: Mapping[str, Sequence[str]] = {
    "demo": [phase for phase in PHASES if phase not in OF_FAILURES],
    "dying": [*OF_FAILURES, "tear-down"],
}


def outages() -> Part:
    """The API fails in the training of five runs, and in each phase of one that succeeds and of one that fails."""
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
            for kind, phases in PHASES_OF_KINDS.items():
                began, mail, name = (
                    time.monotonic(),
                    Mail(twin, f"phases-{kind}"),
                    f"503 for 600 s in each phase, {kind}",
                )
                outage = OutageInEachPhase(
                    gateway, Trouble.UNAVAILABLE, seconds=OUTAGE_SECONDS / TIME_SCALE, phases=phases
                )
                with outage, plan.replaced(outage):
                    table[name], _ = outcome(twin, {f"phases-{kind}-aa": kinds_of_runs()[kind]}, mail)
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
