"""A run of the twin without a checkpoint is not continued: the folder is at hand, so that no twin starts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from local.continued_runs import nothing_to_continue
from local.twin import REPOSITORY
from tests.fakes.runs import spec_with
from trainflow.cli.main import app
from trainflow.client.files import write_record
from trainflow.client.local_start import LocalStart, write_start
from trainflow.client.twin_address import HeldStart
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord, RunStatus, StateVisit

BEGAN = datetime(2026, 11, 22, 8, tzinfo=UTC)
OTHERS = spec_with(workload={"script": "train.py", "image": "i"}, checkpoint={"path": "step-{step}.json"}, dataset=None)
OURS = spec_with(dataset=None)

NO_CHECKPOINT = [
    (OTHERS, []),
    (OTHERS, ["train.log"]),
    (OTHERS, ["step-5.json"]),
    (OURS, []),
    (OURS, ["checkpoints/step-5.json"]),
]
"""Files of a run that has none; those with the name of a checkpoint are empty, and are incomplete therefore."""


def leave_files(runs: Path, run_id: str, names: list[str]) -> None:
    for name in names:
        (runs / run_id / name).parent.mkdir(parents=True, exist_ok=True)
        (runs / run_id / name).touch()


@pytest.mark.parametrize(("document", "names"), NO_CHECKPOINT)
@pytest.mark.parametrize("has_record", [True, False], ids=["ended", "killed"])
def test_a_run_without_a_checkpoint_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: dict[str, Any], names: list[str], has_record: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    out, runs = Path("out"), Path(".trainflow/volumes/runs")
    with HeldStart(out / "a-1"):
        write_start(out / "a-1", LocalStart(spec=document, image_root=tmp_path))
    if has_record:
        trained = StateVisit(name="SubmitTraining", entered_at=BEGAN)
        record = RunRecord(run_id="a-1", status=RunStatus.FAILED, spec=document, started_at=BEGAN, states=[trained])
        write_record(record, out / "a-1" / "run.json")
    leave_files(runs, "a-1", names)

    answer = CliRunner().invoke(app, ["resume", "a-1", "--local"])

    found = "there is no complete checkpoint of a-1" if names else "the folder of a-1 is gone from"
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"trainflow: The run a-1 cannot be continued: {found}")
    assert answer.stderr.count("\n") == 1
    assert [path.name for path in out.iterdir()] == ["a-1"]


@pytest.mark.parametrize(
    ("document", "names", "marker"),
    [(OTHERS, ["step-5.json"], "{}"), (OURS, ["checkpoints/step-5.json", "checkpoints/step-5.pt"], "")],
)
@pytest.mark.parametrize("at", ["a-2", "a-1"])
def test_a_run_with_a_checkpoint_or_an_earlier_one_with_it_is_continued(
    tmp_path: Path, document: dict[str, Any], names: list[str], marker: str, at: str
) -> None:
    spec = parse_run_spec({**document, "resume_from": ["a-2", "a-1"]})
    leave_files(tmp_path, at, names)
    (tmp_path / at / names[0]).write_text(marker)
    assert nothing_to_continue(spec, runs=tmp_path, repository=REPOSITORY) is None
