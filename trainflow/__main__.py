"""`python -m trainflow`: the command, where its script is not on the PATH."""

from __future__ import annotations

from trainflow.cli.main import app

app(prog_name="trainflow")
