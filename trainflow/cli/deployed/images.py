"""Build the deployment's images in CodeBuild, those that ECR lacks, and say their digests, which run specs name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from trainflow.client.deployment import Deployment, DeploymentError

PROJECT_PREFIX = "Build"
"""Outputs of the images stack that name a CodeBuild project: `BuildNeuron`, `BuildCpu`, `BuildTools`."""

TAG_PREFIX = "Tag"
"""Outputs that name the tag of what a project builds: `TagNeuron`, …; it is made of the image's content."""

REPOSITORY_OUTPUT = "ImageRepository"

DIGEST_VARIABLE = "IMAGE"
"""Variable that the builds export: the image's name with its digest."""

POLL_SECONDS = 15.0

AT_LIMIT = "AccountLimitExceededException"
"""StartBuild's answer where an account runs as many builds as it may, which is one in many new accounts."""

NO_BUILDS = "more than 0 builds"
"""Part of that answer's message when the account may run no builds at all; waiting does not change it."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One kind of image, as the stack's outputs describe it."""

    kind: str
    project: str
    repository: str
    """Its address, without a tag."""
    tag: str


def build_images(
    deployment: Deployment,
    *,
    say: Callable[[str], None],
    only: str | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> Iterator[tuple[str, str]]:
    """Build every image that ECR lacks, as many at once as the account may, and yield kind and name of each image.

    Args:
        deployment: The deployment whose images are built.
        say: Prints the progress, one sentence per call.
        only: Build only this kind; None for all.
        poll_seconds: Time between two polls of the builds.

    Raises:
        DeploymentError: If images to build are missing, AWS refuses, or a build failed. The other images are still
            built, and the message names the logs.
    """
    recipes = _recipes(deployment, only)
    try:
        waiting = []
        for recipe in recipes:
            image = _image_in_ecr(deployment, recipe)
            if image is None:
                waiting.append(recipe)
            else:
                say(f"{recipe.kind}: this content was built before ({recipe.tag})")
                yield recipe.kind, image
        yield from _built(deployment.client("codebuild"), waiting, say=say, poll_seconds=poll_seconds)
    except ClientError as error:
        detail = error.response["Error"]
        raise DeploymentError(
            f"AWS refused {error.operation_name} ({detail['Code']}: {str(detail['Message']).rstrip('.')}); what was "
            "started goes on in CodeBuild, and this command can be repeated."
        ) from None
    except BotoCoreError as error:
        raise DeploymentError(f"AWS cannot be asked about the images: {str(error).rstrip('.')}.") from None


def _recipes(deployment: Deployment, only: str | None) -> list[Recipe]:
    outputs = deployment.outputs("images")
    recipes = [
        Recipe(
            kind=kind.lower(),
            project=project,
            repository=outputs[REPOSITORY_OUTPUT],
            tag=outputs[f"{TAG_PREFIX}{kind}"],
        )
        for key, project in outputs.items()
        if (kind := key.removeprefix(PROJECT_PREFIX)) != key and f"{TAG_PREFIX}{kind}" in outputs
    ]
    if not recipes or REPOSITORY_OUTPUT not in outputs:
        raise DeploymentError(f"The stack {deployment.name}-images names no build projects; `make deploy` updates it.")
    kinds = sorted(recipe.kind for recipe in recipes)
    if only is not None and only not in kinds:
        raise DeploymentError(f"There is no image '{only}' in {deployment.name}; choose one of {', '.join(kinds)}.")
    return [recipe for recipe in recipes if only in (None, recipe.kind)]


def _image_in_ecr(deployment: Deployment, recipe: Recipe) -> str | None:
    name = recipe.repository.partition("/")[2]
    try:
        found = deployment.client("ecr").describe_images(repositoryName=name, imageIds=[{"imageTag": recipe.tag}])
    except ClientError as error:
        if error.response["Error"]["Code"] == "ImageNotFoundException":
            return None
        raise
    return f"{recipe.repository}@{found['imageDetails'][0]['imageDigest']}"


def _built(
    codebuild: Any, waiting: list[Recipe], *, say: Callable[[str], None], poll_seconds: float
) -> Iterator[tuple[str, str]]:
    """Start as many builds as the account allows, poll them, and start the others as builds end."""
    running: dict[str, Recipe] = {}
    failures: list[str] = []
    told = False
    while waiting or running:
        while waiting and (build := _started(codebuild, waiting[0])) is not None:
            running[build] = waiting.pop(0)
            say(f"{running[build].kind}: building ({build})")
        if waiting and not told:
            kinds = ", ".join(recipe.kind for recipe in waiting)
            say(f"{kinds}: waiting, because the account runs as many builds as it may (Service Quotas, CodeBuild)")
            told = True
        for build, recipe in list(running.items()):
            state = codebuild.batch_get_builds(ids=[build])["builds"][0]
            if state["buildStatus"] == "IN_PROGRESS":
                continue
            del running[build]
            try:
                yield recipe.kind, _image(recipe.kind, state)
            except DeploymentError as failure:
                say(str(failure))
                failures.append(str(failure))
        if running or waiting:
            time.sleep(poll_seconds)
    if failures:
        raise DeploymentError(" ".join(failures))


def _started(codebuild: Any, recipe: Recipe) -> str | None:
    """The build's id; None while the account may not run one more.

    Raises:
        DeploymentError: If the account may run none at all.
    """
    try:
        return str(codebuild.start_build(projectName=recipe.project)["build"]["id"])
    except ClientError as error:
        if error.response["Error"]["Code"] != AT_LIMIT:
            raise
        if NO_BUILDS in error.response["Error"]["Message"]:
            raise DeploymentError(
                "This account may run no CodeBuild builds; ask AWS for 'Concurrently running builds for Linux/Medium "
                "environment' (Service Quotas, CodeBuild), which new accounts have to ask for, and repeat the command."
            ) from None
        return None


def _image(kind: str, build: Mapping[str, Any]) -> str:
    if build["buildStatus"] != "SUCCEEDED":
        where = build.get("logs", {}).get("deepLink", "the CodeBuild console")
        raise DeploymentError(f"The {kind} image was not built ({build['buildStatus']}); its log is in {where}.")
    for variable in build.get("exportedEnvironmentVariables", ()):
        if variable["name"] == DIGEST_VARIABLE:
            return str(variable["value"])
    raise DeploymentError(f"The {kind} build succeeded without saying the image's digest.")
