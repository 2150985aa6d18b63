"""Build the trainer's images in CodeBuild and say their digests, which run specs name."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from cli.deployed.deployment import Deployment, DeploymentError

OUTPUT_PREFIX = "Build"
"""Outputs of the images stack that name a CodeBuild project: `BuildNeuron`, `BuildCpu`."""

DIGEST_VARIABLE = "IMAGE"
"""What the builds export: the image's name with its digest."""

POLL_SECONDS = 15.0


def build_images(
    deployment: Deployment, *, say: Callable[[str], None], poll_seconds: float = POLL_SECONDS
) -> dict[str, str]:
    """Start every build of the deployment, wait for them, and return image names by kind.

    Raises:
        DeploymentError: If there is nothing to build, or a build failed; the message says where its log is.
    """
    projects = {
        key.removeprefix(OUTPUT_PREFIX).lower(): project
        for key, project in deployment.outputs("images").items()
        if key.startswith(OUTPUT_PREFIX)
    }
    if not projects:
        raise DeploymentError(f"The stack {deployment.name}-images names no build projects.")
    codebuild = deployment.client("codebuild")
    builds = {kind: _start(codebuild, project) for kind, project in projects.items()}
    for kind, build in builds.items():
        say(f"{kind}: building ({build})")
    return {kind: _image(kind, _finished(codebuild, build, poll_seconds)) for kind, build in builds.items()}


def _start(codebuild: Any, project: str) -> str:
    try:
        return str(codebuild.start_build(projectName=project)["build"]["id"])
    except ClientError as error:
        reason = error.response["Error"].get("Message", error.response["Error"]["Code"]).rstrip(".")
        raise DeploymentError(
            f"CodeBuild did not start {project}: {reason}. Builds that were started go on; `trainflow check-account` "
            "says how many may run at once."
        ) from None


def _finished(codebuild: Any, build: str, poll_seconds: float) -> Mapping[str, Any]:
    while True:
        state: Mapping[str, Any] = codebuild.batch_get_builds(ids=[build])["builds"][0]
        if state["buildStatus"] != "IN_PROGRESS":
            return state
        time.sleep(poll_seconds)


def _image(kind: str, build: Mapping[str, Any]) -> str:
    if build["buildStatus"] != "SUCCEEDED":
        where = build.get("logs", {}).get("deepLink", "the CodeBuild console")
        raise DeploymentError(f"The {kind} image was not built ({build['buildStatus']}); its log is in {where}.")
    for variable in build.get("exportedEnvironmentVariables", ()):
        if variable["name"] == DIGEST_VARIABLE:
            return str(variable["value"])
    raise DeploymentError(f"The {kind} build succeeded without saying the image's digest.")
