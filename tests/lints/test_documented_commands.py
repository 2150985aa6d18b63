"""No command that a document names can rot: each is parsed by what would run it."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from awscli.clidriver import create_clidriver
from kubetwin_testing.kubernetes_cli import program
from typer.testing import CliRunner

from local.twin import REPOSITORY
from tests.documents import NEEDS, Block, blocks, documents
from tests.every import hold_for_every
from trainer.helpers.start import PROGRAMS
from trainflow.cli.main import app
from trainflow.protocol.pods import HELPERS

BLOCKS = blocks()

OURS = {"benchmarks", "kubetwin", "lambdas", "local", "stacks", "trainer", "trainflow"}
"""Packages of the repository."""

NEEDS_ACCOUNT = {"bootstrap", "deploy", "diff", "destroy", "images"}
"""Targets that call AWS."""


FENCED = [block for block in BLOCKS if not block.inline]


def test_a_block_of_python_imports_what_exists() -> None:
    hold_for_every(
        _imports_what_exists,
        (
            (path, found[1])
            for path in documents()
            for found in re.finditer(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
        ),
    )


def _imports_what_exists(path: Path, text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            module = importlib.import_module(node.module)
            missing = [
                each.name
                for each in node.names
                if not hasattr(module, each.name) and not importlib.util.find_spec(f"{node.module}.{each.name}")
            ]
            assert not missing, f"{path}: {node.module} has no {', '.join(missing)}"


def commands(name: str) -> Iterator[tuple[Block, list[str]]]:
    """Every command of a program in the documents, without the program's name."""
    for block in BLOCKS:
        for command in block.commands():
            if command[0] == name:
                yield block, command[1:]


def test_the_documents_hold_commands_of_every_program() -> None:
    named = {command[0] for block in BLOCKS for command in block.commands()}
    assert named == {"make", "trainflow", "python", "torchrun", "aws", "kubectl"}


def test_a_block_says_when_it_needs_more_than_a_laptop() -> None:
    hold_for_every(_states_its_need, ((block,) for block in FENCED))


def _states_its_need(block: Block) -> None:
    assert block.need is None or block.need in NEEDS, f"{block.where}: one of {', '.join(NEEDS)}"
    if block.need is None:
        beyond = [words for words in block.commands() if words[0] in ("aws", "kubectl") or _calls_aws(words)]
        assert not beyond, f"{block.where}: write ```console account: {beyond}"


def _calls_aws(words: list[str]) -> bool:
    return words[0] == "make" and bool(NEEDS_ACCOUNT & set(words[1:]))


def test_make_has_the_target() -> None:
    hold_for_every(_is_a_target, commands("make"))


def _is_a_target(block: Block, words: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "--dry-run", *words], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{block.where}: {done.stderr}"
    for variable in (word.partition("=")[0] for word in words if "=" in word):
        assert f"$({variable})" in (REPOSITORY / "Makefile").read_text(), f"{block.where}: {variable} is no option"


def test_trainflow_has_the_command_and_its_options() -> None:
    hold_for_every(_is_a_command_of_trainflow, commands("trainflow"))


def _is_a_command_of_trainflow(block: Block, words: list[str]) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    command = group.commands.get(words[0])  # type: ignore[attr-defined]
    assert command is not None, f"{block.where}: no command {words[0]}"
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    own = words[: words.index("--")] if "--" in words else words  # the rest is another program's
    assert {word.partition("=")[0] for word in own[1:] if word.startswith("-")} <= options, block.where
    if not block.inline:
        # A placeholder stands for a name or a number.
        command.make_context("trainflow", [re.sub(r"^[A-Z]+$", "1", word) for word in words[1:]])


def test_python_finds_the_module_or_the_script() -> None:
    hold_for_every(_is_found_by_python, commands("python"))


def _is_found_by_python(block: Block, words: list[str]) -> None:
    if words and words[0].endswith(".py"):
        assert Path(words[0]).is_file(), f"{block.where}: no file {words[0]}"
    elif words[:1] == [HELPERS]:
        assert words[1] in PROGRAMS, f"{block.where}: no helper {words[1]}"
    elif words[:2] not in ([], ["-m"]):
        assert words[0] == "-m", block.where
        module = words[1]
        assert module == "…" or importlib.util.find_spec(module), f"{block.where}: no module {module}"


def test_a_program_of_the_trainer_has_the_options() -> None:
    hold_for_every(_has_the_options, [*commands("python"), *commands("torchrun")])


