"""A page that is started again on its port knows the tabs of before, and nobody else's token."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from trainflow.page.kept_token import KEPT_SECONDS, kept_token


def test_a_page_on_the_same_port_has_the_same_token(tmp_path: Path) -> None:
    first = kept_token(8000, folder=tmp_path / "state")
    assert kept_token(8000, folder=tmp_path / "state") == first
    assert kept_token(8001, folder=tmp_path / "state") != first
    assert [oct(path.stat().st_mode & 0o777) for path in (tmp_path / "state").iterdir()] == ["0o600", "0o600"]


def test_an_old_token_is_replaced(tmp_path: Path) -> None:
    first, old = kept_token(1, folder=tmp_path), time.time() - KEPT_SECONDS - 60
    os.utime(tmp_path / "page-1.token", (old, old))
    assert kept_token(1, folder=tmp_path) != first


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o606])
def test_a_token_that_others_could_read_or_write_is_replaced(tmp_path: Path, mode: int) -> None:
    first = kept_token(1, folder=tmp_path)
    (tmp_path / "page-1.token").chmod(mode)
    assert kept_token(1, folder=tmp_path) != first


@pytest.mark.parametrize("text", ["", "x", "\n" * 43, "é" * 43])
def test_what_is_no_token_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "page-1.token"
    path.write_text(text)
    path.chmod(0o600)
    assert kept_token(1, folder=tmp_path) not in ("", text)


def test_a_folder_that_cannot_be_made_costs_only_the_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert len(kept_token(1, folder=tmp_path / "file" / "state")) == 43
