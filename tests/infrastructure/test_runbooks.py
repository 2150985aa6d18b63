"""A person on call finds the section of the alarm, and commands that name existing resources."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from stacks.observability.alarms import COMPOSITE
from tests.infrastructure.test_observability import Deployed, configuration
from trainflow.configuration.deployment import Configuration
from trainflow.deployment.backends import KUBERNETES_KINDS, KubernetesKind
from trainflow.deployment.functions import FUNCTIONS
from trainflow.deployment.kubernetes_names import BACKEND_LABEL, CLAIM_LABEL, RUN_LABEL, TRAINING_NODES
from trainflow.nodes.instances import INSTANCE_TYPES, nodegroup_name

TEXT = Path("docs/runbooks.md").read_text()
INTRODUCTION, *PARTS = re.split(r"^## ", TEXT, flags=re.MULTILINE)
SECTIONS = {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in PARTS}
BLOCKS = re.findall(r"```bash[^\n]*\n(.*?)```", TEXT, flags=re.DOTALL)


def anchor(heading: str) -> str:
    """Anchor of a heading, in GitHub's form."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


@pytest.fixture(scope="module")
def deployed() -> Deployed:
    return Deployed(configuration())


def test_every_alarm_leads_to_a_section(deployed: Deployed) -> None:
    anchors = {anchor(heading) for heading in SECTIONS}
    for alarm in [*deployed.alarms.values(), deployed.composite]:
        assert alarm["AlarmDescription"].rpartition("#")[2] in anchors, alarm["AlarmDescription"]


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_section_names_the_alarm_that_leads_to_it(deployed: Deployed, heading: str) -> None:
    descriptions = {name: alarm["AlarmDescription"] for name, alarm in deployed.alarms.items()}
    descriptions[f"blue-{COMPOSITE}"] = deployed.composite["AlarmDescription"]
    leading = {name for name, text in descriptions.items() if text.endswith(f"#{anchor(heading)}")}
    first = re.match(r"\nAlarms?: .*", SECTIONS[heading])
    assert first, heading
    named = re.findall(r"`<name>-([a-z-]+)(…?)`", first[0])
    patterns = [f"blue-{name}{'.*' if more else ''}" for name, more in named]
    assert {name for name in descriptions if any(re.fullmatch(pattern, name) for pattern in patterns)} == leading
    assert leading


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_section_says_what_it_means_where_to_look_what_to_do_and_when_to_sleep_on(heading: str) -> None:
    assert re.findall(r"^\*\*(\w+)", SECTIONS[heading], flags=re.MULTILINE) == ["Means", "Look", "Do", "Ignore"]


def test_links_inside_the_page_lead_somewhere() -> None:
    anchors = {anchor(heading) for heading in SECTIONS}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors


def test_logs_are_those_of_functions_that_are_deployed() -> None:
    named = set(re.findall(r"\blog ([A-Z]\w+)", TEXT))
    assert named
    assert named <= {function.name for function in FUNCTIONS}


def test_labels_and_node_groups_are_those_that_are_deployed() -> None:
    assert set(re.findall(r"trainflow/[a-z]+(?![a-z/])", TEXT)) == {
        RUN_LABEL,
        BACKEND_LABEL,
        CLAIM_LABEL,
        *TRAINING_NODES,
    }
    groups = set(re.findall(r"trainflow-(?:trn|m|c)\w*-\w+", TEXT))
    assert groups
    assert groups <= {nodegroup_name(name) for name in INSTANCE_TYPES}


def test_settings_that_the_text_names_exist() -> None:
    fields = {name: field.annotation for name, field in Configuration.model_fields.items()}
    for section, setting in re.findall(r"`(alarms|capacity|cluster)\.(\w+)`", TEXT):
        assert setting in fields[section].model_fields, f"{section}.{setting}"  # type: ignore[union-attr]


@pytest.mark.parametrize("backend", KUBERNETES_KINDS.values(), ids=lambda backend: backend.name)
def test_the_commands_find_and_remove_the_objects_of_every_backend(backend: KubernetesKind, tmp_path: Path) -> None:
    """The page's own functions, with a kubectl that writes down how it is called."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "kubectl $*"\n')
    kubectl.chmod(0o755)
    functions = "\n".join(
        line for line in BLOCKS[0].splitlines() if re.match(r"KINDS=|FIRST=|rank0|objects|remove", line)
    )
    script = f"export PATH={tmp_path}:$PATH NS=training\n{functions}\nobjects a-run\nremove a-run\nrank0 a-run\n"
    said = subprocess.run(["bash", "-eu"], input=script, text=True, capture_output=True, check=True).stdout.splitlines()
    kind = f"{backend.plural}.{backend.group}" if backend.group else backend.plural
    assert f"kubectl -n training get {kind} -o name -l {RUN_LABEL}=a-run" in said
    assert f"kubectl -n training delete {kind} -l {RUN_LABEL}=a-run --wait=false" in said
    selectors = [line.split()[-1].split(",")[1:] for line in said if " logs " in line]
    labels = {f"{key}={value}" for key, value in {**backend.rank0, BACKEND_LABEL: backend.name}.items()}
    assert any(set(selector) <= labels for selector in selectors)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_shell_can_read_the_commands(block: str) -> None:
    assert subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True).returncode == 0
