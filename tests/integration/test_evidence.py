"""People see the traceback of the rank that failed first, wherever they look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local.aws.deployment import ARTIFACT_BUCKET
from local.twin import Twin
from tests.integration.ended_runs import run_to_its_end
from trainflow.client.messages import MESSAGES
from trainflow.page.logs import first_error
from trainflow.record.pod_messages import cause
from trainflow.spec.run_spec import parse_run_spec

PROGRAM = "tests/assets/programs/fails_on_rank.py"
PLACE = "fails_on_rank.py:14"


def spec(*, num_nodes: int, processes: int, bad_rank: int) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "evidence",
        "workload": {"script": PROGRAM, "image": "trainer:test", "arguments": {"bad_rank": bad_rank}},
        "compute": {
            "instance_type": "c7i.xlarge",
            "num_nodes": num_nodes,
            "processes_per_node": processes,
            "check_nodes": False,
        },
        "limits": {"max_restarts": 0},
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_nodes", "processes", "bad_rank", "bad_node"),
    [
        pytest.param(1, 2, 1, 0, id="rank 1 of two in one pod"),
        pytest.param(3, 1, 2, 2, id="the third of three pods"),
    ],
)
def test_the_rank_that_failed_first_is_what_people_see(
    twin: Twin, tmp_path: Path, num_nodes: int, processes: int, bad_rank: int, bad_node: int
) -> None:
    run_id = f"evidence-00000000000{num_nodes}"
    wanted = f"ValueError: batch 3 of rank {bad_rank} has a label of -1"
    parsed = parse_run_spec(spec(num_nodes=num_nodes, processes=processes, bad_rank=bad_rank))
    ended = run_to_its_end(twin, parsed, run_id, folder=tmp_path)
    error = ended.record.error
    assert error is not None and error.name == "ScriptFailed"
    assert (error.line, error.place, error.rank) == (wanted, PLACE, bad_rank)
    assert error.pod is not None and f"-training-1-{bad_node}" in error.pod
    assert f"{wanted} ({PLACE}, rank {bad_rank})" in error.message
    assert error.excerpt[0].startswith("Traceback") and error.excerpt[-1] == wanted
    assert ended.kept.error == error

    for shown in (ended.followed, ended.mail, ended.report):
        assert "in check" in shown and PLACE in shown
    assert "SignalException" not in ended.followed + ended.mail and "GLHF" not in ended.mail
    assert f"Evidence: {error.source}" in ended.mail
    assert f"evidence       {error.source}" in ended.followed

    stored = twin.client("s3").get_object(Bucket=ARTIFACT_BUCKET, Key=f"runs/{run_id}/diagnostics.json")
    first = json.loads(stored["Body"].read())["pods"][0]
    assert (first["pod"], first["evidence"]) == (error.pod, list(error.excerpt))

    pods = ended.record.jobs["training"].pods
    notes = {pod.name: cause(pod.name, pod.message or "", pod.exit_code, error) for pod in pods}
    assert notes[error.pod] == wanted
    assert not any(note.startswith(("before", "=")) for note in notes.values())
    # The Job controller ends the others, which may have lost their peer before that.
    others = {note for pod, note in notes.items() if pod != error.pod and note}
    assert all("Connection closed by peer" in note or note == "ended by SIGTERM" for note in others), others
    assert first_error(tmp_path / run_id / "logs" / f"{error.pod}.log") == wanted

    (mail,) = [path for path in (twin.log_dir / MESSAGES.name).glob("*.eml") if run_id in path.read_text()]
    assert mail.read_text().startswith(f"Subject: Trainflow: {run_id} FAILED: {PLACE}")
