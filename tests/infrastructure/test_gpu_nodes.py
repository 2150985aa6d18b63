"""A deployment with GPUs and Inferentia: the checks of `make check` on what it synthesizes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stacks.checks.packs import PACKS
from tests.infrastructure.assembly import EXAMPLE
from tests.infrastructure.auditors import read_report, unacknowledged

GROUPS = [
    {"instance_type": "g6e.12xlarge", "max_nodes": 2},
    {"instance_type": "p5.48xlarge", "max_nodes": 2},
    {"instance_type": "inf2.48xlarge", "max_nodes": 1, "mode": "spot"},
]
QUOTAS = {"g_on_demand": 96, "p_on_demand": 384, "inf_spot": 192}


@pytest.mark.slow
def test_a_deployment_with_gpus_passes_every_check(tmp_path: Path) -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    document["capacity"]["nodegroups"] += GROUPS
    document["capacity"]["vcpu_quotas"] |= QUOTAS
    (tmp_path / "gpu.yaml").write_text(yaml.safe_dump(document))
    out = tmp_path / "out"
    context = json.loads(Path("cdk.json").read_text())["context"]
    context |= {"config": str(tmp_path / "gpu.yaml"), "aws:cdk:bundling-stacks": []}
    variables = {"CDK_VALIDATION": "true", "CDK_OUTDIR": str(out), "CDK_CONTEXT_JSON": json.dumps(context)}
    synth = subprocess.run(
        [sys.executable, "app.py"], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert synth.returncode == 0, synth.stdout + synth.stderr
    report = read_report(out)
    assert {pack: plugin["conclusion"] for pack, plugin in report.items()} == dict.fromkeys(PACKS, "success")
    assert unacknowledged(report) == []
    templates = [str(out / f"{stack}.template.json") for stack in ("Capacity", "Cluster", "Orchestration")]
    lint = [str(Path(sys.executable).with_name("cfn-lint")), "--non-zero-exit-code", "informational", *templates]
    linted = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout
