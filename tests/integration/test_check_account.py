"""`trainflow check-account` as a user calls it: a process of its own, with the credentials of its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.aws.server import AwsServer
from local.twin import REPOSITORY

TWIN = REPOSITORY / "tests" / "assets" / "config" / "twin.yaml"
ACCOUNT = "123456789012"
NO_REGISTRIES = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "localhost,127.0.0.1"}
"""An address on which no server listens, so that the answer does not depend on the machine's network."""


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsServer]:
    server = AwsServer(time_scale=60)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def prepared(aws: AwsServer) -> AwsServer:
    """Bootstrapped, with the cluster that the configuration names."""
    aws.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="31", Type="String")
    for purpose in ("deploy", "file-publishing", "cfn-exec"):
        name = f"cdk-hnb659fds-{purpose}-role-{ACCOUNT}-us-west-2"
        aws.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")
    aws.client("eks").create_cluster(
        name="trainflow",
        version="1.36",
        roleArn=f"arn:aws:iam::{ACCOUNT}:role/any",
        resourcesVpcConfig={"subnetIds": ["subnet-1"]},
        accessConfig={"authenticationMode": "API"},
    )
    return aws


@pytest.fixture
def config(tmp_path: Path) -> Path:
    document: dict[str, Any] = yaml.safe_load(TWIN.read_text())
    document["alarms"] = {"emails": ["you@example.com"]}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def check(config: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command with nothing of the tests' own AWS settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    nowhere = {
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from trainflow.cli.main import app; app()",
            "check-account",
            "--config",
            str(config),
            *options,
        ],
        cwd=REPOSITORY,
        env={**inherited, **nowhere, **NO_REGISTRIES, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_account_in_which_nothing_fails(prepared: AwsServer, config: Path) -> None:
    done = check(config, **prepared.client_environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "fine      cluster: trainflow: Kubernetes 1.36, ACTIVE" in done.stdout
    assert "0 fails" in done.stdout.splitlines()[-1]


def test_a_region_without_bootstrap_is_told_the_command(prepared: AwsServer, config: Path) -> None:
    elsewhere = {**yaml.safe_load(config.read_text()), "region": "us-east-2"}
    config.write_text(yaml.safe_dump(elsewhere))
    done = check(config, **prepared.client_environment)
    assert done.returncode == 1
    assert "fails     bootstrap: the account and Region are not bootstrapped for CDK" in done.stdout
    assert "→ make bootstrap CONFIG=mine" in done.stdout
    assert "fails     cluster: existing_cluster.name: there is no cluster trainflow" in done.stdout


def test_json_has_the_documented_shape_and_nothing_beside_it(prepared: AwsServer, config: Path) -> None:
    done = check(config, "--json", **prepared.client_environment)
    document = json.loads(done.stdout)
    assert {key: document[key] for key in ("version", "configuration", "name", "region")} == {
        "version": 1,
        "configuration": str(config),
        "name": "trainflow",
        "region": "us-west-2",
    }
    assert set(document) == {"version", "configuration", "name", "region", "levels", "findings"}
    assert all(set(finding) == {"check", "level", "what", "why", "fix"} for finding in document["findings"])
    counted = dict.fromkeys(("fails", "surprises", "unchecked", "fine"), 0)
    for finding in document["findings"]:
        counted[finding["level"]] += 1
    assert document["levels"] == counted and counted["fine"] > 0
    silent = [finding for finding in document["findings"] if finding["check"] == "images and charts"]
    assert silent and {finding["level"] for finding in silent} == {"unchecked"}


def test_no_credentials_at_all(config: Path) -> None:
    done = check(config)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("fails     credentials: there are no AWS credentials\n")


def test_no_network(config: Path) -> None:
    nobody = {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_MAX_ATTEMPTS": "1",
    }
    done = check(config, **nobody)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("fails     credentials: AWS cannot be reached from here\n")


@pytest.mark.parametrize(
    ("text", "environment", "sentence"),
    [
        (None, {}, "cannot be read"),
        ("version: 1", {}, "region: this field is missing; add it"),
        ("", {"AWS_PROFILE": "nobody"}, "The config profile (nobody) could not be found; correct AWS_PROFILE"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_status_2(
    config: Path, text: str | None, environment: dict[str, str], sentence: str
) -> None:
    if text is None:
        config.unlink()
    elif text:
        config.write_text(text)
    done = check(config, **environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("trainflow: ") and sentence in done.stderr
    assert "Traceback" not in done.stderr
