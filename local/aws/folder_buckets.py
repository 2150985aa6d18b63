"""The twin's S3 as a folder: `s3/<bucket>/<key>` is there when the twin starts, and what runs publish stays.

The data sets that come with Trainflow are made on first use, so that the demo needs no download.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from local.aws.deployment import create_bucket
from local.aws.server import AwsServer
from trainflow.client.artifacts import is_plain
from trainflow.client.private_folder import make_private

DEMO_BUCKET = "trainflow-demo"
CORPUS_KEY = "pydoc-wordpiece-seqlen64.tar"
CORPUS_SEQ_LENGTH = 64
"""Half of the tutorial's, for the demo's sake: twice the steps in its minute."""


def ensure_demo_data(root: Path) -> None:
    """Make the demo's data set from the English text of Python's documentation, unless it exists.

    Raises:
        subprocess.CalledProcessError: If the corpus program failed; its output says why.
    """
    archive = root / DEMO_BUCKET / CORPUS_KEY
    if archive.exists():
        return
    make_private(archive.parent)
    corpus = (sys.executable, "-m", "trainer.corpus", "--max_seq_length", str(CORPUS_SEQ_LENGTH))
    subprocess.run([*corpus, "--out", str(archive)], check=True, stdout=subprocess.DEVNULL)


# Decision 5: data sets and results outlive moto, and a user copies files in and out.
def load(aws: AwsServer, root: Path, *, private: Collection[str] = ()) -> list[str]:
    """Make every folder below `root` a bucket, with its files as objects; returns the names of the buckets.

    All requests may read and list them, so that a spec of a public bucket runs here, too. Other users of the machine
    can send such requests.

    Args:
        aws: Where the buckets are made.
        root: Folder of the buckets' folders.
        private: Names of buckets that only their owner may read.
    """
    s3 = aws.client("s3")
    buckets = sorted(path for path in root.iterdir() if path.is_dir())
    for bucket in buckets:
        create_bucket(aws, bucket.name)
        access = "private" if bucket.name in private else "public-read"
        s3.put_bucket_acl(Bucket=bucket.name, ACL=access)
        for file in sorted(path for path in bucket.rglob("*") if path.is_file()):
            key = file.relative_to(bucket).as_posix()
            s3.upload_file(str(file), bucket.name, key, ExtraArgs={"ACL": access})
    return [bucket.name for bucket in buckets]


def put(root: Path, bucket: str, key: str, content: bytes) -> None:
    """Write one object below `root`, unless it is there already."""
    target = root / bucket / key
    if not target.exists():
        make_private(target.parent)
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        unfinished.write_bytes(content)
        unfinished.replace(target)


def save(aws: AwsServer, bucket: str, root: Path) -> None:
    """Write a bucket's objects below `root`; those that are there already stay as they are.

    Keys that lead out of the bucket's folder, which any program with the bucket may choose, are left out.
    """
    s3 = aws.client("s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for item in page.get("Contents", ()):
            target = root / bucket / item["Key"]
            if is_plain(item["Key"]) and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                s3.download_file(bucket, item["Key"], str(target))
