"""A node that is slow when the gang is tested is avoided, and the run ends well on the others."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from local.twin import REPOSITORY, Twin
from tests.integration.running import follow_run
from tests.integration.test_runs import TIME_SCALE, assert_nothing_is_left, steps_spec
from trainflow.models.run_spec import parse_run_spec

RUN = "steps-000unhealthy"

SLOW_NODE = """
import os
if os.environ.get("TRAINFLOW_ATTEMPT") == "1" and os.environ.get("GROUP_RANK") == "1":
    import time, torch
    add = torch.Tensor.__add__
    def slowly(self, other):
        time.sleep(0.3)
        return add(self, other)
    torch.Tensor.__add__ = slowly
"""
"""What every Python process of the run starts with: devices of the second node of the first attempt are slow."""


def test_a_gang_leaves_out_a_node_that_is_slow_in_the_test(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.mkdir()
    (image / "sitecustomize.py").write_text(SLOW_NODE)
    for name in ("tests", "trainer", "trainflow"):
        (image / name).symlink_to(REPOSITORY / name)
    spec = steps_spec(max_steps=3)
    spec["compute"]["check_nodes"] = True

    with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=TIME_SCALE, image_root=image) as twin:
        out, console = tmp_path / "out", Console(file=io.StringIO())
        record = follow_run(twin, parse_run_spec(spec), RUN, folder=out, console=console)
        assert_nothing_is_left(twin, RUN)

    assert (record.error, record.status) == (None, "SUCCEEDED")
    assert [restart.error for restart in record.restarts] == ["NodeUnhealthy"]
    (avoided,) = record.avoided_nodes
    pods = [pod for job in record.jobs.values() for pod in job.pods]
    assert {pod.node for pod in pods if f"{RUN}-training-1-1" in pod.name} == {avoided}
    second = {pod.node for pod in pods if f"{RUN}-training-2-" in pod.name}
    assert len(second) == 2 and avoided not in second
