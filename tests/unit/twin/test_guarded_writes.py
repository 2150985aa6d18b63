"""The file system of a function: /tmp is its own, and its program is read-only wherever that lies."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from local.aws import lambda_zygote


@pytest.mark.parametrize("event", ["open", "os.mkdir"])
def test_a_program_below_tmp_is_not_written_to_and_what_lies_beside_it_is(
    monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        program = Path(folder).resolve() / "checkout"
        monkeypatch.setattr(lambda_zygote, "PROGRAM", (str(program),))
        for path in (program, program / "lambdas/made"):
            with pytest.raises(OSError, match="Read-only file system"):
                lambda_zygote._refuse_writes(event, (str(path), "w", os.O_WRONLY))
        for path in (Path(f"{program}-2"), Path(folder, "made"), Path("/tmp")):
            lambda_zygote._refuse_writes(event, (str(path), "w", os.O_WRONLY))


def test_the_program_is_the_checkout_and_its_environment() -> None:
    assert str(Path(__file__).resolve()).startswith(lambda_zygote.PROGRAM[0] + "/")
