"""Libraries that cache below the home folder find a writable folder."""

from __future__ import annotations

from pathlib import Path

from trainer.runtime.user_cache import variables

NOWHERE = "/proc/no/home"  # no user can write there, root included


def test_caches_go_to_the_temporary_folder_if_home_is_not_writable(tmp_path: Path) -> None:
    assert variables({"HOME": NOWHERE, "TMPDIR": str(tmp_path)}) == {"XDG_CACHE_HOME": f"{tmp_path}/cache"}
    assert variables({"HOME": NOWHERE})["XDG_CACHE_HOME"].endswith("/cache")


def test_caches_stay_at_home_if_it_is_writable(tmp_path: Path) -> None:
    assert variables({"HOME": str(tmp_path)}) == {}
    (tmp_path / ".cache").mkdir()
    assert variables({"HOME": str(tmp_path)}) == {}


def test_a_folder_of_the_spec_is_kept() -> None:
    assert variables({"HOME": NOWHERE, "XDG_CACHE_HOME": "/cache/mine"}) == {}
