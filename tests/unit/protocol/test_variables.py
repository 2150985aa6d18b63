"""The variables of a pod: what the workflow sets, the trainer reads, and each name stands in one place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.logic.jobs import job_of
from tests.fakes.runs import run_of, spec_with
from trainer.runtime import environment
from trainflow.client import place_variable
from trainflow.models.instances import INSTANCE_TYPES
from trainflow.models.run import Stage
from trainflow.protocol import variables

NAMES = {value for name, value in vars(variables).items() if name.isupper()}
OF_THE_COMMAND = {place_variable.VARIABLE}
"""Variables of a person's shell, which no pod has."""
NAME = re.compile(r"TRAINFLOW_[A-Z0-9_]+")
SOURCES = [
    path
    for folder in ("lambdas", "local", "stacks", "trainer", "trainflow")
    for path in Path(folder).rglob("*.py")
    # `report.py` has to work as a copy; tests/unit/protocol/test_report.py compares its name.
    # `place_variable.py` has the one of a person's shell.
    if path
    not in (
        Path("trainflow/protocol/variables.py"),
        Path("trainflow/protocol/report.py"),
        Path("trainflow/client/place_variable.py"),
    )
]


def docstrings(tree: ast.Module) -> set[ast.Constant]:
    """Strings that are statements of their own."""
    return {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_code_takes_the_names_of_variables_from_the_protocol(source: Path) -> None:
    tree = ast.parse(source.read_text())
    texts = {node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    said = {text.value for text in texts - docstrings(tree) if NAME.search(str(text.value))}
    assert said == set()


def test_documents_name_no_variable_that_does_not_exist() -> None:
    documents = [*Path("docs").glob("*.md"), Path("README.md")]
    assert {name for path in documents for name in NAME.findall(path.read_text())} <= NAMES | OF_THE_COMMAND


@given(
    instance=st.sampled_from(sorted(INSTANCE_TYPES)),
    stage=st.sampled_from([Stage.PRECOMPILE, Stage.TRAINING]),
    attempt=st.integers(min_value=1, max_value=9),
)
def test_what_the_workflow_sets_the_trainer_reads(instance: str, stage: Stage, attempt: int) -> None:
    run = run_of(spec_with(compute__instance_type=instance, compute__num_nodes=1, compute__processes_per_node=1))
    told = job_of(run, stage, attempt, artifacts_url="s3://a/").environment
    assert {name for name in told if name.startswith("TRAINFLOW_")} <= NAMES
    seen = environment.read(told)
    assert str(seen.run_dir) == told[variables.RUN_DIR]
    assert str(seen.cache_dir) == told[variables.CACHE_DIR]
    assert str(seen.result_file) == told[variables.RESULT_FILE]
    assert (str(seen.data_dir) if seen.data_dir else None) == told.get(variables.DATA_DIR)
    peak = INSTANCE_TYPES[instance].tflops_per_process if stage is Stage.TRAINING else None  # type: ignore[index]
    assert seen.peak_tflops == (None if peak is None else pytest.approx(peak, rel=1e-5))
    assert not seen.precompile and environment.read({**told, variables.PRECOMPILE: "1"}).precompile
