"""Faults of a file reach the run: the example with the command, and states that call one function told apart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from local.fault_file import Faults, functions_of_states
from local.planned_faults import PlannedFaults
from local.twin import Twin
from tests.integration.commands import Commands
from tests.integration.test_runs import steps_spec
from tests.waiting import wait_until
from trainflow.state_machines import NAMES, definition

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "faults.yaml"
RUN_SECONDS = 300


@pytest.mark.slow
def test_the_example_is_injected_into_a_run_that_survives_it(tmp_path: Path) -> None:
    # The node is lost after the outage, which lasts ten seconds: the training has to go on then.
    spec = steps_spec(max_steps=60, seconds_per_step=0.4) | {"limits": {"max_restarts": 1}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    command = Commands(tmp_path).begin(
        *("run", "spec.yaml", "--local", "--no-page", "--time-scale", "60", "--image-root", str(REPOSITORY)),
        *("--faults", str(EXAMPLE)),
    )
    said, wrong = command.communicate(timeout=RUN_SECONDS)

    assert command.returncode == 0, said + wrong
    lines = said.splitlines()
    announced = [line.removeprefix("Fault: ") for line in lines if line.startswith("Fault: ")]
    told = [line.partition(": ") for line in lines if line.startswith(("Injected: ", "Never came: "))]
    assert [entry for _, _, entry in told] == announced
    assert [entry for outcome, _, entry in told if outcome == "Never came"] == [
        "call 1 of CollectDiagnostics fails with Runtime.ExitError, before the function has acted."
    ]
    (met,) = re.findall(r"^Requests of functions .* that met an outage: (\d+)\.$", said, re.MULTILINE)
    assert int(met) > 0
    record = json.loads((tmp_path / "out" / "latest" / "run.json").read_text())
    assert [restart["error"] for restart in record["restarts"]] == ["NodeLost"], "the node was lost, and nothing else"
    assert record["training"]["steps"] == 60


def test_a_command_with_a_bad_file_of_faults_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(steps_spec(max_steps=1)))
    (tmp_path / "faults.yaml").write_text("version: 1\nfunctions: [{state: PollJobs}]\n")
    run, root = Commands(tmp_path), ("--image-root", str(REPOSITORY))
    refused = run.refused("run", "spec.yaml", "--local", *root, "--faults", "faults.yaml")
    assert refused == (
        "trainflow: --faults faults.yaml: functions.0.state: must be a Task state that calls a function, got "
        "'PollJobs'; did you mean 'PollJob'?"
    )
    for command in (("run", "spec.yaml"), ("resume", "a-run")):
        assert run.refused(*command, "--faults", "faults.yaml") == (
            "trainflow: --faults: faults are injected in the twin only; give --local, too."
        )
    assert run.refused("run", "spec.yaml", "--local", "--faults", "none.yaml") == (
        "trainflow: --faults none.yaml: there is no such file."
    )
    assert not any((tmp_path / "out").iterdir())


def test_faults_of_the_cluster_are_refused_for_a_cluster_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(steps_spec(max_steps=1)))
    (tmp_path / "kubeconfig").touch()
    refused = Commands(tmp_path).refused(
        *("run", "spec.yaml", "--local", "--image-root", str(REPOSITORY)),
        *("--kubeconfig", "kubeconfig", "--faults", str(EXAMPLE)),
    )
    assert refused.endswith("kubernetes_api and nodes are faults of the twin's own cluster; leave out --kubeconfig.")


def test_a_fault_of_a_state_leaves_other_states_with_the_same_function_and_input_alone(tmp_path: Path) -> None:
    """A refused run writes its record in WriteRejectionRecord, which is given what WriteFailureRecord is given."""
    states = ("WriteRecord", "WriteFailureRecord", "WriteRejectionRecord")
    assert {functions_of_states()[state] for state in states} == {"WriteRecord"}
    faults = PlannedFaults(
        Faults.model_validate(
            {"version": 1, "functions": [{"state": state, "after_acting": True} for state in states]}
        ),
        time_scale=60,
    )
    with (
        Twin(
            home=tmp_path / "home",
            log_dir=tmp_path / "logs",
            time_scale=60,
            no_op_seconds=1.0,
            faults=faults,
            throttled=faults.throttle,
        ) as twin,
        faults.opened(twin),
    ):
        assert twin.deployment is not None
        stepfunctions, machine = twin.client("stepfunctions"), twin.deployment.address.state_machine_arn
        faults.started()
        arn = stepfunctions.start_execution(stateMachineArn=machine, name="refused", input='{"version": 1}')[
            "executionArn"
        ]
        wait_until(lambda: stepfunctions.describe_execution(executionArn=arn)["status"] != "RUNNING")
        events = stepfunctions.get_execution_history(executionArn=arn, maxResults=1000)["events"]
    entered = [each["stateEnteredEventDetails"]["name"] for each in events if "stateEnteredEventDetails" in each]
    assert "WriteRejectionRecord" in entered
    assert [sentence.split(":")[0] for sentence in faults.results()] == ["Never came", "Never came", "Injected"]
    assert [each["taskFailedEventDetails"]["error"] for each in events if "taskFailedEventDetails" in each][1:] == [
        "Runtime.ExitError"
    ]


def test_a_name_of_a_state_means_one_state() -> None:
    names = [name for text in NAMES for name in definition(text)["States"]]
    assert len(names) == len(set(names))
