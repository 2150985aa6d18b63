"""A gang over EFA on a node whose containers may lock too little memory ends at its start, with a name."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.plans import supervised
from trainer.runtime.errors import LockedMemoryTooSmall
from trainer.steps.locked_memory import MIB, require
from trainflow.protocol.plan import LockedMemory

EIGHT_MIB = 8 * MIB


def devices(tmp_path: Path, vendor: str) -> Path:
    """A folder of one device of this PCI vendor, in the form that Linux shows it."""
    device = tmp_path / "rdmap0s6" / "device"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    return tmp_path


def test_efa_with_linuxs_default_limit_is_refused_with_figures_and_cure(tmp_path: Path) -> None:
    with pytest.raises(LockedMemoryTooSmall, match=r"lock 8 MiB.* 5120; .*capacity stack"):
        require(5120, soft_limit=EIGHT_MIB, devices=devices(tmp_path, "0x1d0f"))


@pytest.mark.parametrize("limit", [5120 * MIB, 2**50, resource.RLIM_INFINITY])
def test_enough_is_enough(tmp_path: Path, limit: int) -> None:
    require(5120, soft_limit=limit, devices=devices(tmp_path, "0x1d0f"))


def test_a_machine_without_efa_is_asked_for_nothing(tmp_path: Path) -> None:
    require(5120, soft_limit=EIGHT_MIB, devices=tmp_path / "none")
    require(5120, soft_limit=EIGHT_MIB, devices=devices(tmp_path, "0x15b3"))


def test_the_command_takes_the_place_of_the_check(tmp_path: Path) -> None:
    result = tmp_path / "result"
    program = [sys.executable, "-c", "import sys; sys.exit(7)"]
    done = subprocess.run(
        supervised(*program, locked_memory=LockedMemory(mebibytes=1)),
        env={**os.environ, "TRAINFLOW_RESULT_FILE": str(result)},
        check=False,
    )
    assert (done.returncode, result.exists()) == (7, False)


def test_a_command_that_cannot_be_started_is_said(tmp_path: Path) -> None:
    result = tmp_path / "result"
    done = subprocess.run(
        supervised("no-such-program", locked_memory=LockedMemory(mebibytes=1)),
        env={**os.environ, "TRAINFLOW_RESULT_FILE": str(result)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert "'no-such-program' cannot be" in json.loads(result.read_text())["message"]
