"""The folder of libraries' caches: `datasets`, `huggingface_hub`, `torch.hub`, Matplotlib and others write below it.

Its default is `.cache` in the home folder (XDG Base Directory Specification 0.8). A container's root file system is
read-only, so that these libraries fail at their first write.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "XDG_CACHE_HOME"


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variable that names a writable folder, unless the program's environment has one or the default is writable."""
    if environment.get(VARIABLE) or _is_writable(Path(environment.get("HOME") or "/")):
        return {}
    return {VARIABLE: str(Path(environment.get("TMPDIR") or tempfile.gettempdir()) / "cache")}


def _is_writable(home: Path) -> bool:
    cache = home / ".cache"
    return os.access(cache if cache.exists() else home, os.W_OK)
