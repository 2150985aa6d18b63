"""A node that is slow when the gang is tested is avoided, and the run ends well on the others."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from local.twin import REPOSITORY, Twin
from tests.integration.running import follow_run
from tests.integration.test_runs import TIME_SCALE, assert_nothing_is_left, steps_spec
from trainflow.models.run_spec import parse_run_spec

SLOW_NODE = """
import os
if os.environ.get("TRAINFLOW_ATTEMPT") in {attempts} and os.environ.get("GROUP_RANK") == "1":
    import time, torch
    add = torch.Tensor.__add__
    def slowly(self, other):
        time.sleep(0.3)
        return add(self, other)
    torch.Tensor.__add__ = slowly
"""
"""What every Python process of the run starts with: devices of the second node of some attempts are slow."""


@pytest.mark.parametrize(("num_slow", "max_restarts"), [(1, 2), (2, 1)])
def test_a_gang_leaves_out_the_nodes_that_are_slow_in_the_test_however_few_restarts_in_vain_are_allowed(
    tmp_path: Path, num_slow: int, max_restarts: int
) -> None:
    run_id = f"steps-00unhealthy-{num_slow}"
    attempts = [str(attempt) for attempt in range(1, num_slow + 1)]
    image = tmp_path / "image"
    image.mkdir()
    (image / "sitecustomize.py").write_text(SLOW_NODE.replace("{attempts}", str(attempts)))
    for name in ("tests", "trainer", "trainflow"):
        (image / name).symlink_to(REPOSITORY / name)
    spec = steps_spec(max_steps=3)
    spec["compute"]["check_nodes"] = True
    spec["limits"] = {"max_restarts": max_restarts}

    with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=TIME_SCALE, image_root=image) as twin:
        out, console = tmp_path / "out", Console(file=io.StringIO())
        record = follow_run(twin, parse_run_spec(spec), run_id, folder=out, console=console)
        assert_nothing_is_left(twin, run_id)

    assert (record.error, record.status) == (None, "SUCCEEDED")
    assert [restart.error for restart in record.restarts] == ["NodeUnhealthy"] * num_slow
    avoided = record.avoided_nodes
    pods = [pod for job in record.jobs.values() for pod in job.pods]
    slow = [{pod.node for pod in pods if f"{run_id}-training-{attempt}-1" in pod.name} for attempt in attempts]
    assert slow == [{node} for node in avoided]
    last = {pod.node for pod in pods if f"{run_id}-training-{num_slow + 1}-" in pod.name}
    assert len(last) == 2 and not last & {*avoided}
