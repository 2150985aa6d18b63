"""Write what is generated and compared by tests anew: `python -m tests.goldens`.

These are golden manifests and job scripts of the seeds' run specs, the messages, and the list of the helpers' modules.

For changes that are meant. What has stayed the same is not touched, so `git diff` shows what a change does to runs.
`python -m tests.goldens wording MODULE...` runs test modules and writes the sentences that they compare
(tests/wording.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from lambdas.backends.slurm import job_script
from lambdas.logic.jobs import job_of
from tests.unit.lambdas import test_manifests as manifests
from tests.unit.lambdas import test_messages as messages
from tests.unit.lambdas import test_slurm_script as scripts
from tests.wording import GOLDEN as WORDING
from tests.wording import RECORD
from trainer.helpers import modules
from trainflow.workflow.run import Run, Stage


class Blocks(yaml.SafeDumper):
    """Writes texts of several lines, such as plans, as blocks of lines."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


Blocks.add_representer(str, _text)


def main() -> None:
    """Write those that differ, and name them."""
    if sys.argv[1:2] == ["wording"]:
        sys.exit(_record(sys.argv[2:]))
    for path in (*manifests.SEEDS, *scripts.SEEDS):
        run = manifests.seed_run(path)
        for stage in Stage:
            if _has(run, stage):
                _write(path, run, stage)
    if messages.GOLDEN.read_text() != messages.as_text():
        messages.GOLDEN.write_text(messages.as_text())
        print(messages.GOLDEN)
    if modules.listed() != modules.found():
        modules.LIST.write_text(modules.as_text(modules.found()))
        print(modules.LIST)


def _record(modules: list[str]) -> int:
    """Exit status of the tests in the modules, which have replaced the sentences that they compare."""
    if not modules:
        sys.exit("Name the test modules whose sentences have changed.")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *modules]  # one process: it writes the file
    return subprocess.run(command, check=False, env={**os.environ, RECORD: str(WORDING.resolve())}).returncode


def _has(run: Run, stage: Stage) -> bool:
    """Whether the run has a job of that stage."""
    if stage is Stage.STAGE:
        return run.spec.dataset is not None
    return run.spec.precompiles or stage is not Stage.PRECOMPILE


def _write(path: Path, run: Run, stage: Stage) -> None:
    url = f"s3://artifacts/runs/{run.run_id}/"
    job = job_of(run, stage, 1, artifacts_url=url, cache=manifests.seed_cache(run))
    if path in scripts.SEEDS:
        golden = scripts.GOLDEN / f"{path.stem}-{stage}.sh"
        (made,) = job_script.render(job, scripts.SEED_SITE, artifacts_url=url)
        text, same = made.script, golden.exists() and golden.read_text() == made.script
    else:
        golden = manifests.GOLDEN / f"{path.stem}-{stage}.yaml"
        objects = manifests.rendered(job)
        text = yaml.dump_all(objects, Dumper=Blocks, sort_keys=False, width=120)
        same = golden.exists() and list(yaml.safe_load_all(golden.read_text())) == objects
    if not same:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
        print(golden)


if __name__ == "__main__":
    main()
