"""Arguments and options of the commands that read a run spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainflow.cli.operate.completion import spec_files

SpecPath = Annotated[
    Path,
    typer.Argument(
        help="Run spec: a YAML or JSON file.", metavar="SPEC", show_default=False, autocompletion=spec_files
    ),
]
SpecPathOrInput = Annotated[
    Path,
    typer.Argument(
        help="Run spec: a YAML or JSON file, or - for the standard input.",
        metavar="SPEC",
        show_default=False,
        autocompletion=spec_files,
    ),
]
Overrides = Annotated[
    list[Path] | None,
    typer.Option(
        "--override",
        metavar="FILE",
        help="A file with fields that differ this time; may be given more than once.",
        autocompletion=spec_files,
    ),
]
