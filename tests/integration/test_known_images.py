"""The images that the twin was told of exist; a spec that names another one fails as it does in a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from local.known_images import known_images
from local.twin import Twin
from tests.integration.commands import Commands
from tests.integration.running import follow_run
from tests.integration.test_runs import assert_nothing_is_left, steps_spec
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord, RunStatus

KNOWN = "registry.example.org/team/trainer:7"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    folder = tmp_path_factory.mktemp("twin")
    (folder / "home").mkdir()
    (folder / "home" / "images.txt").write_text(f"# of this team\n\n{KNOWN}\n")
    with Twin(home=folder / "home", log_dir=folder / "logs", time_scale=60) as running:
        yield running


def run_of(twin: Twin, image: str, run_id: str, folder: Path) -> RunRecord:
    spec = steps_spec(max_steps=2)
    spec["workload"]["image"] = image
    return follow_run(twin, parse_run_spec(spec), run_id, folder=folder)


def test_a_misspelt_image_ends_the_run_before_nodes_are_asked_for(twin: Twin, tmp_path: Path) -> None:
    record = run_of(twin, KNOWN.replace("trainer", "trainner"), "misspelt-000000000000", tmp_path)
    assert record.status is RunStatus.FAILED
    assert record.error is not None
    assert record.error.name == "PreflightFailed"
    assert "trainner:7" in record.error.message
    assert "EnsureCapacity" not in [visit.name for visit in record.states]
    assert_nothing_is_left(twin, record.run_id)


def test_an_image_that_the_twin_was_told_of_is_there_and_so_is_the_tools_image(twin: Twin, tmp_path: Path) -> None:
    record = run_of(twin, KNOWN, "known-000000000000", tmp_path)
    assert (record.error, record.status) == (None, RunStatus.SUCCEEDED)


def test_without_a_file_every_image_exists(tmp_path: Path) -> None:
    assert known_images(tmp_path) == ()


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "images.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"images\.txt .*one image a line.*UTF-8"):
        known_images(tmp_path)


def test_a_file_without_images_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(steps_spec(max_steps=1)))
    (tmp_path / ".trainflow").mkdir()
    (tmp_path / ".trainflow" / "images.txt").write_text("# none\n")
    refused = Commands(tmp_path).refused("run", "spec.yaml", "--local", "--image-root", str(Path.cwd()))
    assert refused.endswith("images.txt names no image; write one a line, or remove it so that every image exists.")
