"""The working folder of a training below the run's folder: code, restarts, other nodes, and what is published of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.plans import launch_of, supervised
from tests.unit.trainer.conftest import BUCKET
from trainer import publish, working_folders
from trainer.runtime.environment import Environment
from trainflow.protocol import variables
from trainflow.protocol.plan import Code
from trainflow.protocol.publication import BEYOND_LIMIT, SKIPPED, parse_unpublished

PREFIX = "runs/a-1/"

SAVES = """
import os, pathlib, sys, zipfile
rank = int(os.environ["TRAINFLOW_NODE_RANK"])
print("before", sorted(path for path in os.listdir(".") if path.endswith(".pt")), os.getcwd(), flush=True)
pathlib.Path("train.log").write_text(f"of node {rank}")
pathlib.Path(f"rank_{rank}.pt").write_bytes(b"r")
pathlib.Path("same.pt").write_bytes(b"same")
if rank == 0:
    with zipfile.ZipFile("snapshot.pt", "w") as file:
        file.writestr("weights", b"w" * 1000)
"""


class Gang:
    """Trainings of one run on this machine, node after node."""

    def __init__(self, folder: Path, program: str = SAVES) -> None:
        self.runs, self.code = folder / "runs", folder / "code"
        (self.code / "pkg").mkdir(parents=True)
        (self.code / "train.py").write_text(program)
        (self.code / "pkg" / "config.json").write_text("{}")
        (self.code / "link.py").symlink_to("train.py")

    def train(self, node: int = 0, *, run: str = "a-1", stage: str = "training", **given: str) -> str:
        """What a node has printed."""
        (self.runs / run).mkdir(parents=True, exist_ok=True)
        environ = {variables.RUN_DIR: str(self.runs / run), variables.STAGE: stage, **given}
        kept_gib = int(environ.pop("KEPT", "50"))
        command = supervised(
            launch=launch_of("train.py", launcher="none", num_nodes=3, is_python=True),
            node_rank=node,
            code=Code(folder=str(self.code), kept_gib=kept_gib),
        )
        done = subprocess.run(
            command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def folder(self) -> Path:
        return self.runs / "a-1"

    def publish(self, *options: str) -> Mapping[str, Any]:
        place = Environment(data_dir=None, run_dir=self.folder, result_file=None)
        return publish.main(["--url", f"s3://{BUCKET}/{PREFIX}", "--checkpoints", "", *options], place)


def names(s3: Any) -> list[str]:
    return sorted(found["Key"].removeprefix(PREFIX) for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", []))


@pytest.fixture
def gang(tmp_path: Path) -> Gang:
    return Gang(tmp_path)


def test_a_training_works_below_the_runs_folder_and_its_files_are_published_without_the_code(
    s3: Any, gang: Gang
) -> None:
    assert gang.train().splitlines()[0] == f"before [] {gang.folder}/workspace"
    gang.publish()
    assert names(s3) == [f"workspace/{name}" for name in ("rank_0.pt", "same.pt", "snapshot.pt", "train.log")]


@pytest.mark.parametrize(("stage", "kept"), [("precompile", "50"), ("training", "0")])
def test_a_precompilation_and_a_run_that_keeps_nothing_work_in_the_codes_folder(
    gang: Gang, stage: str, kept: str
) -> None:
    assert gang.train(stage=stage, KEPT=kept).splitlines()[0] == f"before [] {gang.code}"
    assert list(gang.folder.iterdir()) == []


def test_files_of_all_nodes_are_published_each_content_once(s3: Any, gang: Gang) -> None:
    for node in range(3):
        gang.train(node)
    gang.publish()
    ranks = [f"workspace/rank_{node}.pt" for node in range(3)]
    assert names(s3) == [
        *("workspace-1/train.log", "workspace-2/train.log"),
        *ranks,
        *("workspace/same.pt", "workspace/snapshot.pt", "workspace/train.log"),
    ]


def test_a_restart_finds_its_files_and_other_nodes_those_of_the_first(gang: Gang) -> None:
    gang.train(0)
    assert gang.train(1).splitlines()[0].startswith("before []")
    assert gang.train(0).splitlines()[0].startswith("before ['rank_0.pt', 'same.pt', 'snapshot.pt']")
    found = next(line for line in gang.train(1).splitlines() if line.startswith("before"))
    assert found.startswith("before ['rank_0.pt', 'rank_1.pt', 'same.pt', 'snapshot.pt']")


def test_a_copy_of_the_first_nodes_file_follows_it_and_is_not_published(s3: Any, gang: Gang) -> None:
    for node in (0, 1, 0, 1):
        gang.train(node)
    first, copy = (working_folders.node_folder(gang.folder, node) / "snapshot.pt" for node in (0, 1))
    with zipfile.ZipFile(first, "w") as file:
        file.writestr("weights", b"newer")
    gang.publish()
    assert "workspace-1/snapshot.pt" not in names(s3)
    gang.train(1)
    assert copy.read_bytes() == first.read_bytes()


def test_a_half_written_file_is_set_aside_and_a_whole_one_of_another_node_takes_its_place(gang: Gang) -> None:
    gang.train(0)
    gang.train(1)
    snapshot = gang.folder / "workspace" / "snapshot.pt"
    other = working_folders.node_folder(gang.folder, 1) / "snapshot.pt"
    other.write_bytes(snapshot.read_bytes())
    snapshot.write_bytes(snapshot.read_bytes()[:-30])
    printed = gang.train(0)
    assert "snapshot.pt is half-written; it is renamed to snapshot.pt.incomplete." in printed
    assert "'snapshot.pt'" in next(line for line in printed.splitlines() if line.startswith("before"))
    other.unlink()
    snapshot.write_bytes(snapshot.read_bytes()[:-30])
    assert "'snapshot.pt'" not in next(line for line in gang.train(0).splitlines() if line.startswith("before"))
    assert zipfile.is_zipfile(snapshot)


def test_a_file_that_the_first_node_is_writing_is_neither_copied_nor_published(s3: Any, gang: Gang) -> None:
    for node in (0, 1):
        gang.train(node)
    (gang.folder / "workspace" / "rank_0.pt").write_bytes(b"")
    assert f"{gang.folder}/workspace/rank_0.pt is half-written; it is not copied." in gang.train(1)
    assert not [path for path in working_folders.node_folder(gang.folder, 1).iterdir() if "rank_0" in path.name]
    (gang.folder / "workspace" / "rank_0.pt").write_bytes(b"r")
    gang.publish()
    assert not [name for name in names(s3) if "incomplete" in name]


def test_a_run_that_continues_another_one_begins_with_its_files(gang: Gang) -> None:
    for node in range(2):
        gang.train(node)
    found = [gang.train(node, run="b-2", TRAINFLOW_RESUME_FROM="a-1").splitlines()[-1] for node in range(2)]
    assert found[0].startswith("before ['rank_0.pt', 'same.pt', 'snapshot.pt']")
    assert found[1].startswith("before ['rank_0.pt', 'rank_1.pt', 'same.pt', 'snapshot.pt']")


def test_code_that_the_program_changes_stays_changed_and_is_published(s3: Any, tmp_path: Path) -> None:
    program = "import json; f = open('pkg/config.json', 'r+'); print('before', f.read()); f.write('{\"lr\": 1}')"
    gang = Gang(tmp_path, program)
    assert gang.train().splitlines() == ["before {}"]
    assert gang.train().splitlines() == ['before {}{"lr": 1}']
    gang.publish()
    assert names(s3) == ["workspace/pkg/config.json"]
    assert (gang.code / "pkg/config.json").read_text() == "{}"


def test_a_copy_of_the_code_that_was_cut_off_is_written_again(gang: Gang) -> None:
    gang.train()
    copy, whole = gang.folder / "workspace/train.py", gang.code / "train.py"
    os.utime(whole, (0, 0))
    copy.write_text("")
    os.utime(copy, (0, 0))
    gang.train()
    assert copy.read_text() == whole.read_text()


OTHERS = """
import os, pathlib
for name in ("lightning_logs/version_0/metrics.csv", "wandb/run-1/files/out.log", "outputs/2026-11-27/12-00-00/x.yaml",
             "output/train/20261127-x/last.pth.tar", "ein ordner/größe ü.pt", "run.json", "logs/pod.log", "rank0/x"):
    pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(name).write_bytes(b"x")
