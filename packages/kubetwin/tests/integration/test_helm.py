"""The real helm against `python -m kubetwin`: charts that are applied, and charts that are installed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubetwin_testing.cluster import command, eventually
from kubetwin_testing.kubernetes_cli import Cli, program

CHART = str(Path(__file__).parents[1] / "charts" / "hello")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with command("--state", str(tmp_path_factory.mktemp("cluster"))) as (_, ready):
        yield Path(ready["kubeconfig"])


@pytest.fixture
def kubectl(served: Path, tmp_path: Path, pytestconfig: pytest.Config) -> Cli:
    path = program("kubectl", pytestconfig.cache.mkdir("kubernetes-cli"))
    cli = Cli(path, served, tmp_path, f"t-{uuid.uuid4().hex[:8]}")
    cli("create", "namespace", cli.namespace)
    eventually(lambda: "default" in cli("get", "serviceaccounts"), "the default service account")
    return cli


@pytest.fixture
def helm(kubectl: Cli, served: Path, tmp_path: Path, pytestconfig: pytest.Config) -> Cli:
    return Cli(program("helm", pytestconfig.cache.mkdir("kubernetes-cli")), served, tmp_path, kubectl.namespace)


def greeting(kubectl: Cli) -> str:
    kubectl("wait", "--for=condition=complete", "job", "-l", "app.kubernetes.io/instance=greeting", "--timeout=30s")
    return kubectl("logs", "-l", "batch.kubernetes.io/job-completion-index=0")


def test_a_rendered_chart_is_applied_with_kubectl(helm: Cli, kubectl: Cli) -> None:
    rendered = helm("template", "greeting", CHART, "--set", "text=good morning,nodes=2")
    kubectl("apply", "-f", "-", stdin=rendered)
    assert greeting(kubectl) == "good morning\n"
    assert kubectl("apply", "-f", "-", stdin=rendered).count(" unchanged\n") == 2
    kubectl("delete", "-f", "-", stdin=rendered)
    assert kubectl("get", "jobs,configmaps", "-l", "app.kubernetes.io/instance=greeting", "-o", "name") == ""


def test_a_chart_is_installed_upgraded_and_uninstalled(helm: Cli, kubectl: Cli) -> None:
    helm("install", "greeting", CHART, "--wait", "--wait-for-jobs", "--timeout=30s")
    assert greeting(kubectl) == "hello\n"
    helm("upgrade", "greeting", CHART, "--set", "text=good evening", "--timeout=30s")
    assert kubectl("get", "configmap", "greeting", "-o", "jsonpath={.data.text}") == "good evening"
    [release] = json.loads(helm("list", "-o", "json"))
    assert (release["name"], release["revision"], release["status"]) == ("greeting", "2", "deployed")
    helm("uninstall", "greeting", "--timeout=30s")
    assert kubectl("get", "jobs,secrets", "-o", "name") == ""


def test_an_upgrade_is_refused_where_a_controller_has_written_a_field_of_the_chart(helm: Cli, kubectl: Cli) -> None:
    helm("upgrade", "greeting", CHART, "--install", "--timeout=30s")
    kubectl("patch", "configmap", "greeting", "--patch", '{"data": {"text": "written by a controller"}}')
    refused = helm.refused("upgrade", "greeting", CHART, "--install", "--set", "nodes=2", "--timeout=30s")
    assert "Apply failed with 1 conflict" in refused
    assert ".data.text" in refused
    helm("upgrade", "greeting", CHART, "--install", "--set", "nodes=2", "--force-conflicts", "--timeout=30s")
    assert kubectl("get", "configmap", "greeting", "-o", "jsonpath={.data.text}") == "hello"
    helm("uninstall", "greeting", "--timeout=30s")


def test_an_upgrade_to_a_chart_that_no_longer_declares_the_field_leaves_it_to_its_controller(
    helm: Cli, kubectl: Cli
) -> None:
    helm("upgrade", "greeting", CHART, "--install", "--timeout=30s")
    kubectl("patch", "configmap", "greeting", "--patch", '{"data": {"text": "written by a controller"}}')
    helm("upgrade", "greeting", CHART, "--install", "--set", "text=", "--timeout=30s")
    assert kubectl("get", "configmap", "greeting", "-o", "jsonpath={.data.text}") == "written by a controller"
    helm("uninstall", "greeting", "--timeout=30s")
