"""Pictures of digits, drawn or read."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from trainer.classification import digits
from trainer.classification.config import ClassificationConfig
from trainer.runtime.errors import ConfigInvalid, DatasetInvalid, DatasetNotFound


def write_idx(path: Path, values: np.ndarray) -> None:  # type: ignore[type-arg]
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    content = header + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_mnist(folder: Path, *, num_pictures: int = 6, suffix: str = "") -> np.ndarray:  # type: ignore[type-arg]
    pictures = np.random.default_rng(0).integers(0, 256, size=(num_pictures, 28, 28))
    for images, labels in digits.FILES.values():
        write_idx(folder / f"{images}{suffix}", pictures)
        write_idx(folder / f"{labels}{suffix}", np.arange(num_pictures) % 10)
    return pictures


def test_drawn_digits_are_the_same_for_the_same_seed_and_others_to_test_with() -> None:
    one, again = (digits.load(None, "train", num_drawn=20, seed=3) for _ in range(2))
    test = digits.load(None, "test", num_drawn=20, seed=3)
    assert np.array_equal(one.pictures_NHW, again.pictures_NHW)
    assert not np.array_equal(one.pictures_NHW, test.pictures_NHW)
    assert (one.pictures_NHW.shape, one.pictures_NHW.dtype) == ((20, 28, 28), np.uint8)


def test_drawn_digits_are_of_all_ten_kinds_and_lie_inside_the_picture() -> None:
    drawn = digits.drawn(500, np.random.default_rng(1))
    assert set(drawn.labels_N.tolist()) == set(range(10))
    ink = (drawn.pictures_NHW > 127).mean(axis=(1, 2))
    assert ink.min() > 0.02
    assert ink.max() < 0.5
    border = drawn.pictures_NHW[:, [0, -1]].mean()
    assert border < 25


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnists_own_files_are_read_at_any_depth(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    pictures = write_mnist(tmp_path / "MNIST" / "raw", suffix=suffix)
    found = digits.load(tmp_path, "train", num_drawn=1, seed=0)
    assert np.array_equal(found.pictures_NHW, pictures)
    assert found.labels_N.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DatasetNotFound, match=r"no file.* t10k-labels-idx1-ubyte"):
        digits.load(tmp_path, "test", num_drawn=1, seed=0)


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\x08\x03\0\0\0\x06\0\0\0\x1c\0\0\0\x1cshort", b"<html>not found</html>"]
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    write_mnist(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(DatasetInvalid, match=r"train-images-idx3-ubyte .*MNIST"):
        digits.load(tmp_path, "train", num_drawn=1, seed=0)


def test_pictures_and_labels_of_unequal_number_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.arange(5))
    with pytest.raises(DatasetInvalid, match="5 labels"):
        digits.load(tmp_path, "train", num_drawn=1, seed=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("epochs", 0), ("micro_batch_size", -1), ("learning_rate", 0.0), ("seed", -1), ("steps_this_run", 0)],
)
def test_numbers_out_of_range_are_named(field: str, value: float) -> None:
    with pytest.raises(ConfigInvalid, match=f"--{field} is {value}"):
        ClassificationConfig(**{field: value})  # type: ignore[arg-type]
