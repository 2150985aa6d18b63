"""The twin's Secrets Manager as a folder: `secrets/<name>` is a secret with the file's text when the twin starts."""

from __future__ import annotations

from pathlib import Path

from local.aws.deployment import create_secret
from local.aws.server import AwsServer


def load(aws: AwsServer, root: Path) -> list[str]:
    """Make every file below `root` a secret, named by its path. A line break at the end, which editors and `echo` add,
    is left out. Nothing is written back. Returns their ARNs."""
    return [
        create_secret(aws, file.relative_to(root).as_posix(), file.read_text().removesuffix("\n"))
        for file in sorted(path for path in root.rglob("*") if path.is_file())
    ]