for ignored in ("__pycache__/a.pyc", ".git/HEAD", ".cache/hub/model", ".venv/bin/python", "core.1"):
    pathlib.Path(ignored).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(ignored).write_bytes(b"x")
os.symlink("lightning_logs", "latest")
os.mkfifo("pipe")
"""


def test_results_of_known_libraries_are_published_and_caches_are_not(s3: Any, tmp_path: Path) -> None:
    gang = Gang(tmp_path, OTHERS)
    gang.train()
    skipped = parse_unpublished(gang.publish(), SKIPPED)
    assert skipped is not None and [file.name for file in skipped.files] == ["workspace/pipe"]
    assert names(s3) == sorted(
        f"workspace/{name}"
        for name in (
            *("ein ordner/größe ü.pt", "lightning_logs/version_0/metrics.csv", "logs/pod.log"),
            *("output/train/20261127-x/last.pth.tar", "outputs/2026-11-27/12-00-00/x.yaml", "rank0/x", "run.json"),
            "wandb/run-1/files/out.log",
        )
    )


def test_files_beyond_the_limit_stay_where_they_are_and_are_named(s3: Any, tmp_path: Path) -> None:
    gang = Gang(tmp_path, "open('big.bin', 'wb').truncate(3 << 30); open('model.pt', 'wb').write(b'm')")
    gang.train()
    beyond = parse_unpublished(gang.publish("--kept_gib", "1"), BEYOND_LIMIT)
    assert beyond is not None
    assert [(file.name, file.num_bytes) for file in beyond.files] == [("workspace/big.bin", 3 << 30)]
    assert names(s3) == ["workspace/model.pt"]
    assert (gang.folder / "workspace/big.bin").stat().st_size == 3 << 30


def test_a_folder_of_this_name_that_the_program_made_itself_is_published_as_it_is(s3: Any, gang: Gang) -> None:
    (gang.folder / "workspace").mkdir(parents=True)
    (gang.folder / "workspace" / "core.1").write_bytes(b"x")
    gang.publish()
    assert names(s3) == ["workspace/core.1"]


def test_a_runs_folder_that_cannot_be_written_leaves_the_program_its_pods_copy(gang: Gang) -> None:
    gang.folder.parent.mkdir(parents=True)
    gang.folder.write_text("a file")
    environ = {variables.RUN_DIR: str(gang.folder), variables.STAGE: "training", "TRAINFLOW_NODE_RANK": "0"}
    command = supervised(sys.executable, "-c", "import os; print(os.getcwd())", code=Code(folder=str(gang.code)))
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{gang.code}\n")
    assert "files that the program writes to" in done.stderr


def test_the_list_of_given_files_is_read_or_there_is_none(tmp_path: Path) -> None:
    working_folders.write_given_files(tmp_path, 0, {"a": (1, 2), "b\udce9": (3, 4)})
    assert working_folders.given_files(tmp_path, 0) == {"a": (1, 2), "b\udce9": (3, 4)}
    place = tmp_path / ".trainflow/given/0.json"
    for content in ("", "[]", '{"a": 1}', '{"a": [1]}', json.dumps({"a": ["x", 2]})):
        place.write_text(content)
        assert working_folders.given_files(tmp_path, 0) in (None, {})
