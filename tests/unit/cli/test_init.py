"""`trainflow init` writes a spec that fits the script, without running it."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from local.twin import REPOSITORY
from tests.wording import wording
from trainflow.cli.init import Answers, name_for, spec_text
from trainflow.cli.main import app
from trainflow.client.programs.arguments import unknown_arguments
from trainflow.client.programs.options import Flag
from trainflow.client.programs.program import Program, read_program
from trainflow.client.programs.source import ProgramUnreadable
from trainflow.spec.run_spec import parse_run_spec

pytestmark = pytest.mark.lengthy

DDP = """
import argparse, os
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--lr", "--learning-rate", type=float, default=0.1, help="Learning rate: 0.1\\n is usual")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--out-dir", required=True)
parser.add_argument("--data-path", default="/data")
parser.add_argument("--resume", default=None)
parser.add_argument("--model", required=True, help="its size")
args = parser.parse_args()
raise SystemExit("this program was run")
"""
TRAINER = """
from transformers import HfArgumentParser, Trainer, TrainingArguments
arguments, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(args=arguments).train(resume_from_checkpoint=arguments.resume_from_checkpoint)
"""


def written(source: str, tmp_path: Path, *options: str) -> tuple[str, dict[str, Any]]:
    (tmp_path / "train.py").write_text(source)
    out = tmp_path / "spec.yaml"
    done = CliRunner().invoke(app, ["init", "--from", str(tmp_path / "train.py"), "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    text = out.read_text()
    document: dict[str, Any] = yaml.safe_load(text)
    parse_run_spec(document)
    return text, document


def schema_of(spec: Path) -> dict[str, Any]:
    """The JSON Schema that the first line of a spec names, as an editor finds it: relative to the spec's file."""
    named = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", spec.read_text().splitlines()[0])
    assert named is not None, spec
    schema: dict[str, Any] = json.loads((spec.parent / named[1]).read_text())
    Draft202012Validator.check_schema(schema)
    return schema


def test_an_editor_finds_the_schema_of_a_new_spec_and_checks_it(tmp_path: Path) -> None:
    _, document = written(DDP, tmp_path)
    schema = schema_of(tmp_path / "spec.yaml")
    assert schema["$id"] == "urn:trainflow:run-spec:1"
    editor = Draft202012Validator(schema)
    assert list(editor.iter_errors(document)) == []
    document["compute"]["num_node"] = document["compute"].pop("num_nodes")
    document["limits"]["stall_minutes"] = "soon"
    assert {error.json_path: error.message for error in editor.iter_errors(document)} == {
        "$.compute": wording("init.an_editor_finds_the_schema_of_a_new_spec_and_checks_it", "'num_node'"),
        "$.limits.stall_minutes": "'soon' is not of type 'number'",
    }


