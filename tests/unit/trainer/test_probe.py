from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer import argument_check, probe
from trainer.pretraining.bert import BertPretraining
from trainer.pretraining.config import ModelConfig, ModelSize
from trainer.runtime import environment
from trainer.runtime.errors import ConfigInvalid
from trainflow.protocol import result

PACKAGE = "probed_package"


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a script and a package that must not be imported."""
    package = tmp_path / PACKAGE
    (package / "startable").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('the package was imported')\n")
    for name in ("train.py", "startable/__init__.py", "startable/__main__.py"):
        (package / name).touch()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    assert PACKAGE not in sys.modules


def probed(*argv: str, **environ: str) -> dict[str, Any]:
    return dict(probe.main(argv, environment.read(environ)))


@pytest.mark.parametrize(
    "program",
    [
        ("--script", "scripts/train.py"),
        ("--module", f"{PACKAGE}.train"),
        ("--module", f"{PACKAGE}.startable"),
        ("--module", "trainer.pretrain"),
        ("--module", "json.tool"),
    ],
)
def test_a_program_that_is_there_is_found_without_being_imported(image: Path, program: tuple[str, str]) -> None:
    assert probed(*program)["program"] is None


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (("--script", "scripts/tarin.py"), "there is no file 'scripts/tarin.py' in the image's folder"),
        (("--script", "scripts"), "there is no file 'scripts'"),
        (("--module", "nowhere"), "there is no module 'nowhere' in the image."),
        (("--module", "nowhere.train"), "there is no module 'nowhere.train'"),
        (("--module", f"{PACKAGE}.train.deeper"), "there is no module"),
        (("--module", PACKAGE), "a package without a __main__ module"),
    ],
)
def test_a_program_that_is_not_there_is_named(image: Path, program: tuple[str, str], words: str) -> None:
    assert words in probed(*program)["program"]


@pytest.mark.parametrize(
    ("module", "given", "words"),
    [
        ("trainer.pretrain", ["--frobnicate", "1"], "'--frobnicate' is not an option of trainer.pretrain"),
        ("trainer.pretrain", ["--dropout", "2"], "--dropout is 2.0"),
        ("trainer.mlp", ["--epochs", "0"], "--epochs is 0"),
        ("trainer.classifier", ["--frobnicate", "1"], "'--frobnicate' is not an option of trainer.classifier"),
    ],
)
def test_wrong_arguments_of_our_own_programs_are_found(module: str, given: list[str], words: str) -> None:
    assert words in probed("--module", module, "--", *given)["arguments"]


def test_the_gangs_size_has_to_divide_the_global_batch() -> None:
    gang = ("--world_size", "3", "--processes_per_node", "1")
    batch = ("--scaling", "strong", "--global_batch_size", "64", "--micro_batch_size", "1")
    assert "64" in probed("--module", "trainer.pretrain", *gang, "--", *batch)["arguments"]


def test_arguments_of_other_programs_are_their_own_business(image: Path) -> None:
    seen = probed("--script", "scripts/train.py", "--", "--frobnicate", "1", "--", "more")
    assert (seen["arguments"], seen["checkpoint_bytes"]) == (None, None)


@pytest.mark.parametrize("model", ["tiny", "base", "large"])
def test_parameters_are_counted_as_the_model_has_them(model: ModelSize) -> None:
    config = ModelConfig(model=model)
    with torch.device("meta"):
        built = BertPretraining(config)
    assert argument_check.num_parameters(config.shape) == sum(weights.numel() for weights in built.parameters())


def test_checkpoints_are_those_that_stay_and_one_that_is_being_written() -> None:
    tiny = ("--module", "trainer.pretrain", "--", "--model", "tiny")
    one = argument_check.num_parameters(ModelConfig(model="tiny").shape) * (4 + 2 * 4)
    assert probed(*tiny, "--keep_checkpoints", "2")["checkpoint_bytes"] == 3 * one
    every = probed(*tiny, "--keep_checkpoints", "-1", "--max_steps", "1000", "--checkpoint_steps", "300")
    assert every["checkpoint_bytes"] == 5 * one
    pure = probed(*tiny, "--keep_checkpoints", "2", "--precision", "pure_bfloat16")["checkpoint_bytes"]
    assert pure == 3 * one * (2 + 2 * 4) / (4 + 2 * 4)


def test_free_space_is_that_of_a_folder_that_will_be_made(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "bert-0123" / "checkpoints"
    seen = probed("--module", "json.tool", TRAINFLOW_RUN_DIR=str(run_dir))
    assert seen["free_bytes"] > 0
    assert not run_dir.exists()


STAGED = {"url": "s3://a/b.tar", "etag": "1", "files": 1, "bytes": 1, "num_shards": None, "num_samples": None}


@pytest.mark.lengthy
@pytest.mark.parametrize("place", [".demo.ready", "demo/_READY"], ids=["beside it", "among its files"])
@pytest.mark.parametrize(
    ("marker", "url", "etag"),
    [(json.dumps(STAGED), "s3://a/b.tar", "1"), ("{}", None, None), ("[]", None, None), ("{", None, None)],
)
def test_a_data_set_that_is_there_says_where_it_came_from(
    tmp_path: Path, place: str, marker: str, url: str | None, etag: str | None
) -> None:
    data_dir = tmp_path / "demo"
    data_dir.mkdir()
    (tmp_path / place).write_text(marker)
    seen = probed("--module", "json.tool", TRAINFLOW_DATA_DIR=str(data_dir))
    assert (seen["staged_url"], seen["staged_etag"]) == (url, etag)


@pytest.mark.parametrize(
    ("program", "wrong"), [("sh", None), ("/nowhere/train", "there is no program '/nowhere/train' in the image.")]
)
def test_a_command_has_to_be_there(program: str, wrong: str | None) -> None:
    assert probed("--executable", program)["program"] == wrong


def test_what_was_seen_is_one_small_line_of_json() -> None:
    assert len(json.dumps(probed("--module", f"x{'.y' * 100}")).encode()) < 4096


@pytest.mark.parametrize("argv", [(), ("--module", "a", "--script", "b.py")])
def test_the_probe_itself_wants_one_program(argv: tuple[str, ...]) -> None:
    with pytest.raises(ConfigInvalid, match=r"one.*--module, --script.*--executable"):
        probed(*argv)


def test_the_versions_are_those_that_the_programs_python_finds(image: Path) -> None:
    for name, version in (("torch-neuronx", "2.9.0.2.11"), ("some-tool", "1.0")):
        metadata = image / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    versions = probed("--script", "scripts/train.py")["versions"]
    assert versions["torch-neuronx"] == "2.9.0.2.11"
    assert versions["python"] == platform.python_version()
    # torch itself adds the build's name, which the wheel's metadata may lack.
    assert versions["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert not {"some-tool", "neuronx-cc"} & set(versions)


def test_the_whole_result_fits_into_a_termination_message(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = "20261122.post1.dev12345+cu130.g0123456789abcdef"
    monkeypatch.setattr("importlib.metadata.version", lambda _name: longest)
    found = probed("--script", "scripts/train.py")
    assert set(found["versions"]) == {"python", *probe.VERSIONED}
    assert len(result.to_bytes(result.success(found))) < result.MAX_BYTES / 2


@pytest.mark.parametrize(
    ("file", "options", "wrong"),
    [
        ("checkpoints/step-00000004.pt", (), None),
        ("inner/checkpoints/step-00000004.pt", (), None),
        ("step-4.pt", ("--checkpoints", "step-{step}.pt"), None),
        ("step-4.pt", ("--checkpoints", "{step}/all", "--marker", "done"), "no complete checkpoint of old or of older"),
        ("log.txt", (), "no complete checkpoint of old or of older"),
        (None, (), "the folder of old and of older is gone from the shared file system."),
        ("", (), "the folder of old and of older is gone from the shared file system."),
    ],
)
def test_a_run_that_continues_others_needs_one_of_their_checkpoints(
    tmp_path: Path, file: str | None, options: tuple[str, ...], wrong: str | None
) -> None:
    if file == "":
        (tmp_path / "older").mkdir()  # as a pod does that mounts it
    elif file is not None:
        path = tmp_path / "older" / file
        path.parent.mkdir(parents=True)
        torch.save({}, path)
        path.with_suffix(".json").write_text("{}")
    said = probed(
        *("--module", "json.tool", *options),
        TRAINFLOW_RUN_DIR=str(tmp_path / "new"),
        TRAINFLOW_RESUME_FROM="old,older",
    )["continues"]
    assert said is None if wrong is None else wrong in said
