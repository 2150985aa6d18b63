"""`trainflow validate --run-help`: the flags that a program prints, whatever parser it has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.wording import wording
from trainflow.cli.main import app
from trainflow.client.programs.help import Flags, HelpUnavailable, doubts, doubts_by_help, flags_in, output_of
from trainflow.spec.workload import Workload

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", "--learning-rate", type=float, default=0.1, help="step size, see --momentum")
parser.add_argument("--data-dir", required=True, help="a folder, in words that would fill several lines of it")
parser.add_argument("--amp", action=argparse.BooleanOptionalAction)
group = parser.add_mutually_exclusive_group(required=True)
group.add_argument("--steps", type=int)
group.add_argument("--epochs", type=int)
for name in ("beta1", "beta2"):
    parser.add_argument("--" + name)
parser.parse_args()
"""

CLICK = """
import click
@click.command()
@click.option("--lr", type=float, default=0.1, show_default=True)
@click.option("--data-dir", required=True, help="A folder.")
@click.option("--amp/--no-amp")
def main(**given): ...
main()
"""

TYPER = """
import typer
def main(lr: float = 0.1, data_dir: str = typer.Option(..., help="A folder"), amp: bool = False) -> None: ...
typer.run(main)
"""

HUGGING_FACE = """
from dataclasses import dataclass
from transformers.hf_argparser import HfArgumentParser
@dataclass
class Arguments:
    data_dir: str
    lr: float = 0.1
    amp: bool = False
HfArgumentParser(Arguments).parse_args_into_dataclasses()
"""


def workload(**fields: Any) -> Workload:
    return Workload.model_validate({"image": "any", "script": "train.py", "code": ".", **fields})


def doubts_of(folder: Path, source: str, **arguments: Any) -> list[str]:
    (folder / "train.py").write_text(source)
    return doubts_by_help(workload(arguments=arguments), folder=folder)


NEEDS_DATA = "workload.arguments: the program's --help says that it needs --data-dir; add data-dir."


@pytest.mark.parametrize("source", [ARGPARSE, CLICK, TYPER], ids=["argparse", "click", "typer"])
def test_flags_of_every_parser_are_known_and_others_are_named(tmp_path: Path, source: str) -> None:
    assert doubts_of(tmp_path, source, **{"lr": 1, "data-dir": "x", "amp": True, "no-amp": True}) == []
    assert doubts_of(tmp_path, source, **{"lrr": 1, "data-dir": "x"}) == [
        wording("program_help.flags_of_every_parser_are_known_and_others_are_named", "workload.arguments.lrr")
    ]
    assert doubts_of(tmp_path, source, lr=1) == [NEEDS_DATA]


def test_flags_that_a_program_computes_are_known_and_spelling_counts(tmp_path: Path) -> None:
    assert doubts_of(tmp_path, ARGPARSE, **{"beta1": 1, "data-dir": "x", "learning": 0.1, "epochs": 1}) == []
    assert doubts_of(tmp_path, ARGPARSE, data_dir="x") == [
        wording(
            "program_help.flags_that_a_program_computes_are_known_and_spelling_counts",
            "workload.arguments.data_dir",
            "data_dir",
        ),
        NEEDS_DATA,
    ]


@pytest.mark.lengthy
def test_flags_of_a_hugging_face_program_are_known(tmp_path: Path) -> None:
    found = doubts_of(tmp_path, HUGGING_FACE, **{"lr": 1, "data-dir": "x", "lrr": 2})
    assert found == [wording("program_help.flags_of_a_hugging_face_program_are_known", "workload.arguments.lrr")]


def test_a_help_text_of_absl_is_read() -> None:
    text = "train.py:\n  --[no]amp: Mixed precision\n    (default: 'false')\n  --lr: Step size\n    (a number)\n"
    assert flags_in(text) == Flags((frozenset({"amp", "noamp"}), frozenset({"lr"})))


def test_flags_in_the_command_itself_count_as_given() -> None:
    flags = Flags((frozenset({"data"}),), (frozenset({"data"}),))
    assert doubts(flags, (), written=["data"]) == []


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_package", r"exit code 1: ModuleNotFoundError: No module named 'no_such_package'"),
        ("print('training')", "it printed no flags"),
        ("import time; time.sleep(60)", "it did not end within 2 s"),
        ("def", r"exit code 1: SyntaxError: .*"),
    ],
)
def test_a_program_without_help_here_is_a_reason(tmp_path: Path, source: str, reason: str) -> None:
    (tmp_path / "train.py").write_text(source)
    with pytest.raises(HelpUnavailable, match=reason):
        doubts_by_help(workload(), folder=tmp_path, seconds=2)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"code": f"https://host/a.git@{'0' * 40}"}, "its code is at https://host"),
        ({"script": None, "command": ["./train", "{run_dir}"]}, "its command has placeholders"),
        ({"script": None, "command": ["./no-such-program"]}, "./no-such-program cannot be started: No such file"),
    ],
)
def test_a_program_that_cannot_be_started_here_is_a_reason(tmp_path: Path, fields: Any, reason: str) -> None:
    with pytest.raises(HelpUnavailable, match=reason):
        doubts_by_help(workload(**fields), folder=tmp_path)


def test_what_a_program_started_ends_with_it(tmp_path: Path) -> None:
    source = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"
    (pid,) = output_of(("python", "-c", source), cwd=tmp_path, environ={}, seconds=20).split()
    deadline = time.monotonic() + 10
    while _runs(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(int(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


SPEC = """
version: 1
name: mine
workload: {script: train.py, code: ., image: any, arguments: {lrr: 1, data-dir: x}}
compute: {instance_type: c7i.xlarge}
"""


def test_the_command_runs_no_program_unless_it_is_asked_to(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"open('ran', 'w').close()\n{ARGPARSE}")
    (tmp_path / "spec.yaml").write_text(SPEC)
    read = CliRunner().invoke(app, ["validate", str(tmp_path / "spec.yaml")])
    assert (read.exit_code, (tmp_path / "ran").exists()) == (0, False)
    ran = CliRunner().invoke(app, ["validate", str(tmp_path / "spec.yaml"), "--run-help"])
    assert (ran.exit_code, (tmp_path / "ran").exists()) == (0, True)
    assert ran.stdout.endswith("Note: workload.arguments.lrr: the program's --help lists no --lrr; did you mean lr?\n")


def test_a_program_that_cannot_be_imported_here_is_a_note_and_its_source_is_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import no_such_package, argparse\nargparse.ArgumentParser().add_argument('--lr')"
    )
    (tmp_path / "spec.yaml").write_text(SPEC)
    ran = CliRunner().invoke(app, ["validate", str(tmp_path / "spec.yaml"), "--run-help"])
    assert ran.exit_code == 0
    assert (
        "(it ended with exit code 1: ModuleNotFoundError: No module named 'no_such_package'); its source" in ran.stdout
    )
    assert "Note: workload.arguments.lrr: the program has no flag --lrr; did you mean lr?" in ran.stdout


def test_positional_arguments_that_the_help_requires_are_named(tmp_path: Path) -> None:
    source = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('total_epochs', help='in all')\n"
        "p.add_argument('save_every')\np.add_argument('rest', nargs='*')\np.add_argument('--lr')\np.parse_args()"
    )
    (tmp_path / "train.py").write_text(source)
    assert doubts_by_help(workload(positional=[3]), folder=tmp_path) == [
        wording(
            "program_help.positional_arguments_that_the_help_requires_are_named", "workload.positional", "save_every"
        )
    ]
    assert doubts_by_help(workload(positional=[3, 4]), folder=tmp_path) == []
