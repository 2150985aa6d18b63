"""Small synthetic data in the formats that the programs read."""

from __future__ import annotations

import csv
import json
import pickle
import random
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

WORDS = [f"{first}{second}" for first in "bcdfglmnprst" for second in ("a", "en", "i", "ol", "um")]
TRAIN_IMAGES = 640
TEST_IMAGES = 200
METRIC = '''"""Accuracy, in the form of the package evaluate."""
import datasets
import evaluate


class Accuracy(evaluate.Metric):
    def _info(self):
        features = datasets.Features({"predictions": datasets.Value("int32"), "references": datasets.Value("int32")})
        return evaluate.MetricInfo(description="Accuracy", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        right = sum(int(a == b) for a, b in zip(predictions, references))
        return {"accuracy": right / len(references), "f1": right / len(references)}
'''


def sentences(count: int, seed: int = 1) -> list[str]:
    """Lines of ten words. Each second word follows from the one before, so that a loss can fall."""
    chosen = random.Random(seed)  # noqa: S311  (no secret)
    lines = []
    for _ in range(count):
        starts = [chosen.randrange(len(WORDS)) for _ in range(5)]
        lines.append(" ".join(f"{WORDS[one]} {WORDS[(one + 1) % len(WORDS)]}" for one in starts))
    return lines


def text(path: Path, lines: int = 3000) -> None:
    """A file of sentences."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(sentences(lines)) + "\n", encoding="utf-8")


def long_text(path: Path) -> None:
    """A file for programs that put thousands of samples aside for validation."""
    text(path, lines=14_000)


def verses(path: Path) -> None:
    """A file of sentences with capitals and punctuation."""
    text(path)
    path.write_text("O God, O God! how weary\n" + path.read_text(encoding="utf-8"), encoding="utf-8")


def wikitext(path: Path) -> None:
    """Three files of a corpus."""
    for name, lines in (("train", 1500), ("valid", 200), ("test", 200)):
        text(path / f"{name}.txt", lines)


def images(path: Path) -> None:
    """A folder of images by class, for training and validation."""
    import numpy as np
    from PIL import Image

    chosen = np.random.default_rng(1)
    for split, count in (("train", 40), ("val", 8)):
        for label in ("first", "second"):
            folder = path / split / label
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = chosen.integers(0, 255, (64, 64, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")


def photographs(path: Path) -> None:
    """Two folders of larger images, for training and testing."""
    import numpy as np
    from PIL import Image

    chosen = np.random.default_rng(1)
    for split, count in (("train", 24), ("test", 4)):
        (path / split).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            coarse = Image.fromarray(chosen.integers(0, 255, (17, 17, 3), dtype=np.uint8))
            coarse.resize((272, 272)).save(path / split / f"{number}.jpg")


def _mnist(folder: Path, train: int, test: int) -> None:
    chosen = random.Random(1)  # noqa: S311
    raw = folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("t10k", test)):
        labels = bytes(chosen.randrange(10) for _ in range(count))
        pixels = b"".join(bytes([label * 25]) * 784 for label in labels)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + pixels)
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels)


def mnist(path: Path) -> None:
    """Files of MNIST's format with plain grey images, as torchvision leaves them after its download."""
    _mnist(path / "MNIST", TRAIN_IMAGES, TEST_IMAGES)


def whole_mnist(path: Path) -> None:
    """The same with as many images as MNIST has, for programs that split by number."""
    _mnist(path / "MNIST", 60_000, 10_000)


def fashion_mnist(path: Path) -> None:
    """The same under the name of Fashion-MNIST."""
    _mnist(path / "FashionMNIST", TRAIN_IMAGES, TEST_IMAGES)


