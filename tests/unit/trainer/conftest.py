"""Small real shards, archives and an S3 on loopback."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from moto.server import ThreadedMotoServer

from trainer.data.shard_file import Rows, as_bytes
from trainer.pretraining.config import ModelConfig
from trainer.runtime.environment import Environment

BUCKET = "datasets"

TINY = ModelConfig(
    num_hidden_layers=2,
    hidden_size=16,
    num_attention_heads=2,
    intermediate_size=32,
    vocab_size=50,
    max_position_embeddings=16,
    dropout=0.0,
)


def make_rows(num_samples: int, *, seq_length: int = 16, predictions: int = 3, seed: int = 0) -> Rows:
    """Samples of random tokens below 50, masked at positions 1 and 2, the third prediction padded."""
    rng = np.random.default_rng(seed)
    positions = np.zeros((num_samples, predictions), dtype=np.int32)
    positions[:, :2] = (1, 2)
    labels = np.zeros((num_samples, predictions), dtype=np.int32)
    labels[:, :2] = rng.integers(5, 50, size=(num_samples, 2))
    return {
        "input_ids": rng.integers(5, 50, size=(num_samples, seq_length)).astype(np.int32),
        "input_mask": np.ones((num_samples, seq_length), dtype=np.int8),
        "segment_ids": np.zeros((num_samples, seq_length), dtype=np.int8),
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        "next_sentence_labels": rng.integers(0, 2, size=num_samples).astype(np.int8),
    }


def write_shard(folder: Path, number: int, rows: Rows) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"demo_training_{number}.hdf5"
    path.write_bytes(as_bytes(rows))
    return path


def make_archive(members: dict[str, bytes], *, mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def dataset_archive(num_shards: int = 2, num_samples: int = 5, *, mode: str = "w") -> bytes:
    shards = {
        f"corpus/demo_training_{number}.hdf5": as_bytes(make_rows(num_samples, seed=number))
        for number in range(num_shards)
    }
    return make_archive({"corpus/vocab.txt": b"[PAD]\n", **shards}, mode=mode)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client, and an environment in which any AWS program talks to the same S3; empty but for one bucket."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3_endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    yield client
    for found in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=found["Key"])


@pytest.fixture
def outside_a_pod() -> Environment:
    return Environment(data_dir=None, run_dir=None, result_file=None)
