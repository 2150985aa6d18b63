"""Replays the recorded Kubernetes scenarios against kubetwin, and writes the outcomes into the documentation.

python tests/integration/kubernetes_contract.py        # shows the table
python tests/integration/kubernetes_contract.py PAGE   # puts it into a page in Markdown, in place of the one there
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection, write_kubeconfig
from kubetwin.node.agent import ProcessNode
from kubetwin.node.launching import RuntimeSettings
from kubetwin.node.registration import NodeSpec
from kubetwin.node.shape import read_shape
from kubetwin.server import ApiServer

ASSETS = Path(__file__).parents[1] / "recordings"
AT_ONCE = 8
"""Scenarios that run side by side: most of their time they wait."""

RECORDED_NODE = "local-0"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@dataclass(frozen=True)
class Difference:
    """Reason why the answer to a step differs from the recorded one."""

    reason: str
    timing: bool = False
    """Whether it may also match, depending on timing."""


@dataclass(frozen=True)
class Step:
    """Result of one step; `faults` is empty when the answer matches."""

    number: int
    label: str
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """Result of one scenario."""

    scenario: str
    description: str
    steps: tuple[Step, ...]

    @property
    def passed(self) -> int:
        return sum(not step.faults for step in self.steps)


def scenarios() -> list[Path]:
    """The recorded files."""
    return sorted(path for path in ASSETS.glob("*.json") if "steps" in json.loads(path.read_text()))


def known_differences() -> dict[tuple[str, int], Difference]:
    """The listed differences, by scenario and number of the step."""
    listed = json.loads((ASSETS / "known-differences.json").read_text())["differences"]
    return {
        (entry["scenario"], step): Difference(entry["reason"], entry.get("timing", False))
        for entry in listed
        for step in entry["steps"]
    }


def _replayer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("k8s_contract_replay", ASSETS / "replay.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def cluster(folder: Path) -> Iterator[ApiServer]:
    """An API server with the node of the recordings."""
    with ApiServer() as server:
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(kubeconfig, endpoint=server.endpoint, ca_pem=server.ca_pem, token=server.admin_token)
        spec = NodeSpec(name=RECORDED_NODE, shape=read_shape(ASSETS / "node-shape.yaml"))
        settings = RuntimeSettings(pods_dir=folder / "pods", allocatable=spec.shape.allocatable)
        node = ProcessNode(ApiClient(load_connection(kubeconfig)), spec, settings)
        node.start()
        try:
            yield server
        finally:
            node.stop()


def replay(server: ApiServer, folder: Path) -> dict[str, Outcome]:
    """Play all scenarios, those that share the node's state one after the other."""
    replayer = _replayer()
    authority = folder / "ca.crt"
    authority.write_text(server.ca_pem)
    client = replayer.Server(server.endpoint, server.admin_token, str(authority))
    recorded = [json.loads(path.read_text()) for path in scenarios()]

    def play(scenario: dict[str, Any]) -> Outcome:
        results, _ = replayer.run_scenario(client, scenario)
        steps = (_step(replayer, scenario, result) for result in results)
        return Outcome(scenario["name"], scenario["description"], tuple(steps))

    with ThreadPoolExecutor(AT_ONCE) as threads:
        outcomes = list(threads.map(play, (s for s in recorded if not s.get("serial"))))
    outcomes += [play(scenario) for scenario in recorded if scenario.get("serial")]
    return {outcome.scenario: outcome for outcome in outcomes}


def _step(replayer: ModuleType, scenario: dict[str, Any], result: dict[str, Any]) -> Step:
    faults = tuple(f"{path}: {message}" for path, message in result["hard"])
    return Step(result["n"], replayer.label(scenario["steps"][result["n"]]), faults)


def table(outcomes: dict[str, Outcome]) -> str:
    """The outcomes and the reasons of the differences, in Markdown."""
    known = known_differences()
    lines = ["| scenario | what it shows | steps that match |", "|---|---|---|"]
    for name, outcome in sorted(outcomes.items()):
        lines.append(f"| `{name}` | {outcome.description} | {outcome.passed} of {len(outcome.steps)} |")
    passed = sum(outcome.passed for outcome in outcomes.values())
    total = sum(len(outcome.steps) for outcome in outcomes.values())
    lines += ["", f"{passed} of {total} steps match ({100 * passed / total:.1f} %). The others:", ""]
    by_reason: dict[str, list[str]] = {}
    for (scenario, step), difference in known.items():
        by_reason.setdefault(difference.reason, []).append(f"`{scenario}` {step}")
    lines += [f"* {', '.join(steps)}: {reason}." for reason, steps in by_reason.items()]
    return "\n".join(lines)


def write_page(path: Path, text: str) -> None:
    """Replace the table of a page."""
    before, rest = path.read_text().split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as server:
        text = table(replay(server, Path(folder)))
    for page in sys.argv[1:]:
        write_page(Path(page), text)
    print(text)


if __name__ == "__main__":
    main()
