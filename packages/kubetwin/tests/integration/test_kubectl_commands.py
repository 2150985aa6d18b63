"""The commands of `kubectl_commands.py`, by the real kubectl; all are tried before one that fails fails the test."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from kubetwin_testing.cluster import command, eventually
from kubetwin_testing.kubernetes_cli import Cli, program

from .kubectl_commands import COMMANDS, SETUP

SHAPE = str(Path(__file__).parents[1] / "recordings" / "node-shape.yaml")


def problem(kubectl: Cli, line: str, expected: str, node: str) -> str:
    """What a command did otherwise than expected; "" if nothing."""
    fails, line = line.startswith("!"), line.removeprefix("!").replace("NODE", node).replace("FILE", __file__)
    arguments = line.split(" -p ")
    words = [*shlex.split(arguments[0]), *(("-p", arguments[1]) if len(arguments) > 1 else ())]
    done = kubectl.result(*words)
    text = done.stdout + done.stderr
    if (done.returncode != 0) is fails and expected in text:
        return ""
    return f"kubectl {line}: exit {done.returncode}, without {expected!r}:\n{text}"


@pytest.mark.slow
def test_kubectls_commands_answer_as_in_a_cluster(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    with command("--state", str(tmp_path / "state"), "--nodes", "2", "--shape", SHAPE) as (_, ready):
        path = program("kubectl", pytestconfig.cache.mkdir("kubernetes-cli"))
        kubectl = Cli(path, Path(ready["kubeconfig"]), tmp_path, "default")
        eventually(lambda: "default" in kubectl("get", "serviceaccounts"), "the default service account")
        kubectl("apply", "-f", "-", stdin=SETUP)
        kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=30s")
        kubectl("wait", "--for=condition=Complete", "job/quick", "--timeout=30s")
        node = kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
        problems = [found for line, expected in COMMANDS if (found := problem(kubectl, line, expected, node))]
    assert not problems, "\n".join(problems)
