"""Packages of one module, as a package index would serve them."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str, *, content: str = "", requires: str | None = None) -> str:
    """Write a package's wheel.

    Args:
        folder: An existing folder.
        name: Name of the package and of its module.
        version: Its version.
        content: Text of its module.
        requires: A requirement of the package.

    Returns:
        Its line in a requirements file, with its hash.
    """
    info = f"{name}-{version}.dist-info"
    required = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for file, text in files.items():
            packed.writestr(file, text)
        packed.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD")))
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
