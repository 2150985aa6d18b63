"""Names of images in Amazon ECR."""

from __future__ import annotations

import pytest

from trainflow.deployment.image_names import EcrImage, in_private_ecr, is_allowed

REGISTRY = "123456789012.dkr.ecr.us-west-2.amazonaws.com"
DIGEST = f"sha256:{'ab' * 32}"


@pytest.mark.parametrize(
    ("name", "tag", "digest"),
    [
        ("trainflow", None, None),
        ("trainflow:tools-1", "tools-1", None),
        (f"trainflow@{DIGEST}", None, DIGEST),
        (f"trainflow:cpu-1@{DIGEST}", "cpu-1", DIGEST),
    ],
)
def test_a_name_in_ecr_is_taken_apart(name: str, tag: str | None, digest: str | None) -> None:
    found = in_private_ecr(f"{REGISTRY}/{name}")
    assert found == EcrImage(account="123456789012", region="us-west-2", repository="trainflow", tag=tag, digest=digest)
    assert found.registry == REGISTRY


@pytest.mark.parametrize(
    "name", ["python:3.12", "public.ecr.aws/neuron/x:1", f"{REGISTRY}/", f"evil.example/{REGISTRY}/trainflow:1"]
)
def test_other_names_are_not(name: str) -> None:
    assert in_private_ecr(name) is None


@pytest.mark.parametrize(
    ("image", "allowed", "answer"),
    [
        ("python:3.12", (), True),
        ("python:3.12", ("python",), True),
        ("python@sha256:00", ("python",), True),
        ("python:3.12", ("python:3.12",), True),
        ("python:3.11", ("python:3.12",), False),
        ("docker.io/library/python", ("python",), False),
        ("host:5000/team/trainer:1", ("host:5000",), True),
        ("host:5000/team/trainer:1", ("host",), False),
        ("host:5000/team/trainer:1", ("host:5000/team",), True),
        ("host:5000/teams/trainer:1", ("host:5000/team",), False),
        ("host.evil.example/team/trainer", ("host",), False),
        ("evil/host:5000/team", ("host:5000/team",), False),
    ],
)
def test_what_is_below_an_allowed_name_is_allowed_and_what_begins_like_it_is_not(
    image: str, allowed: tuple[str, ...], answer: bool
) -> None:
    assert is_allowed(image, allowed) is answer