def test_a_second_spec_in_the_folder_renews_the_schema(tmp_path: Path) -> None:
    written(DDP, tmp_path)
    current = (tmp_path / "trainflow.schema.json").read_text()
    (tmp_path / "trainflow.schema.json").write_text("{}")
    done = CliRunner().invoke(app, ["init", "--from", f"{tmp_path}/train.py", "--out", f"{tmp_path}/other.yaml"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "trainflow.schema.json").read_text() == current
    assert schema_of(tmp_path / "other.yaml") == schema_of(tmp_path / "spec.yaml")


@pytest.mark.parametrize("spec", [*sorted(Path("runs").glob("*.yaml")), *sorted(Path("examples").glob("*/spec.yaml"))])
def test_an_editor_finds_the_schema_of_the_repositorys_specs(spec: Path) -> None:
    assert list(Draft202012Validator(schema_of(spec)).iter_errors(yaml.safe_load(spec.read_text()))) == []


def test_a_ddp_script_gets_torchrun_its_folders_and_what_it_requires(tmp_path: Path) -> None:
    text, document = written(DDP, tmp_path, "--name", "mine", "--nodes", "2")
    workload = document["workload"]
    assert workload["launcher"] == "torchrun"
    assert workload["arguments"] == {"out-dir": "{run_dir}", "model": "change-me"}
    assert (workload["script"], workload["code"], document["name"]) == ("train.py", ".", "mine")
    assert document["compute"] == {"instance_type": "c7i.xlarge", "num_nodes": 2, "processes_per_node": 2}
    assert "    model: change-me  # required: its size" in text
    assert "    # lr: 0.1  # Learning rate: 0.1 is usual" in text
    assert "    # amp: false" in text
    assert '    # data-path: "{data_dir}"' in text
    assert '#   resume: [--resume, "{checkpoint}"]' in text


@pytest.mark.parametrize(
    ("options", "path"),
    [
        *((f'"--{name}", default="x/{name}s"', "{run_dir}") for name in ("output", "out", "save")),
        *((f'"--{name}", required=True', "{run_dir}") for name in ("outdir", "checkpoint_dir", "ckpt-dir", "work_dir")),
        *((f'"--{name}"', "{run_dir}") for name in ("default_root_dir", "logging_dir", "result_dir", "results-dir")),
        ('"--save", type=str, default="model.pt"', "{run_dir}/model.pt"),
        ('"--save_path", default="./weights/last.ckpt"', "{run_dir}/last.ckpt"),
        ('"--snapshot_path", type=Path, default="."', "{run_dir}"),
        ('"--output", help="where the model goes"', "{run_dir}"),
    ],
)
def test_a_flag_that_says_where_a_script_writes_gets_a_place_below_the_runs_folder(
    options: str, path: str, tmp_path: Path
) -> None:
    _, document = written(f"import argparse\nargparse.ArgumentParser().add_argument({options})", tmp_path)
    assert list(document["workload"]["arguments"].values()) == [path]


@pytest.mark.parametrize(
    "options",
    [
        *('"--save", type=int, default=10', '"--save", default=10', '"--save", action="store_true"', '"--save"'),
        *('"--output", choices=["json", "text"]', '"--out", type=str2bool, default="yes"', '"--out", type=float'),
        *('"--save", action=argparse.BooleanOptionalAction', '"--log_dir", action="store_true"'),
    ],
)
def test_a_flag_that_only_sounds_like_an_output_is_left_alone(options: str, tmp_path: Path) -> None:
    _, document = written(f"import argparse\nargparse.ArgumentParser().add_argument({options})", tmp_path)
    assert document["workload"]["arguments"] == {}


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ("torch.save(model.state_dict(), args.where)", "{run_dir}/model.pt"),
        ('torch.save(model, os.path.join(args.where, "model.pt"))', "{run_dir}"),
        ('torch.save(model, f"{args.where}/model-{args.lr}.pt")', "{run_dir}"),
        ('torch.save(model, args.where + "/model.pt")', "{run_dir}"),
        ('torch.save(model, f=Path(args.where) / "model.pt")', "{run_dir}"),
        ("os.makedirs(args.where, exist_ok=True)", "{run_dir}"),
        ("np.save(args.where, weights)", "{run_dir}/model.pt"),
        ('open(args.where, "wb")', "{run_dir}/model.pt"),
        ("model.save_pretrained(args.where)", "{run_dir}"),
        *((text, None) for text in ("open(args.where)", 'open(args.where, "rb")', "torch.load(args.where)")),
        *((text, None) for text in ("torch.save(args.where, path)", 'torch.save({"where": args.where}, path)')),
    ],
)
def test_a_flag_is_an_output_by_the_call_that_writes_to_it(call: str, path: str | None, tmp_path: Path) -> None:
    flag = 'p.add_argument("--where"); p.add_argument("--lr", type=float, default=0.1)'
    _, document = written(f"import argparse\np = argparse.ArgumentParser()\n{flag}\n{call}", tmp_path)
    assert document["workload"]["arguments"] == ({} if path is None else {"where": path})


def test_of_several_outputs_one_is_the_runs_folder_and_the_others_are_in_it(tmp_path: Path) -> None:
    flags = ('"--log_dir", default="runs/tb"', '"--output_dir", required=True', '"--save", default="best.pt"')
    unused = ('"--ckpt_dir", default=None', '"--data", default="images.bin"')
    text = "\n".join(f"p.add_argument({each})" for each in (*flags, *unused))
    _, document = written(f"import argparse\np = argparse.ArgumentParser()\n{text}", tmp_path)
    assert document["workload"]["arguments"] == {
        "output_dir": "{run_dir}",
        "log_dir": "{run_dir}/tb",
        "save": "{run_dir}/best.pt",
    }


