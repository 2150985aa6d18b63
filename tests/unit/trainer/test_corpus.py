"""The demo's data set: real text in, an archive like WikiCorpus's out."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from trainer import corpus
from trainer.environment import Environment
from trainer.errors import ConfigInvalid
from trainer.samples import SPECIAL_TOKENS
from trainer.shards import open_dataset

TEXT = " ".join(
    f"The {animal} {verb} over the {place}."
    for animal in ("cat", "dog", "fox", "hen")
    for verb in ("jumps", "runs", "looks", "flies")
    for place in ("wall", "river", "garden", "house", "road")
)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def make(out: Path, text: Path, environment: Environment, *more: str) -> dict[str, object]:
    argv = ["--out", str(out), "--text", str(text), "--num_shards", "3", "--max_seq_length", "32"]
    return dict(corpus.main([*argv, "--vocab_size", "100", *more], environment))


def test_the_archive_has_one_top_folder_with_shards_and_vocabulary(
    tmp_path: Path, text: Path, outside_a_pod: Environment
) -> None:
    said = make(tmp_path / "corpus.tar", text, outside_a_pod)
    with tarfile.open(tmp_path / "corpus.tar") as archive:
        archive.extractall(tmp_path / "x", filter="data")
    (top,) = (tmp_path / "x").iterdir()
    dataset = open_dataset(tmp_path / "x")
    vocabulary = (top / "vocab.txt").read_text().split("\n")[:-1]
    assert [shard.path.name for shard in dataset.shards] == [f"demo_training_{number}.hdf5" for number in range(3)]
    assert (dataset.num_samples, dataset.max_seq_length) == (said["num_samples"], 32)
    assert vocabulary[:5] == list(SPECIAL_TOKENS)
    assert len(vocabulary) == len(set(vocabulary)) == said["vocab_size"]


@pytest.mark.parametrize("name", ["corpus.tar", "corpus.tar.gz"])
def test_the_same_text_and_seed_give_the_same_bytes(
    name: str, tmp_path: Path, text: Path, outside_a_pod: Environment
) -> None:
    make(tmp_path / "one" / name, text, outside_a_pod)
    make(tmp_path / "two" / name, text, outside_a_pod)
    make(tmp_path / "three" / name, text, outside_a_pod, "--seed", "1")
    one, two, three = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two", "three"))
    assert one == two
    assert one != three


def test_the_default_text_ships_with_python_and_gives_enough_samples(
    tmp_path: Path, outside_a_pod: Environment
) -> None:
    said = corpus.main(["--out", str(tmp_path / "c.tar"), "--max_seq_length", "64", "--passes", "1"], outside_a_pod)
    assert said["num_samples"] > 1000
    assert said["vocab_size"] == 4096


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--out", "c.zip"), "--out is c.zip"),
        (("--out", "c.tar", "--num_shards", "0"), "--num_shards is 0"),
        (("--out", "c.tar", "--text", "missing.txt"), "missing.txt"),
        ((), "--out is missing"),
    ],
)
def test_bad_arguments_are_named(argv: tuple[str, ...], words: str, outside_a_pod: Environment) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        corpus.main(argv, outside_a_pod)


def test_too_little_text_is_refused(tmp_path: Path, outside_a_pod: Environment) -> None:
    short = tmp_path / "short.txt"
    short.write_text("One sentence. Another sentence.")
    with pytest.raises(ConfigInvalid, match="give more text"):
        corpus.main(["--out", str(tmp_path / "c.tar"), "--text", str(short)], outside_a_pod)


def test_more_shards_than_samples_are_refused(tmp_path: Path, text: Path, outside_a_pod: Environment) -> None:
    with pytest.raises(ConfigInvalid, match="--num_shards is 9999"):
        make(tmp_path / "c.tar", text, outside_a_pod, "--num_shards", "9999")
    assert not (tmp_path / "c.tar").exists()
