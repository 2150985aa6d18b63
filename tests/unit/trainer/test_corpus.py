"""Text in, an archive like WikiCorpus's out; without text, the demo's data set."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from trainer.corpus import command, documents
from trainer.corpus.parts import split
from trainer.corpus.samples import SPECIAL_TOKENS
from trainer.data.shard_file import read_rows
from trainer.data.shards import open_dataset
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid

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
    return dict(command.main([*argv, "--vocab_size", "100", *more], environment))


def test_the_archive_has_one_top_folder_with_shards_and_vocabulary(
    tmp_path: Path, text: Path, outside_a_pod: Environment
) -> None:
    said = make(tmp_path / "corpus.tar", text, outside_a_pod)
    (tmp_path / "x").mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "corpus.tar", "-C", tmp_path / "x"], check=True)
    (top,) = (tmp_path / "x").iterdir()
    dataset = open_dataset(tmp_path / "x")
    vocabulary = (top / "vocab.txt").read_text().split("\n")[:-1]
    assert [shard.path.name for shard in dataset.shards] == [f"corpus_training_{number}.hdf5" for number in range(3)]
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
    said = command.main(["--out", str(tmp_path / "c.tar"), "--max_seq_length", "64", "--passes", "1"], outside_a_pod)
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
        command.main(argv, outside_a_pod)


def test_too_little_text_is_refused(tmp_path: Path, outside_a_pod: Environment) -> None:
    short = tmp_path / "short.txt"
    short.write_text("One sentence. Another sentence.")
    with pytest.raises(ConfigInvalid, match="give more text"):
        command.main(["--out", str(tmp_path / "c.tar"), "--text", str(short)], outside_a_pod)


def test_more_shards_than_samples_are_refused(tmp_path: Path, text: Path, outside_a_pod: Environment) -> None:
    with pytest.raises(ConfigInvalid, match="--num_shards is 9999"):
        make(tmp_path / "c.tar", text, outside_a_pod, "--num_shards", "9999")
    assert not (tmp_path / "c.tar").exists()


def write_json_lines(path: Path, texts: list[str], *, key: str = "text") -> Path:
    lines = "".join(json.dumps({key: text}) + "\n" for text in texts)
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
    return path


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.json"])
def test_json_lines_hold_a_document_a_line(tmp_path: Path, name: str) -> None:
    file = write_json_lines(tmp_path / name, ["One cat. Two cats.", "", "A dog barks."], key="body")
    assert list(documents.documents([file], text_key="body")) == [["One cat.", "Two cats."], ["A dog barks."]]


def test_plain_text_is_cut_into_documents_of_fifty_sentences(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n\n".join(f"Sentence {number} here. And more" for number in range(60)))
    found = list(documents.documents([tmp_path / "t.txt"], text_key="text"))
    assert [len(document) for document in found] == [50, 50, 20]
    assert found[0][:3] == ["Sentence 0 here.", "And more", "Sentence 1 here."]


@pytest.mark.parametrize(
    ("line", "words"),
    [("{not json}", "line 2 is not JSON"), ('{"body": "x"}', "line 2 has no string 'text'"), ("[1]", "line 2 has no")],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(json.dumps({"text": "A cat."}) + "\n" + line + "\n")
    with pytest.raises(ConfigInvalid, match=words):
        list(documents.documents([file], text_key="text"))


def test_much_text_becomes_the_same_shards_in_any_number_of_processes(
    tmp_path: Path, text: Path, outside_a_pod: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "TEXT_OF_ONE_PART", 100)
    text.write_text(" ".join([TEXT] * 6))
    one = make(tmp_path / "one.tar", text, outside_a_pod, "--processes", "1")
    two = make(tmp_path / "two.tar", text, outside_a_pod, "--processes", "2")
    assert one["num_shards"] == two["num_shards"] == 3
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"one.tar", "two.tar", "text.txt"}


def test_every_document_is_dealt_to_one_part(tmp_path: Path) -> None:
    given = [[f"{number}"] for number in range(7)]
    dealt = split(given, tmp_path, num_parts=3, num_shards=3)
    assert sorted(document for part in dealt for document in part.documents()) == given
    assert [len(list(part.documents())) for part in dealt] == [3, 2, 2]
    assert [list(part.shards) for part in dealt] == [[0], [1], [2]]


def test_a_folder_can_be_trained_on_at_once(tmp_path: Path, text: Path, outside_a_pod: Environment) -> None:
    said = make(tmp_path / "shards", text, outside_a_pod)
    assert open_dataset(tmp_path / "shards").num_samples == said["num_samples"]
    assert (tmp_path / "shards" / "vocab.txt").read_text().startswith("[PAD]\n[UNK]\n")


def test_a_given_vocabulary_decides_the_ids(tmp_path: Path, text: Path, outside_a_pod: Environment) -> None:
    """The vocabulary is like BERT's own, in which the special tokens are not the first."""
    letters = [f"{prefix}{letter}" for prefix in ("", "##") for letter in "abcdefghijklmnopqrstuvwxyz."]
    tokens = ["[PAD]", *(f"[unused{number}]" for number in range(9)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    said = make(tmp_path / "shards", text, outside_a_pod, "--vocab_file", str(tmp_path / "vocab.txt"))
    path = sorted((tmp_path / "shards").glob("*.hdf5"))[0]
    rows = read_rows(path, 0, 3)
    assert said["vocab_size"] == len(tokens)
    assert (rows["input_ids"][:, 0] == tokens.index("[CLS]")).all()
    assert (rows["input_ids"] == tokens.index("[MASK]")).any()
    assert not np.isin(rows["masked_lm_ids"], [tokens.index(name) for name in ("[CLS]", "[SEP]", "[MASK]")]).any()


def test_a_vocabulary_without_its_special_tokens_is_refused(
    tmp_path: Path, text: Path, outside_a_pod: Environment
) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\na\nb\n")
    with pytest.raises(ConfigInvalid, match=r"lacks \[UNK\]"):
        make(tmp_path / "c.tar", text, outside_a_pod, "--vocab_file", str(tmp_path / "vocab.txt"))


def test_long_work_tells_how_far_it_has_come_and_short_work_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(command.News().of("ab", "letters")) == ["a", "b"]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(command, "SECONDS_BETWEEN_NEWS", 0.0)
    list(command.News().of("ab", "letters"))
    assert capsys.readouterr().err == "1 letters after 0 s\n2 letters after 0 s\n"