def test_a_script_of_hugging_faces_trainer_reports_and_resumes_as_the_trainer_does(tmp_path: Path) -> None:
    _, document = written(TRAINER, tmp_path)
    assert document["progress"] == {"preset": "hugging-face"}
    assert document["checkpoint"] == {
        "path": "checkpoint-{step}",
        "marker": "trainer_state.json",
        "resume": ["--resume_from_checkpoint", "{checkpoint}"],
    }
    assert document["workload"]["arguments"] == {"output_dir": "{run_dir}"}


@pytest.mark.parametrize(
    ("source", "launcher"),
    [
        ("import numpy", "none"),
        ("import jax; jax.distributed.initialize()", "none"),
        ("import os; os.environ['OMPI_COMM_WORLD_RANK']", "mpi"),
        ("from mpi4py import MPI", "mpi"),
        ("import lightning as L", "torchrun"),
        ("import os; os.environ['LOCAL_RANK']", "torchrun"),
        ("import torch_xla.core.xla_model as xm", "torchrun"),
    ],
)
def test_the_launcher_is_what_the_script_expects(source: str, launcher: str) -> None:
    assert read_program(source).launcher == launcher


def test_a_spec_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    written(DDP, tmp_path)
    before = (tmp_path / "spec.yaml").read_text()
    again = CliRunner().invoke(
        app, ["init", "--from", str(tmp_path / "train.py"), "--out", str(tmp_path / "spec.yaml")]
    )
    assert again.exit_code == 2
    assert "is there already; name another file with --out" in again.output
    assert (tmp_path / "spec.yaml").read_text() == before


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("nothing.py", None, "cannot be read (No such file or directory); give the path of a Python script."),
        ("train.sh", "if [ x ]; then", "is not a Python program"),
        ("train.bin", b"\xff\xfe\x00", "give a Python script."),
    ],
)
def test_what_is_no_script_is_refused_by_name(
    name: str, content: str | bytes | None, sentence: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    done = CliRunner().invoke(app, ["init", "--from", str(tmp_path / name), "--out", str(tmp_path / "spec.yaml")])
    assert done.exit_code == 2
    assert str(tmp_path / name) in done.output
    assert sentence in done.output
    assert not (tmp_path / "spec.yaml").exists()


def test_a_script_outside_of_the_specs_folder_cannot_be_packed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "specs").mkdir()
    out = tmp_path / "specs" / "spec.yaml"
    done = CliRunner().invoke(app, ["init", "--from", str(tmp_path / "train.py"), "--out", str(out)])
    assert done.exit_code == 2
    assert "write the spec beside the script with --out" in done.output


def test_without_a_terminal_it_asks_nothing() -> None:
    done = CliRunner().invoke(app, ["init"])
    assert (done.exit_code, "trainflow init --from train.py" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("Fine_Tune-BERT.py", "fine-tune-bert"),
        ("my-project/train.py", "my-project"),
        ("99.py", "training"),
        (f"{'long' * 20}.py", ("long" * 20)[:30]),
    ],
)
def test_the_name_comes_from_the_script(path: str, name: str, tmp_path: Path) -> None:
    assert name_for(tmp_path / path) == name


def test_arguments_that_a_script_does_not_have_are_doubted_by_name() -> None:
    program = read_program(DDP)
    assert unknown_arguments(program, {"lr": 1, "out_dir": "x", "modl": "s", "zzz": 1}) == [
        wording("init.arguments_that_a_script_does_not_have_are_doubted_by_name.1", "workload.arguments.modl"),
        wording("init.arguments_that_a_script_does_not_have_are_doubted_by_name.2", "workload.arguments.zzz"),
    ]
    assert unknown_arguments(read_program(TRAINER), {"anything": 1}) == []
    assert unknown_arguments(read_program(DDP.replace("parse_args", "parse_known_args")), {"zzz": 1}) == []
    assert unknown_arguments(read_program("import sys"), {"zzz": 1}) == []


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_-]{0,10}", fullmatch=True),
        st.tuples(
            st.none() | st.text() | st.integers() | st.booleans() | st.lists(st.text()), st.booleans(), st.text()
        ),
        max_size=5,
    )
)
@example({"no": (None, True, ""), "on": (None, False, "")})
def test_whatever_defaults_and_help_a_script_has_the_spec_can_be_read(
    flags: dict[str, tuple[Any, bool, str]],
) -> None:
    program = Program(
        flags={
            name: Flag(name=name, default=default, required=required, help=" ".join(text.split()))
            for name, (default, required, text) in flags.items()
        }
    )
    text = spec_text(Answers(script=Path("train.py"), name="off"), program, folder=Path())
    required = {name for name, (_, required, _) in flags.items() if required}
    spec = parse_run_spec(yaml.safe_load(text))
    assert (spec.name, required - set(spec.workload.arguments or {})) == ("off", set())


