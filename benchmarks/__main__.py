"""`python -m benchmarks NAME [--out FILE]`: measures, and prints one JSON object."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks import failures, faults
from benchmarks.aws import run as aws
from benchmarks.gallery import run as gallery
from benchmarks.registry import BENCHMARKS
from benchmarks.result import BenchmarkFailed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one benchmark.

    Returns:
        The exit status: 1 if it could not be measured.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure one part of the project.")
    parser.add_argument("name", choices=sorted(BENCHMARKS), help="what to measure")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result there, too (benchmarks/results/)")
    parser.add_argument("--corpus", type=Path, metavar="FILE", help="for failures: judge this file's cases instead")
    parser.add_argument(
        "--part", action="append", choices=list(faults.PARTS), help="for faults: measure this part alone"
    )
    parser.add_argument("--programs", type=Path, metavar="FOLDER", help="for gallery: checkouts of the repositories")
    parser.add_argument("--recordings", type=Path, metavar="FOLDER", help="for aws: a checkout of LocalStack's tests")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="for gallery: try this program")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for gallery: keep the runs and the evidence here")
    chosen = parser.parse_args(arguments)
    if chosen.corpus is not None and chosen.name != "failures":
        parser.error("--corpus is for the benchmark failures.")
    if chosen.part is not None and chosen.name != "faults":
        parser.error("--part is for the benchmark faults.")
    if chosen.name != "gallery" and (chosen.programs or chosen.only or chosen.keep):
        parser.error("--programs, --only and --keep are for the benchmark gallery.")
    if chosen.recordings is not None and chosen.name != "aws":
        parser.error("--recordings is for the benchmark aws.")
    measure = BENCHMARKS[chosen.name]
    if chosen.corpus is not None:
        measure = partial(failures.run, chosen.corpus)
    elif chosen.part is not None:
        measure = partial(faults.run, chosen.part)
    elif chosen.name == "aws":
        measure = partial(aws, chosen.recordings)
    elif chosen.name == "gallery":
        measure = partial(gallery.run, chosen.programs, chosen.only, chosen.keep)
    try:
        text = measure().to_json()
    except BenchmarkFailed as failed:
        print(f"{chosen.name}: {failed}", file=sys.stderr)
        return 1
    print(text)
    if chosen.out is not None:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
