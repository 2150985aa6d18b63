"""Caches that are made by one, marked when they are whole, and copied by everybody else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.plans import supervised
from trainer import precompile
from trainer.runtime.errors import CompileCacheGone, StorageFailed
from trainer.steps import compile_cache
from trainflow.protocol.plan import CompileCache


def make(folder: Path, **files: str) -> Path:
    """A cache that is whole."""
    compile_cache.begin(folder)
    for name, text in files.items():
        (folder / name).write_text(text)
    compile_cache.finish(folder, {"graphs": len(files)})
    return folder


def run(tmp_path: Path, *command: str, source: Path) -> subprocess.CompletedProcess[str]:
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    told = {**os.environ, "TRAINFLOW_RESULT_FILE": str(tmp_path / "result"), "TMPDIR": str(scratch)}
    return subprocess.run(
        supervised(*command, compile_cache=CompileCache(source=str(source))),
        env=told,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_works_on_a_copy(tmp_path: Path) -> None:
    source = make(tmp_path / "key" / "run", graph="NEFF")
    program = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["TRAINFLOW_CACHE_DIR"])
print((folder / "graph").read_text(), *(os.environ[name].removeprefix(str(folder)) for name in sys.argv[1:]))
(folder / "graph").write_text("spoilt")
"""
    names = ("TORCHINDUCTOR_CACHE_DIR", "NEURON_COMPILE_CACHE_URL", "TORCH_NEURONX_NEFF_CACHE_DIR")
    done = run(tmp_path, sys.executable, "-c", program, *names, source=source)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "NEFF /inductor /neuron /torch_neuronx"
    assert (source / "graph").read_text() == "NEFF"


def test_two_on_one_node_have_a_copy_each(tmp_path: Path) -> None:
    source = make(tmp_path / "key" / "run", graph="NEFF")
    assert compile_cache.copy(source, tmp_path) != compile_cache.copy(source, tmp_path)


def test_the_command_takes_the_programs_place_with_its_exit_code_and_its_signals(tmp_path: Path) -> None:
    source = make(tmp_path / "key" / "run")
    assert run(tmp_path, sys.executable, "-c", "raise SystemExit(7)", source=source).returncode == 7
    killed = run(tmp_path, sys.executable, "-c", "import os; os.kill(os.getpid(), 15)", source=source)
    assert killed.returncode == -signal.SIGTERM


@pytest.mark.parametrize("begun", [True, False])
def test_a_cache_that_is_not_there_or_not_whole_is_named(tmp_path: Path, begun: bool) -> None:
    source = tmp_path / "key" / "run"
    if begun:
        compile_cache.begin(source)
    done = run(tmp_path, sys.executable, "-c", "", source=source)
    assert done.returncode == 1
    document = json.loads((tmp_path / "result").read_text())
    assert document["error"] == "CompileCacheGone"
    assert str(source) in document["message"]


def test_a_cache_that_goes_while_it_is_copied_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(tmp_path / "key" / "run", graph="NEFF")

    def vanish(*_: object, **__: object) -> None:
        (source / "_READY").unlink()
        raise FileNotFoundError(2, "No such file", "graph")

    monkeypatch.setattr(shutil, "copy2", vanish)
    with pytest.raises(CompileCacheGone):
        compile_cache.copy(source, tmp_path)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda cache: (cache / "graph").write_text("NEFX"), "damaged: graph is not what was sealed"),
        (lambda cache: (cache / "graph").unlink(), "damaged: graph is missing"),
        (lambda cache: (cache / "_READY").write_text('{"graphs": 1}'), "_READY does not list its files"),
        (lambda cache: (cache / "_READY").write_text("["), "_READY does not list its files"),
        (lambda cache: (cache / "_READY").write_text('{"files": {"../graph": "0"}}'), "_READY does not list its files"),
        (lambda cache: (cache / "_READY").write_text('{"files": {"graph": 1}}'), "_READY does not list its files"),
        (lambda cache: (cache / "_READY").write_text('{"files": ["graph"]}'), "_READY does not list its files"),
    ],
)
def test_a_damaged_cache_is_named_and_compiled_again(tmp_path: Path, damage: Callable[[Path], Any], said: str) -> None:
    source = make(tmp_path / "key" / "run", graph="NEFF")
    damage(source)
    with pytest.raises(CompileCacheGone, match=said) as error:
        compile_cache.copy(source, tmp_path)
    assert str(source) in str(error.value)

    other = tmp_path / "key" / "other"
    for cache in (other, source):  # of another run, and of the run that sealed it
        compile_cache.begin(cache)
        assert [path.name for path in cache.iterdir()] == ["_BEGUN"]
    (source / "graph").write_text("NEFF")
    compile_cache.finish(source, {"graphs": 1})
    assert (compile_cache.copy(source, tmp_path) / "graph").read_text() == "NEFF"