@given(st.text())
def test_any_text_is_a_program_or_is_refused(text: str) -> None:
    with suppress(ProgramUnreadable):
        read_program(text)


@pytest.mark.parametrize("bytes_on_disk", [0, 100, 10_000], ids=["none of the spec", "a part of it", "not the schema"])
def test_a_full_disk_leaves_no_part_of_a_spec(tmp_path: Path, bytes_on_disk: int) -> None:
    """The limit on the size of a file stands for the disk: both refuse a write in the middle of the file."""
    (tmp_path / "train.py").write_text(DDP)
    left = subprocess.run(
        [sys.executable, "-B", "-m", "trainflow", "init", "--from", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_on_disk, bytes_on_disk)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (left.returncode, left.stdout) == (2, "")
    assert "cannot be written (File too large); name another f" in left.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


POSITIONALS = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("total_epochs", type=int, help="Epochs in all")
p.add_argument("data")
p.add_argument("more", nargs="?")
p.add_argument("-c", required=True)
p.parse_args()
"""
COMMANDS = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--seed", required=True)
s = p.add_subparsers()
s.add_parser("eval").add_argument("x")
t = s.add_parser("train")
t.add_argument("--output_dir", required=True)
t.add_argument("--model", required=True)
"""
CONFIGURATOR = """
out_dir = "out"
steps = 10
exec(open("configurator.py").read())
import os
os.makedirs(out_dir, exist_ok=True)
"""
HYDRA = """
import hydra
@hydra.main(version_base=None)
def main(cfg): ...
main()
"""
CLI = """
from lightning.pytorch.cli import LightningCLI
class Model:
    def __init__(self, path: str, size: int = 3): ...
LightningCLI(Model)
"""


@pytest.mark.parametrize(
    ("source", "arguments", "positional"),
    [
        (POSITIONALS, {}, ["-c", "change-me", "change-me", "change-me"]),
        (COMMANDS, {}, ["--seed=change-me", "train", "--output_dir={run_dir}", "--model=change-me"]),
        (CONFIGURATOR, {}, ["--out_dir={run_dir}"]),
        (HYDRA, {}, ["hydra.run.dir={run_dir}"]),
        (CLI, {}, ["fit", "--trainer.default_root_dir={run_dir}", "--model.path=change-me"]),
        ("import sys\nepochs = int(sys.argv[1])", {}, ["change-me"]),
    ],
)
def test_words_that_are_no_flags_are_written_as_the_program_takes_them(
    source: str, arguments: dict[str, Any], positional: list[str], tmp_path: Path
) -> None:
    _, document = written(source, tmp_path)
    workload = document["workload"]
    assert (workload["arguments"], workload["positional"]) == (arguments, positional)


def test_init_explains_its_choices_and_names_what_it_could_not_find(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"{POSITIONALS}\nimport torch\ntorch.save(1, 'model.pt')")
    out = tmp_path / "spec.yaml"
    command = ["init", "--from", str(tmp_path / "train.py"), "--out", str(out), "--nodes", "2"]
    done = CliRunner().invoke(app, command)
    assert "Note: write the values of c, total_epochs, data in place of 'change-me'." in done.output.replace("-c", "c")
    assert "it uses no other process, so each of the 2 nodes would train by itself" in done.output
    assert "the program writes model.pt (line 11) into its working folder, and no flag changes that" in done.output
    text = out.read_text()
    assert "launcher: none  # it uses no other process; it is started once on every node" in text
    assert "- change-me  # total_epochs, required: Epochs in all" in text
    assert '- change-me  # data, required; "{data_dir}" with a dataset' in text
    checked = CliRunner().invoke(app, ["validate", str(out)])
    assert "workload.positional: 'change-me' stands for a value that the program requires; write it." in checked.output


def test_each_output_says_by_which_sign_it_was_found(tmp_path: Path) -> None:
    flags = 'p.add_argument("--where"); p.add_argument("--output_dir", default="x")'
    text, _ = written(f"{POSITIONALS}{flags}\nargs = p.parse_args()\nSummaryWriter(args.where)", tmp_path)
    assert 'output_dir: "{run_dir}"  # an output by its name' in text


def test_a_program_with_checkpoints_of_its_own_gets_the_section_filled_in(tmp_path: Path) -> None:
    source = (
        "import argparse, os, torch\np = argparse.ArgumentParser()\np.add_argument('--out_dir', default='o')\n"
        "p.add_argument('--resume')\nargs = p.parse_args()\nif args.resume: torch.load(args.resume)\n"
        "torch.save(1, os.path.join(args.out_dir, f'step_{step}.pt'))"
    )
    text, document = written(source, tmp_path)
    assert document["checkpoint"] == {"path": "step_{step}.pt", "resume": ["--resume", "{checkpoint}"]}
    assert "# save in line 7 writes it" in text


def test_a_module_of_a_package_and_a_variable_of_the_environment_are_written(tmp_path: Path) -> None:
    (tmp_path / "src/pkg").mkdir(parents=True)
    script = tmp_path / "src/pkg/train.py"
    script.write_text("import os\nfrom . import data\nos.makedirs(os.environ['MY_OUTPUT_DIR'])\n")
    out = tmp_path / "spec.yaml"
    assert CliRunner().invoke(app, ["init", "--from", str(script), "--out", str(out)]).exit_code == 0
    workload = yaml.safe_load(out.read_text())["workload"]
    assert workload["module"] == "pkg.train"
    assert workload["env"] == {"PYTHONPATH": "src", "MY_OUTPUT_DIR": "{run_dir}"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"cells": [], "nbformat": 4}', "is a Jupyter notebook; make a script of it with `jupyter nbconvert --to"),
        (b'\xef\xbb\xbf\n {"nbformat": 4, "cells": []}', "is a Jupyter notebook"),
        (b"print 'step'\n", "is a Python 2 program (line 1: Missing parentheses in call to 'print'"),
        (b"", "is empty; give a Python script."),
        (b"  \n\n", "is empty; give a Python script."),
        (b"\x7fELF\x00\x01", "is not a Python program but a binary file; give a Python script."),
        (b"\xff\xfei\x00m\x00", "is text in UTF-16; save it as UTF-8"),
        (b"#!/bin/bash\npython train.py\n", "is not a Python program but a script of a shell; give the Python script"),
        (b"# coding: nothing\nx = 1", "is not a Python program (unknown encoding: nothing)"),
        (b"def f(:\n", "is not a Python program (line 1: "),
        (b"x = 'caf\xe9'\n", "is not a Python program ("),
        (b"x = 1\n" * 2_000_000, "is too large for a program, with 11 MiB; give a Python script."),
        (b"(" * 100_000, "is not a Python program ("),
        (b"x = " + b"-" * 50_000 + b"1", "; give a Python script."),
    ],
)
def test_a_file_that_is_no_program_is_refused_in_one_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(content)
    done = CliRunner().invoke(app, ["init", "--from", str(script), "--out", str(tmp_path / "spec.yaml")])
    assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
    assert sentence in done.output


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfimport torch\nprint('step')",
        b"# -*- coding: latin-1 -*-\nname = 'caf\xe9'\n",
        b"#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\nname = '\x80'\n",
        b"x = '\\d'\r\ny = 2\r\n",
    ],
)
def test_every_encoding_that_python_reads_is_read(content: bytes, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(content)
    done = CliRunner().invoke(app, ["init", "--from", str(script), "--out", str(tmp_path / "spec.yaml")])
    assert done.exit_code == 0, done.output
    assert "Warning" not in done.output


def test_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", "--from", str(tmp_path), "--out", str(tmp_path / "spec.yaml")])
    assert (done.exit_code, "cannot be read (Is a directory)" in done.output) == (2, True)


@given(st.binary(max_size=300) | st.binary(max_size=40).map(lambda end: b"import torch\nx = f'{a" + end))
def test_any_bytes_are_a_program_or_are_refused(content: bytes) -> None:
    with suppress(ProgramUnreadable):
        read_program(content)
