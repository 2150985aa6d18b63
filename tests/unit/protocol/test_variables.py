"""The variables of a pod: the trainer reads what the workflow sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.logic.jobs import job_of
from tests.fakes.runs import run_of, spec_with
from trainer.runtime import environment
from trainflow.nodes.instances import INSTANCE_TYPES
from trainflow.protocol import variables
from trainflow.workflow.run import Stage

NAMES = {value for name, value in vars(variables).items() if name.isupper()}


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
