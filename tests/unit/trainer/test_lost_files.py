"""Files that a program leaves in its working folder are found, whatever is there, and reported once for all nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.fakes.plans import supervised
from trainer import lost_files
from trainer.lost_files import Gang, Kept, is_ignored
from trainflow.protocol import variables
from trainflow.protocol.lost_files import LostFile, LostFiles, lost_files_line, parse_lost_files_line
from trainflow.protocol.plan import Report

NOWHERE = Kept(kept=())


def long_ago(path: Path) -> Path:
    os.utime(path, (0, 0))
    return path


def write(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def begun(folder: Path) -> int:
    """The beginning of a program; what the test writes next is newer."""
    began = lost_files.beginning(folder)
    while lost_files.beginning(folder) == began:  # the clock of a file system ticks every few milliseconds
        pass
    return began


def found_in(folder: Path, began: int, not_searched: Kept = NOWHERE, *, seconds: float = 60.0) -> list[tuple[str, int]]:
    found = lost_files.lost_files(folder, began, not_searched, deadline=time.monotonic() + seconds)
    return [] if found is None else [(file.name, file.num_bytes) for file in found.largest]


def test_new_and_changed_files_are_found_the_largest_first(tmp_path: Path) -> None:
    for name in ("train.py", "config.yaml"):
        write(tmp_path / name)
    began = begun(tmp_path)
    write(tmp_path / "config.yaml", b"changed")
    write(tmp_path / "checkpoints/last.pt", b"checkpoint")
    write(tmp_path / "model.pt", b"the largest of all")
    assert found_in(tmp_path, began) == [("model.pt", 18), ("checkpoints/last.pt", 10), ("config.yaml", 7)]


def test_code_that_was_touched_and_data_that_was_unpacked_are_no_results(tmp_path: Path) -> None:
    write(tmp_path / "run.sh")
    began = begun(tmp_path)
    (tmp_path / "run.sh").chmod(0o755)
    long_ago(write(tmp_path / "data/images.bin"))
    assert found_in(tmp_path, began) == []


def test_what_is_no_result_by_its_name_is_passed_over(tmp_path: Path) -> None:
    began = begun(tmp_path)
    for name in ("__pycache__/a.pyc", ".git/HEAD", ".cache/x/y", "a.pyc", "core.123", "pkg.egg-info/PKG-INFO"):
        write(tmp_path / name)
    for name in ("neuronxcc-7f3a/graph.neff", "log-neuron-cc.txt", "aPostSPMDPassesExecutionDuration.txt"):
        write(tmp_path / name)
    write(tmp_path / "empty", b"")
    (tmp_path / "link").symlink_to(Path(sys.executable))
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert found_in(tmp_path, began) == []


@pytest.mark.parametrize("name", ["model.pt", "output", "core.py", "tmp_trainer", "wandb", "lightning_logs", "core"])
def test_results_of_common_programs_are_not_ignored(name: str) -> None:
    assert not is_ignored(name, is_folder=True)


def test_folders_that_outlast_the_pod_or_are_temporary_are_not_searched(tmp_path: Path) -> None:
    began = begun(tmp_path)
    for name in ("run/model.pt", "volume/a.pt", "tmp/b.pt", "link-target/c.pt", "d.pt"):
        write(tmp_path / name)
    (tmp_path / "kept").symlink_to(tmp_path / "link-target")
    kept = Kept(kept=(tmp_path / "run", tmp_path / "volume", tmp_path / "kept"), temporary=(tmp_path / "tmp",))
    assert found_in(tmp_path, began, kept) == [("d.pt", 1)]
    assert found_in(tmp_path / "run", began, kept) == []


def test_in_a_working_folder_for_temporary_files_too_those_of_python_are_passed_over(tmp_path: Path) -> None:
    began = begun(tmp_path)
    for name in ("tmpab12_xyz/x", "torchelastic_ab/x", "pymp-ab/x", "tmp_results.pt", "model.pt"):
        write(tmp_path / name)
    assert found_in(tmp_path, began, Kept(kept=(), temporary=(tmp_path,))) == [("model.pt", 1), ("tmp_results.pt", 1)]


def test_names_that_are_not_utf_8_or_have_line_breaks_are_escaped(tmp_path: Path) -> None:
    began = begun(tmp_path)
    write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/latin\xe9.pt")))
    write(tmp_path / "two\nlines")
    assert sorted(name for name, _ in found_in(tmp_path, began)) == ["latin\\xe9.pt", "two\\nlines"]


def test_a_deep_tree_is_searched_as_far_as_paths_are_valid(tmp_path: Path) -> None:
    began, place = begun(tmp_path), Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(60):  # far beyond PATH_MAX
            Path("d" * 100).mkdir()
            os.chdir("d" * 100)
            Path("model.pt").write_bytes(b"x")
    finally:
        os.chdir(place)
    names = [name for name, _ in found_in(tmp_path, began)]
    assert len(names) > 20 and all(name.endswith("model.pt") for name in names)
    subprocess.run(["rm", "-rf", str(tmp_path / ("d" * 100))], check=True)


def test_folders_that_vanish_or_cannot_be_read_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = begun(tmp_path)
    for name in ("gone/x", "secret/x", "model.pt"):
        write(tmp_path / name)
    scandir = os.scandir

    def refusing(path: str) -> object:
        if path.endswith("gone"):
            raise FileNotFoundError(path)
        if path.endswith("secret"):
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert found_in(tmp_path, began) == [("model.pt", 1)]


def test_a_search_that_takes_too_long_reports_what_it_has_seen(tmp_path: Path) -> None:
    began = begun(tmp_path)
    for index in range(20):
        write(tmp_path / f"{index}.pt")
    ticks = iter([0.0] * 10 + [1.0] * 1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainer.lost_files.time.monotonic", lambda: next(ticks))
        found = lost_files.lost_files(tmp_path, began, NOWHERE, deadline=0.5)
    assert found is not None and found.is_partial and 0 < found.num_files < 20


def test_of_many_files_the_largest_are_named_and_all_are_counted(tmp_path: Path) -> None:
    began = begun(tmp_path)
    for index in range(lost_files.MAX_COMPARED + 5):
        write(tmp_path / str(index), b"x" * (index + 1))
    found = lost_files.lost_files(tmp_path, began, NOWHERE, deadline=time.monotonic() + 60)
    assert found is not None
    assert (found.num_files, len(found.largest)) == (lost_files.MAX_COMPARED + 5, lost_files.MAX_COMPARED)
    assert found.largest[0] == LostFile(name=str(lost_files.MAX_COMPARED + 4), num_bytes=lost_files.MAX_COMPARED + 5)


def gang(folder: Path, node: int, *, num_nodes: int, attempt: str = "1") -> Gang:
    return Gang(node=str(node), num_nodes=num_nodes, speaks=node == 0, folder=folder, attempt=attempt)


@pytest.mark.parametrize("num_nodes", [2, 3, 5, 7])
@pytest.mark.parametrize("last", [0, 1])
def test_node_0_reports_the_files_of_all_nodes_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, num_nodes: int, last: int
) -> None:
    monkeypatch.setattr(lost_files, "OTHER_NODES_SECONDS", 100.0)  # other tests may use the same processors
    monkeypatch.setattr(lost_files, "LONGEST_SECONDS", 100.0)

    def end(node: int) -> None:
        folder = tmp_path / f"node-{node}"
        folder.mkdir()
        began = begun(folder)
        write(folder / "model.pt", b"model")
        if node == 1:
            write(folder / "of-node-1.pt")
        lost_files.report(folder, began, gang(tmp_path / "shared", node, num_nodes=num_nodes), NOWHERE, succeeded=True)

    order = sorted(range(num_nodes), key=lambda node: (node == last, node))
    threads = [threading.Thread(target=end, args=(node,)) for node in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (line,) = capfd.readouterr().out.splitlines()
    assert parse_lost_files_line(line) == LostFiles(
        num_files=2,
        num_bytes=6,
        largest=(
            LostFile(name="model.pt", num_bytes=5, num_nodes=num_nodes),
            LostFile(name="of-node-1.pt", num_bytes=1),
        ),
    )


def test_node_0_does_not_wait_for_others_after_a_failure_and_says_that_there_may_be_more(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.lost_files.time.sleep", lambda _: pytest.fail("waited"))
    began = begun(tmp_path)
    for index in range(9):
        write(tmp_path / "work" / f"{index}.pt")
    lost_files.report(tmp_path / "work", began, gang(tmp_path / "s", 0, num_nodes=2), NOWHERE, succeeded=False)
    found = parse_lost_files_line(capfd.readouterr().out)
    assert found is not None
    assert (found.num_files, len(found.largest), found.is_partial) == (9, lost_files.NAMED_OF_A_FAILURE, True)


def test_reports_of_an_earlier_attempt_and_damaged_ones_are_passed_over(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shared, of_node_1 = tmp_path / "s", LostFiles(num_files=1, num_bytes=9, largest=(LostFile(name="a", num_bytes=9),))
    write(shared / "lost-files-1/1", lost_files_line(of_node_1).encode())
    write(shared / "lost-files-2/1", b"\xff" * 5000)
    began = begun(tmp_path)
    lost_files.report(tmp_path, began, gang(shared, 0, num_nodes=2, attempt="2"), Kept(kept=(shared,)), succeeded=True)
    assert capfd.readouterr().out == ""


def test_a_shared_folder_that_cannot_be_written_is_one_line_on_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "file")
    lost_files.report(tmp_path, begun(tmp_path), gang(tmp_path / "file/x", 0, num_nodes=2), NOWHERE, succeeded=True)
    told = capfd.readouterr()
    assert told.out == "" and told.err.startswith("trainer.lost_files: NotADirectoryError")


ENDS = {
    "success": ("", 0),
    "exit code": ("raise SystemExit(7)", 7),
    "without clean-up": ("os._exit(9)", 9),
    "killed": ("os.kill(os.getpid(), 9)", 137),
    "exception": ("raise ValueError", 1),
}


def around(folder: Path, program: str, *, stage: str = "training", volumes: tuple[Path, ...] = ()) -> list[str]:
    """The command that starts a program in a folder, with a report."""
    environment = (f"{variables.STAGE}={stage}", f"{variables.RUN_DIR}={folder / 'run'}", f"PYTHONPATH={Path.cwd()}")
    report = Report(volumes=tuple(map(str, volumes)))
    return ["env", f"--chdir={folder}", *environment, *supervised(sys.executable, "-c", program, report=report)]


@pytest.mark.parametrize("end", ENDS)
def test_the_files_are_reported_however_the_program_ends_and_its_exit_code_stays(tmp_path: Path, end: str) -> None:
    text, code = ENDS[end]
    program = f"import os\nopen('model.pt', 'w').write('model')\n{text}"
    done = subprocess.run(around(tmp_path, program), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    found = parse_lost_files_line(done.stdout.splitlines()[-1])
    assert found is not None and found.largest == (LostFile(name="model.pt", num_bytes=5),)


def test_a_program_that_is_asked_to_end_saves_its_state_first(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        "def end(*_):\n    open('last.pt', 'w').write('state')\n    sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1)"
    )
    with subprocess.Popen(around(tmp_path, program), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
    found = parse_lost_files_line(said.splitlines()[-1])
    assert found is not None and found.largest[0].name == "last.pt"
    assert process.returncode == 143


@pytest.mark.parametrize("stage", ["precompile", ""])
def test_a_precompilation_has_no_results(tmp_path: Path, stage: str) -> None:
    command = around(tmp_path, "open('model.pt', 'w').write('model')", stage=stage)
    assert subprocess.run(command, capture_output=True, timeout=120, check=True).stdout == b""


def test_a_file_in_a_volume_or_in_the_runs_folder_is_not_lost(tmp_path: Path) -> None:
    for name in ("run", "volume"):
        (tmp_path / name).mkdir()
    program = "[open(f'{name}/model.pt', 'w').write('model') for name in ('run', 'volume')]"
    command = around(tmp_path, program, volumes=(tmp_path / "volume",))
    assert subprocess.run(command, capture_output=True, timeout=120, check=True).stdout == b""


def test_a_slurm_job_reports_by_a_program_of_its_own(tmp_path: Path) -> None:
    began = begun(tmp_path) / 1e9
    write(tmp_path / "model.pt", b"model")
    flags = ("--folder", str(tmp_path), "--began", f"{began:.9f}", "--exit_code", "3")
    done = subprocess.run(
        [sys.executable, "-m", "trainer.lost_files", *flags], capture_output=True, text=True, timeout=120, check=True
    )
    found = parse_lost_files_line(done.stdout)
    assert found is not None and found.largest == (LostFile(name="model.pt", num_bytes=5),)


def test_models_in_the_home_folder_and_in_tmp_of_a_pod_are_named_with_their_paths(tmp_path: Path) -> None:
    home, temporary, work = tmp_path / "home", tmp_path / "tmp", tmp_path / "work"
    for place in (home / ".cache", temporary, work):
        place.mkdir(parents=True)
    program = (
        "import os, tempfile\n"
        "for place in (os.environ['HOME'], os.environ['HOME'] + '/.cache', tempfile.gettempdir()):\n"
        "    for name in ('model.pt', 'notes.txt', 'tmpabcdefgh.pt'):\n"
        "        open(f'{place}/{name}', 'w').write('model')\n"
    )
    private = (f"HOME={home}", f"TMPDIR={temporary}", f"{variables.RESULT_FILE}={tmp_path / 'result'}")
    command = ["env", *private, *around(work, program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = parse_lost_files_line(done.stdout.splitlines()[-1])
    assert found is not None
    names = {file.name for file in found.largest}
    assert {str(home / "model.pt"), str(temporary / "model.pt")} <= names
    assert not any(name.endswith(".txt") or ".cache" in name for name in names)
