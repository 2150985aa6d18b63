from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.runtime import environment, program
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid, DatasetInvalid, PeerLost, Terminated
from trainflow.protocol import result


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time for which a process waited before it ended; the test itself does not wait."""
    waited: list[float] = []
    monkeypatch.setattr(program.time, "sleep", waited.append)
    return waited


def run(tmp_path: Path, outcome: Any, **environ: str) -> tuple[int, Any]:
    """Run a program with this outcome; its exit code and what it left in the result file."""

    def main(_argv: Sequence[str], _environment: Environment) -> Mapping[str, Any] | None:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    file = tmp_path / "result"
    code = program.run(main, [], {"TRAINFLOW_RESULT_FILE": str(file), **environ})
    return code, json.loads(file.read_text()) if file.exists() else None


def test_a_result_goes_into_the_pods_file(tmp_path: Path) -> None:
    assert run(tmp_path, {"steps": 3}) == (0, {"result": {"steps": 3}})


def test_bad_input_ends_with_2_and_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run(tmp_path, DatasetInvalid("The shard x is short; write it again."))
    assert (code, document) == (2, {"error": "DatasetInvalid", "message": "The shard x is short; write it again."})
    assert capsys.readouterr().err == "DatasetInvalid: The shard x is short; write it again.\n"


def test_an_unexpected_error_shows_its_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run(tmp_path, KeyError("x"))
    assert (code, document) == (1, {"error": "KeyError", "message": "KeyError: 'x'"})
    assert "Traceback" in capsys.readouterr().err


def test_sigterm_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    code, document = run(tmp_path, Terminated("Stopped."))
    assert (code, document["error"]) == (143, "Terminated")


def test_of_the_gang_only_rank_0_prints_and_only_one_process_a_pod_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = ConfigInvalid("Bad.")
    assert run(tmp_path, error, RANK="1", LOCAL_RANK="1", WORLD_SIZE="4") == (2, None)
    code, document = run(tmp_path, error, RANK="2", LOCAL_RANK="0", WORLD_SIZE="4")
    assert (code, document["error"]) == (2, "ConfigInvalid")
    assert capsys.readouterr().err == ""


def test_who_does_not_tell_a_common_error_lets_the_one_finish_that_does(tmp_path: Path, pauses: list[float]) -> None:
    """The launcher ends a pod's processes as soon as the first of them has left."""
    run(tmp_path, ConfigInvalid("Bad."), RANK="2", LOCAL_RANK="0", WORLD_SIZE="4")
    run(tmp_path, DatasetInvalid("Bad."), RANK="3", LOCAL_RANK="1", WORLD_SIZE="4")
    assert pauses == []
    run(tmp_path, ConfigInvalid("Bad."), RANK="3", LOCAL_RANK="1", WORLD_SIZE="4")
    assert pauses == [program.SECONDS_TO_SPEAK]


def test_who_is_ended_while_it_waits_leaves_without_another_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(_seconds: float) -> None:
        raise Terminated("Stopped.")

    monkeypatch.setattr(program.time, "sleep", ended)
    assert run(tmp_path, ConfigInvalid("Bad."), RANK="3", LOCAL_RANK="1", WORLD_SIZE="4") == (2, None)
    assert capsys.readouterr().err == ""


def test_what_only_one_rank_has_met_it_tells_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run(tmp_path, DatasetInvalid("Bad."), RANK="3", LOCAL_RANK="1", WORLD_SIZE="4")
    assert (code, document["error"]) == (2, "DatasetInvalid")
    assert capsys.readouterr().err == "DatasetInvalid: Bad.\n"


def test_the_victim_of_another_processs_death_does_not_claim_the_cause(tmp_path: Path) -> None:
    assert run(tmp_path, PeerLost("Rank 0 lost another process.")) == (1, None)


def test_a_rank_that_is_no_number_is_named(tmp_path: Path) -> None:
    code, _ = run(tmp_path, {}, RANK="zero")
    assert code == 2


@given(st.text(max_size=20000))
def test_a_failure_always_fits_into_a_termination_message(message: str) -> None:
    document = json.dumps(result.failure("DatasetInvalid", message), ensure_ascii=False).encode()
    assert len(document) <= 4096


def test_without_a_launcher_the_process_is_alone() -> None:
    alone = environment.read({})
    assert (alone.rank, alone.world_size, alone.precompile, alone.data_dir) == (0, 1, False, None)