def character_bins(path: Path) -> None:
    """Encoded characters for training and validation, with their vocabulary."""
    import numpy as np

    letters = "\n".join(sentences(3000))
    alphabet = sorted(set(letters))
    number = {letter: index for index, letter in enumerate(alphabet)}
    path.mkdir(parents=True, exist_ok=True)
    encoded = np.array([number[letter] for letter in letters], dtype=np.uint16)
    encoded[: len(encoded) * 9 // 10].tofile(path / "train.bin")
    encoded[len(encoded) * 9 // 10 :].tofile(path / "val.bin")
    meta = {"vocab_size": len(alphabet), "stoi": number, "itos": dict(enumerate(alphabet))}
    (path / "meta.pkl").write_bytes(pickle.dumps(meta))


def token_shards(path: Path) -> None:
    """Shards of encoded tokens; programs take the first one for validation."""
    import numpy as np

    path.mkdir(parents=True, exist_ok=True)
    chosen = np.random.default_rng(1)
    for number in range(2):
        chosen.integers(0, 64, 40_000, dtype=np.uint16).tofile(path / f"data{number:02}.bin")


def _tokenizer(path: Path, **special: str) -> int:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: index for index, word in enumerate([*names, *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=64,
        pad_token="[PAD]",  # noqa: S106
        unk_token="[UNK]",  # noqa: S106
        cls_token="[CLS]",  # noqa: S106
        sep_token="[SEP]",  # noqa: S106
        mask_token="[MASK]",  # noqa: S106
        **special,
    ).save_pretrained(path)
    return len(vocabulary)


def tiny_bert(path: Path) -> None:
    """A BERT of two layers with random weights, and a tokenizer."""
    from transformers import BertConfig, BertForPreTraining

    size = _tokenizer(path)
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertForPreTraining(BertConfig(vocab_size=size, max_position_embeddings=64, **small)).save_pretrained(path)


def tiny_gpt2(path: Path) -> None:
    """A GPT-2 of two layers with random weights, and a tokenizer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size = _tokenizer(path, bos_token="[CLS]", eos_token="[SEP]")  # noqa: S106
    config = GPT2Config(
        vocab_size=size, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=2, eos_token_id=3, pad_token_id=0
    )
    GPT2LMHeadModel(config).save_pretrained(path)


def paired_sentences(path: Path) -> None:
    """A data set of the Hub's form with two sentences and a label, in the configuration mrpc."""
    _pairs(path / "train.csv", 400)
    _pairs(path / "validation.csv", 40)
    card = "configs:\n- config_name: mrpc\n  data_files:\n  - {split: train, path: train.csv}\n"
    card += "  - {split: validation, path: validation.csv}\n"
    (path / "README.md").write_text(f"---\n{card}---\n", encoding="utf-8")


def sentence_pairs(path: Path) -> None:
    """Two tables with two sentences and a label."""
    _pairs(path / "train.csv", 400)
    _pairs(path / "validation.csv", 40)


def _pairs(path: Path, count: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["sentence1", "sentence2", "label", "idx"])
        for number, line in enumerate(sentences(count)):
            same = number % 2
            table.writerow([line, line if same else line[::-1], same, number])


def metric(path: Path) -> None:
    """A metric where the package evaluate looks first: a script in a folder of the metric's name."""
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{path.name}.py").write_text(METRIC, encoding="utf-8")


def mlflow(path: Path) -> None:
    """The one package that the Dockerfile of a program installs."""
    path.write_text("mlflow-skinny\n", encoding="utf-8")


def completions(path: Path) -> None:
    """A data set of the Hub's form: prompts and completions."""
    path.mkdir(parents=True, exist_ok=True)
    rows = [{"prompt": line[:20], "completion": line[20:]} for line in sentences(400)]
    (path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


MAKERS: Mapping[str, Callable[[Path], None]] = {
    made.__name__: made
    for made in (
        text, long_text, verses, wikitext, character_bins, token_shards,
        images, photographs, mnist, whole_mnist, fashion_mnist,
        tiny_bert, tiny_gpt2, paired_sentences, sentence_pairs, metric, mlflow, completions,
    )
}  # fmt: skip
"""Each maker by its name in `programs.toml`."""