def _has_the_options(block: Block, words: list[str]) -> None:
    module = next((word for word in words if word.startswith("trainer.")), None)
    if "-m" not in words or module is None:
        return
    own = words[words.index(module) + 1 : words.index("--") if "--" in words else None]
    options = {word for word in own if word.startswith("--")}
    missing = {option for option in options if f"{option} " not in _usage(module)}
    assert not missing, f"{block.where}: {missing}"


@cache
def _usage(module: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, "--help", "--", "true"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{done.stdout} {done.stderr} "


def test_a_spec_that_is_run_in_a_document_is_valid() -> None:
    hold_for_every(_runs_a_valid_spec, commands("trainflow"))


def _runs_a_valid_spec(block: Block, words: list[str]) -> None:
    files = [word for word in words if word.startswith("runs/") and (REPOSITORY / word).exists()]
    if words[0] == "run" and files:
        spec, *overrides = files
        options = [option for override in overrides for option in ("--override", override)]
        done = CliRunner().invoke(app, ["validate", spec, *options])
        assert done.exit_code == 0, f"{block.where}: {done.output}"


V2_ONLY = {("logs", "tail"): {"follow", "format", "since"}}
"""Operations of version 2 of the AWS CLI, which PyPI has not, with the options that the documents use."""


@cache
def aws_commands() -> Any:
    return create_clidriver()._get_command_table()


def test_aws_has_the_operation_and_its_options() -> None:
    hold_for_every(_is_an_operation_of_aws, commands("aws"))


def _is_an_operation_of_aws(block: Block, words: list[str]) -> None:
    assert words[0] in aws_commands(), f"{block.where}: no service {words[0]}"
    if len(words) == 1:
        return
    options = {word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--")}
    if (words[0], words[1]) in V2_ONLY:
        assert options <= V2_ONLY[words[0], words[1]], block.where
        return
    service = aws_commands()[words[0]]
    table = getattr(service, "subcommand_table", None) or service._get_command_table()
    assert words[1] in table, f"{block.where}: no operation {words[1]}"
    known = {*table[words[1]].arg_table, *create_clidriver()._get_argument_table()}
    assert options <= known, f"{block.where}: {options - known}"


def test_kubectl_has_the_verb_and_its_options(kubectl: Path) -> None:
    hold_for_every(_is_a_verb_of_kubectl, ((kubectl, *command) for command in commands("kubectl")))


def _is_a_verb_of_kubectl(kubectl: Path, block: Block, words: list[str]) -> None:
    if "$@" in words:  # a function, which takes its verb from its caller
        verb, own = "get", words
    else:
        verb = next((word for word in words if word in VERBS), "")
        assert verb, f"{block.where}: none of the verbs that this test knows: {', '.join(VERBS)}"
        before = words[: words.index(verb)]
        assert before in ([], ["-n", before[-1] if before else ""]), block.where
        own = words[words.index(verb) : words.index("--") if "--" in words else None]
    help_text = _help(kubectl, verb)
    for option in _options(own):
        assert re.search(rf"(^|\s){re.escape(option)}[,=:\s]", help_text, re.MULTILINE), f"{block.where}: {option}"


def _options(words: list[str]) -> Iterator[str]:
    """Options without their values; short ones that are written together (`-it`) one by one."""
    for word in words:
        if re.fullmatch(r"-[a-z]{2,}", word):
            yield from (f"-{letter}" for letter in word[1:])
        elif re.match(r"--?[a-z]", word):
            yield word.partition("=")[0]


VERBS = (
    *(
        "annotate",
        "apply",
        "cordon",
        "cp",
        "create",
        "debug",
        "delete",
        "describe",
        "drain",
        "exec",
        "get",
        "logs",
        "patch",
        "port-forward",
    ),
    *("run", "uncordon", "version", "wait"),
)


@pytest.fixture(scope="module")
def kubectl(request: pytest.FixtureRequest) -> Path:
    return program("kubectl", request.config.cache.mkdir("kubectl"))


@cache
def _help(kubectl: Path, verb: str) -> str:
    return "".join(
        subprocess.run([kubectl, *arguments], capture_output=True, text=True, check=True).stdout
        for arguments in (["options"], [verb, "--help"])
    )


def test_files_of_the_repository_that_a_command_names_exist() -> None:
    hold_for_every(_names_existing_files, ((block,) for block in FENCED))


def _names_existing_files(block: Block) -> None:
    for words in block.commands():
        for word in words[1:]:
            if re.fullmatch(r"(config|runs|statemachines|benchmarks|docs|examples)/[\w./-]+\.\w+", word):
                assert (REPOSITORY / word).exists() or Path(word).stem == "mine", f"{block.where}: {word}"