def test_what_is_not_sealed_is_not_copied(tmp_path: Path) -> None:
    """Another process may leave its lock, or worse, after the cache is complete."""
    source = tmp_path / "key" / "run"
    compile_cache.begin(source)
    (source / "inner").mkdir()
    for name in ("inner/graph", "inner/graph.lock"):
        (source / name).touch()
    compile_cache.finish(source, {"graphs": 1})
    (source / "inner/graph.lock").unlink()
    (source / "evil.so").touch()
    copied = compile_cache.copy(source, tmp_path)
    assert [str(path.relative_to(copied)) for path in sorted(copied.rglob("*"))] == ["inner", "inner/graph"]


def test_a_sealed_cache_is_not_changed_in_place(tmp_path: Path) -> None:
    """A job that was thought lost may have sealed it before it is started again."""
    source = make(tmp_path / "key" / "run", graph="NEFF")
    compile_cache.begin(source)
    assert (source / "graph").read_text() == "NEFF"
    assert not (source / "_READY").exists()


def test_a_full_disk_is_no_missing_cache(tmp_path: Path) -> None:
    source = make(tmp_path / "key" / "run", graph="NEFF")
    with pytest.raises(StorageFailed, match="cannot be copied"):
        compile_cache.copy(source, tmp_path / "not" / "there")


def test_a_command_has_to_exist(tmp_path: Path) -> None:
    source = make(tmp_path / "key" / "run")
    done = run(tmp_path, "no-such-command", source=source)
    assert done.returncode == 2
    assert "'no-such-command'" in done.stderr


def test_a_new_owner_begins_with_what_an_earlier_one_left_whole(tmp_path: Path) -> None:
    make(tmp_path / "key" / "one", graph="NEFF")
    half = tmp_path / "key" / "half"
    compile_cache.begin(half)
    (half / "half").write_text("half")
    second = tmp_path / "key" / "two"
    compile_cache.begin(second)
    assert (second / "graph").read_text() == "NEFF"
    assert not (second / "_READY").exists()
    compile_cache.finish(second, {"graphs": 1})
    assert [folder.name for folder in (tmp_path / "key").iterdir()] == ["two"]


def test_nothing_but_caches_is_removed(tmp_path: Path) -> None:
    (tmp_path / "key" / "thesis").mkdir(parents=True)
    (tmp_path / "key" / "notes.txt").touch()
    make(tmp_path / "key" / "run")
    assert sorted(path.name for path in (tmp_path / "key").iterdir()) == ["notes.txt", "run", "thesis"]


def test_another_attempt_continues_in_the_same_folder(tmp_path: Path) -> None:
    folder = tmp_path / "key" / "run"
    compile_cache.begin(folder)
    (folder / "graph").write_text("NEFF")
    compile_cache.begin(folder)
    assert (folder / "graph").read_text() == "NEFF"


@pytest.mark.parametrize(("node_rank", "marked"), [("0", True), ("1", False)])
def test_the_gangs_first_node_marks_the_cache(tmp_path: Path, node_rank: str, marked: bool) -> None:
    folder = tmp_path / "key" / "run"
    command = ["--", sys.executable, "-c", "", "--node_rank", node_rank]
    assert precompile.main(command, {**os.environ, "TRAINFLOW_CACHE_DIR": str(folder)}) == 0
    assert (folder / "_READY").exists() is marked


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a file")
    told = {"TRAINFLOW_CACHE_DIR": str(tmp_path / "key" / "run"), "TRAINFLOW_RESULT_FILE": str(tmp_path / "result")}
    assert precompile.main(["--", sys.executable, "-c", ""], {**os.environ, **told}) == 1
    assert json.loads((tmp_path / "result").read_text())["error"] == "StorageFailed"
