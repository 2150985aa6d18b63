"""The commands of the builds, run in bash as CodeBuild does; the programs they call are stand-ins that check much."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from stacks.images import context
from stacks.images.stack import Kind, build_spec, kinds_of_images
from tests.infrastructure.alone import PINNED, configuration
from tests.infrastructure.test_images import _source

REGISTRY = "123456789012.dkr.ecr.us-west-2.amazonaws.com"
DIGEST = "sha256:" + "d" * 64

DOCKER = """
import json, sys
from pathlib import Path

state, (command, *arguments) = Path(STATE), sys.argv[1:]
known = json.loads(state.read_text())
if command == "login":
    assert arguments[:3] == ["--username", "AWS", "--password-stdin"], arguments
    assert sys.stdin.read().strip() == "password of " + arguments[3].split(".")[3], "the Region is the registry's"
    known["logins"].append(arguments[3])
elif command == "build":
    options = dict(zip(arguments[1:-1:2], arguments[2:-1:2]))
    assert arguments[0] == "--pull" and arguments[-1] == "." and len(options) == 3, arguments
    recipe = Path(options["--file"]).read_text().splitlines()
    given = {options["--build-arg"].partition("=")[0]}
    assert {line.split()[1] for line in recipe if line.startswith("ARG ")} == given, given
    for line in recipe:
        if line.startswith("COPY "):
            *sources, _ = line.split()[1:]
            assert all(Path(source).exists() for source in sources), line
    known["built"][options["--tag"]] = options["--build-arg"]
elif command == "push":
    assert arguments[0] in known["built"], "what was not built cannot be pushed"
    assert arguments[0] not in known["pushed"], "tags are immutable"
    known["pushed"].append(arguments[0])
else:
    sys.exit(f"docker: {command!r} is unknown")
state.write_text(json.dumps(known))
"""

AWS = """
import json, sys
from pathlib import Path

known, (service, call, *arguments) = json.loads(Path(STATE).read_text()), sys.argv[1:]
options = dict(zip(arguments[::2], arguments[1::2]))
assert service == "ecr"
if call == "get-login-password":
    print("password of " + options["--region"])
elif call == "describe-images":
    assert options["--query"] == "imageDetails[0].imageDigest" and options["--output"] == "text"
    name = REGISTRY + "/" + options["--repository-name"] + ":" + options["--image-ids"].removeprefix("imageTag=")
    if name not in known["pushed"]:
        sys.exit("An error occurred (ImageNotFoundException) when calling the DescribeImages operation")
    print(DIGEST)
else:
    sys.exit(f"aws: {call!r} is unknown")
"""


@dataclass(frozen=True)
class Builder:
    """CodeBuild on this machine."""

    folder: Path

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        return found

    def build(self, kind: Kind) -> subprocess.CompletedProcess[str]:
        """Run the phases in one shell, as CodeBuild does: the first command that fails ends the build."""
        phases = build_spec(kind)["phases"]
        commands = [*phases["pre_build"]["commands"], *phases["build"]["commands"]]
        script = "\n".join(f"{command}\nstatus=$?; [ $status = 0 ] || exit $status" for command in commands)
        given = {"REPOSITORY": f"{REGISTRY}/images", "TAG": kind.tag, "AWS_REGION": "us-west-2"}
        environment = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", **given}
        context = self.folder / "context"
        return subprocess.run(
            ["bash", "-c", script], cwd=context, env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"logins": [], "built": {}, "pushed": []}))
    (tmp_path / "bin").mkdir()
    shutil.copytree(_source(), tmp_path / "context")
    for name, text in {"docker": DOCKER, "aws": AWS}.items():
        facts = f"STATE, REGISTRY, DIGEST = {str(state)!r}, {REGISTRY!r}, {DIGEST!r}"
        program = tmp_path / "bin" / name
        program.write_text(f"#!{sys.executable}\n{facts}{text}")
        program.chmod(0o755)
    return Builder(tmp_path)


KINDS = kinds_of_images(configuration(images={"torchneuron_base": PINNED}))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_build_logs_in_builds_pushes_and_tells_its_image_by_digest(builder: Builder, kind: Kind) -> None:
    done = builder.build(kind)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{REGISTRY}/images@{DIGEST}"
    image = f"{REGISTRY}/images:{kind.tag}"
    assert builder.state == {"logins": [REGISTRY], "built": {image: f"BASE={kind.base}"}, "pushed": [image]}
    assert build_spec(kind)["env"]["exported-variables"] == ["IMAGE"]


def test_an_image_that_is_there_is_not_built_again(builder: Builder) -> None:
    first, second = builder.build(KINDS[0]), builder.build(KINDS[0])
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    assert second.stdout.splitlines()[-1] == f"{REGISTRY}/images@{DIGEST}"
    assert len(builder.state["pushed"]) == 1


def test_a_build_that_fails_tells_no_image(builder: Builder) -> None:
    (builder.folder / "context/trainer/images/tools.txt").unlink()
    (tools,) = (kind for kind in KINDS if kind.name == "tools")
    done = builder.build(tools)
    assert done.returncode != 0 and "@sha256" not in done.stdout
    assert "COPY trainer/images/tools.txt" in done.stderr
    assert builder.state["pushed"] == []


def test_a_base_in_another_private_registry_is_logged_in_to(builder: Builder) -> None:
    theirs = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
    done = builder.build(replace(KINDS[0], base=f"{theirs}/torch-neuron@sha256:{'1' * 64}"))
    assert done.returncode == 0, done.stderr
    assert builder.state["logins"] == [REGISTRY, theirs]


def test_a_base_with_shell_in_its_name_is_a_name(builder: Builder) -> None:
    base = "python:3.12; touch evil"
    done = builder.build(replace(KINDS[0], base=base))
    assert done.returncode == 0, done.stderr
    assert list(builder.state["built"].values()) == [f"BASE={base}"]
    assert not (builder.folder / "context/evil").exists()


def test_a_tag_is_made_of_everything_that_goes_into_the_image() -> None:
    kind = KINDS[0]
    others = (replace(kind, base="other"), replace(kind, dockerfile="cpu.Dockerfile"), replace(kind, name="other"))
    assert len({kind.tag, *(other.tag for other in others)}) == 4
    assert kind.tag.startswith("neuron-") and len(kind.tag) == len("neuron-") + 16


def test_a_tag_changes_with_the_sources_and_not_with_what_python_leaves(tmp_path: Path) -> None:
    context.stage(tmp_path)
    assert context.digest(tmp_path) == context.digest() == context.digest(_source())
    (tmp_path / "trainer/__pycache__").mkdir()
    (tmp_path / "trainer/__pycache__/stage.pyc").write_bytes(b"0")
    (tmp_path / "trainflow/errors.py").write_text("# no part of an image")
    assert context.digest(tmp_path) == context.digest()
    (tmp_path / "trainer/stage.py").rename(tmp_path / "trainer/staged.py")
    assert context.digest(tmp_path) != context.digest()


@pytest.mark.parametrize("name", ["trainflow/__init__.py", "trainflow/protocol/s3_urls.py"])
def test_a_tag_changes_with_what_the_trainer_shares_with_the_workflow(tmp_path: Path, name: str) -> None:
    context.stage(tmp_path)
    (tmp_path / name).write_text("# changed")
    assert context.digest(tmp_path) != context.digest()
