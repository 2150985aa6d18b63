"""Pictures of digits: MNIST's files where there are any, otherwise drawn ones, so that nothing has to be downloaded.

Shape suffixes: N = pictures, H = W = 28 = rows and columns of a picture, G = a glyph's rows or columns with its margin.
"""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from trainer.runtime.errors import DatasetInvalid, DatasetNotFound

SIDE = 28
"""Rows and columns of a picture, as in MNIST (LeCun et al. 1998)."""

NUM_CLASSES = 10

DRAWN_AT_ONCE = 1000
"""Drawing takes 100 times the memory of the pictures, and every rank of a node draws them."""

Split = Literal["train", "test"]

FILES: dict[Split, tuple[str, str]] = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
"""MNIST's own names of pictures and labels, with or without .gz."""

GLYPHS = (
    (".###.", "#...#", "#...#", "#...#", "#...#", "#...#", ".###."),
    ("..#..", ".##..", "..#..", "..#..", "..#..", "..#..", ".###."),
    (".###.", "#...#", "....#", "...#.", "..#..", ".#...", "#####"),
    ("####.", "....#", "....#", "..##.", "....#", "....#", "####."),
    ("...#.", "..##.", ".#.#.", "#..#.", "#####", "...#.", "...#."),
    ("#####", "#....", "####.", "....#", "....#", "#...#", ".###."),
    ("..##.", ".#...", "#....", "####.", "#...#", "#...#", ".###."),
    ("#####", "....#", "...#.", "...#.", "..#..", "..#..", "..#.."),
    (".###.", "#...#", "#...#", ".###.", "#...#", "#...#", ".###."),
    (".###.", "#...#", "#...#", ".####", "....#", "...#.", ".##.."),
)
"""The digits on a grid of seven rows and five columns."""


@dataclass(frozen=True)
class Digits:
    """Pictures with their labels."""

    pictures_NHW: npt.NDArray[np.uint8]
    """0 for paper, 255 for ink."""
    labels_N: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels_N)


def load(folder: Path | None, split: Split, *, num_drawn: int, seed: int) -> Digits:
    """Load or draw the pictures of one split.

    Args:
        folder: Searched for MNIST's files at any depth; None to draw.
        split: The training split or the test split.
        num_drawn: Pictures to draw.
        seed: Seed of the drawn pictures; the two splits never share a picture.

    Raises:
        DatasetNotFound: If the folder lacks a file.
        DatasetInvalid: If a file is damaged.
    """
    if folder is None:
        rng = np.random.default_rng((seed, split == "test"))
        parts = [drawn(min(DRAWN_AT_ONCE, num_drawn - at), rng) for at in range(0, num_drawn, DRAWN_AT_ONCE)]
        return Digits(
            np.concatenate([part.pictures_NHW for part in parts]), np.concatenate([part.labels_N for part in parts])
        )
    pictures, labels = (_read_idx(_find(folder, name)) for name in FILES[split])
    if pictures.shape != (len(labels), SIDE, SIDE) or labels.max(initial=0) >= NUM_CLASSES:
        raise DatasetInvalid(
            f"{FILES[split][0]} holds {pictures.shape} values and {FILES[split][1]} {len(labels)} labels; they have to "
            f"be pictures of {SIDE} × {SIDE} and as many labels from 0 to {NUM_CLASSES - 1}."
        )
    return Digits(pictures, labels.astype(np.int64))


def drawn(num_pictures: int, rng: np.random.Generator) -> Digits:
    """Draw digits of random size, position, slant, rotation and ink, with some noise on the paper."""
    labels_N = rng.integers(NUM_CLASSES, size=num_pictures)
    rows_NHW, columns_NHW = _places(num_pictures, rng)
    ink_NHW = _interpolated(_glyphs()[labels_N], rows_NHW, columns_NHW)
    strength = rng.uniform(0.7, 1.0, size=(num_pictures, 1, 1))
    noise = rng.normal(0.0, 0.08, size=ink_NHW.shape)
    return Digits((np.clip(strength * ink_NHW + noise, 0.0, 1.0) * 255).astype(np.uint8), labels_N)


def _places(num_pictures: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Map each pixel of each picture to a point on the glyph's grid, by an affine map."""
    scale = rng.uniform(2.0, 3.2, size=(num_pictures, 1, 1))
    turn, slant = rng.uniform(-0.25, 0.25, size=(2, num_pictures, 1, 1))
    down, right = rng.uniform(-3.0, 3.0, size=(2, num_pictures, 1, 1))
    pixels = np.arange(SIDE) - (SIDE - 1) / 2
    rows, columns = (pixels[:, None] - down) / scale, (pixels[None, :] - right) / scale
    return (
        rows * np.cos(turn) - columns * np.sin(turn),
        rows * np.sin(turn) + columns * np.cos(turn) + slant * rows,
    )


def _glyphs() -> npt.NDArray[np.float64]:
    """The ten glyphs, (10, G, G), in the middle of an empty margin."""
    glyphs = np.zeros((NUM_CLASSES, 11, 11))
    glyphs[:, 2:9, 3:8] = [[[mark == "#" for mark in row] for row in glyph] for glyph in GLYPHS]
    return glyphs


def _interpolated(
    glyphs_NGG: npt.NDArray[np.float64], rows_NHW: npt.NDArray[np.float64], columns_NHW: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The glyphs' ink at places between their grid points, bilinearly; coordinates are counted from the middle."""
    last = glyphs_NGG.shape[1] - 1
    rows, columns = (np.clip(places + last / 2, 0, last - 1e-9) for places in (rows_NHW, columns_NHW))
    top, left = rows.astype(np.int64), columns.astype(np.int64)
    below, beside = rows - top, columns - left
    number = np.arange(len(glyphs_NGG))[:, None, None]
    ink: npt.NDArray[np.float64] = (1 - below) * (
        (1 - beside) * glyphs_NGG[number, top, left] + beside * glyphs_NGG[number, top, left + 1]
    ) + below * ((1 - beside) * glyphs_NGG[number, top + 1, left] + beside * glyphs_NGG[number, top + 1, left + 1])
    return ink


def _find(folder: Path, name: str) -> Path:
    found = sorted((*folder.rglob(name), *folder.rglob(f"{name}.gz")))
    if not found:
        raise DatasetNotFound(
            f"The data folder {folder} holds no file named {name} or {name}.gz; put MNIST's files there, or leave "
            "--data_dir out to train on digits that are drawn."
        )
    return found[0]


def _read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """An array of bytes in MNIST's format: 0, 0, 8 (bytes), number of axes, their lengths as 32-bit big-endian."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        zero, kind, num_axes = struct.unpack_from(">HBB", content)
        shape = struct.unpack_from(f">{num_axes}I", content, offset=4)
        if (zero, kind) != (0, 8):
            raise ValueError("it does not begin as an IDX file of bytes does")
        return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * num_axes).reshape(shape)
    except (OSError, EOFError, ValueError, struct.error) as error:
        raise DatasetInvalid(
            f"The file {path.name} is not a readable MNIST file ({error}); download it again."
        ) from error
