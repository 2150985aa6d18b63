"""Run specs in files, and what overrides make of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.runs import spec_with
from trainflow.client.spec_file import read_spec
from trainflow.errors import InvalidRunSpec
from trainflow.spec.changes import merged, parse_settings

SPECS = sorted(Path("runs").glob("*.yaml"))
SCALED_DOWN = sorted(Path("runs/overrides").glob("*.yaml"))


@pytest.mark.parametrize(
    ("document", "override", "expected"),
    [
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": 1}, {"a": None, "x": None}, {}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": "b"}, {"a": {"c": 1, "d": None}}, {"a": {"c": 1}}),
        ({}, {"a": {"b": {"c": None, "d": 1}}}, {"a": {"b": {"d": 1}}}),
    ],
)
def test_an_override_is_a_merge_patch(document: Any, override: Any, expected: Any) -> None:
    before = repr(document)
    assert merged(document, override) == expected
    assert repr(document) == before, "the document itself stays"


def test_settings_of_a_command_line_make_an_override() -> None:
    settings = [
        "workload.arguments.lr=1e-4",
        "workload.arguments.optimizer.name=adamw",
        "compute.num_nodes=4",
        "compute.num_nodes=8",
        "compute.fallback=[trn1n.32xlarge]",
        "limits.stall_minutes=null",
        "workload.env.A=b=c",
    ]
    assert parse_settings(settings) == {
        "workload": {"arguments": {"lr": "1e-4", "optimizer.name": "adamw"}, "env": {"A": "b=c"}},
        "compute": {"num_nodes": 8, "fallback": ["trn1n.32xlarge"]},
        "limits": {"stall_minutes": None},
    }


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("lr", "'lr' must be a field and its value, such as workload.arguments.lr=1e-4."),
        ("=3", "'=3' must be a field and its value"),
        ("compute..num_nodes=3", "must be a field and its value"),
        ("name=[", "name: The value is not YAML at line"),
    ],
)
def test_what_is_no_setting_is_one_sentence(setting: str, sentence: str) -> None:
    with pytest.raises(InvalidRunSpec, match=re.escape(sentence)):
        parse_settings([setting])


@pytest.mark.parametrize("override", [None, [], "compute", 3])
def test_an_override_that_is_no_mapping_is_refused(tmp_path: Path, override: Any) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(repr(override) if override is not None else "")
    with pytest.raises(InvalidRunSpec, match=r"x\.yaml: .*mapping.*differ"):
        read_spec(SPECS[0], [path])


def test_later_overrides_go_over_earlier_ones_and_both_are_named_when_the_result_is_no_spec(tmp_path: Path) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text("compute: {num_nodes: 3}\nlimits: {stall_minutes: 5}")
    other.write_text("compute: {num_nodes: 0}")
    assert read_spec(SPECS[0], [one]).compute.num_nodes == 3
    with pytest.raises(InvalidRunSpec, match=r"one\.yaml .*other.*num_nodes: .*at least"):
        read_spec(SPECS[0], [one, other])


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
SPEC = "version: 1\nname: mine\nworkload: {script: t.py, image: i}\ncompute: {instance_type: c7i.xlarge}\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (BOMB, "The file uses an alias"),
        (SPEC + "name: other\n", "The file has the field 'name' twice, the second time at line 5; remove one of them."),
        (SPEC.replace("mine", "2026-02-30"), "The file is not YAML: day is out of range for month; correct it, or put"),
        (SPEC.replace("mine", "2026-02-20"), "The run spec holds a value at 'name' that JSON cannot hold"),
        (SPEC.replace("mine", "m" * 200_000), "The file is larger than 128 KiB, which no run spec needs to be."),
        (SPEC + "num_node: 2\n", "num_node: there is no such field; did you mean 'compute.num_nodes'?"),
        (SPEC.replace("image: i", "image: i, volumes: [{clam: b}]"), "no such field; did you mean 'claim'?"),
        (SPEC + "progress: {patern: x}\n", "progress.patern: there is no such field; did you mean 'pattern'?"),
        (SPEC + "colour: red\n", "colour: there is no such field; remove it or correct its name."),
        (SPEC.replace("mine", "12"), "name: must be text, got 12; put it in quotes."),
        (
            SPEC.replace("xlarge", "xlarge, num_nodes: two"),
            "compute.num_nodes: must be a whole number, got 'two'.",
        ),
        (SPEC + "limits: {stall_minutes: long}\n", "limits.stall_minutes: must be a number, got 'long'."),
        (SPEC.replace("image: i", "image: ''"), "workload.image: must be the name of a container image"),
        (SPEC + "{", "The file is not YAML at line 6, column 1: "),
        (
            SPEC + 'dataset: {url: "s3://b/a\\0.tar"}\n',
            "dataset.url: must hold no NUL character, got 's3://b/a\\x00.tar'.",
        ),
        (SPEC.replace("t.py", '"t\\0.py"'), "workload.script: must hold no NUL character"),
        (SPEC.replace("image: i", 'image: i, env: {A: b, "C\\0": d}'), "workload.env: must hold no NUL character"),
        (SPEC.replace("image: i", "image: i, arguments: {on: 1}"), "a field named True that YAML reads as no text"),
        (SPEC.replace("image: i", "image: i, arguments: {0x1: 1, 1: 2}"), "put the name in quotes."),
        (SPEC + "progress: " + "[" * 30 + "]" * 30 + "\n", "The run spec nests more than 20 mappings and lists"),
        (SPEC + "".join(f"unknown_{n}: 1\n" for n in range(500)), "490 more faults follow."),
    ],
)
def test_what_is_no_spec_is_a_short_sentence_as_for_an_upload(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(InvalidRunSpec) as refused:
        read_spec(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert sentence in str(refused.value)
    assert len(str(refused.value)) < 1500


def test_of_a_file_that_is_no_spec_by_its_size_little_is_read(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole: it takes no room on the disk, and more memory than there is
    with pytest.raises(InvalidRunSpec, match="The file is larger than 128 KiB"):
        read_spec(path)


def test_arguments_keep_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.replace("image: i", "image: i, arguments: {z: 1, a: 2, m: 3}"))
    assert list(read_spec(path).workload.arguments) == ["z", "a", "m"]


def test_a_long_value_is_quoted_in_part(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.replace("mine", "m" * 100_000))
    with pytest.raises(InvalidRunSpec, match=r"name: .* 30 .*'m{47} … m{47}'\.$"):
        read_spec(path)


def test_every_seed_has_an_override_that_scales_it_down() -> None:
    assert [path.name for path in SCALED_DOWN] == [path.name for path in SPECS if path.name != "demo.yaml"]


@pytest.mark.parametrize("path", SCALED_DOWN, ids=lambda path: path.stem)
def test_a_scaled_down_spec_keeps_its_backend_and_its_nodes_and_trains_on_few_processes(path: Path) -> None:
    real = read_spec(path.parent.parent / path.name)
    small = read_spec(path.parent.parent / path.name, [path])
    assert small.compute.backend == real.compute.backend
    assert small.compute.instance_type == real.compute.instance_type
    assert small.compute.world_size <= 4
    assert small.workload.arguments["device"] == "cpu"
    assert small.name == real.name


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"deadline": "2020-01-01T00:00:00Z"}, "limits.deadline: 2020-01-01T00:00:00+00:00 has passed; give a later"),
        ({"max_usd": 5}, "limits.max_usd: the price of p5e.48xlarge is not known in any Region; limit the time with"),
    ],
)
def test_a_spec_that_could_not_start_now_is_refused_with_its_file(tmp_path: Path, limits: Any, sentence: str) -> None:
    compute = {"instance_type": "p5e.48xlarge", "num_nodes": 1, "processes_per_node": 8}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec_with(limits=limits, compute=compute)))
    with pytest.raises(InvalidRunSpec, match=re.escape(f"{path}: {sentence}")):
        read_spec(path)
