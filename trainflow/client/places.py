"""Deployments by their names, found by what each of them says of itself."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainflow.client.hints import place_words
from trainflow.client.place import PlaceUnavailable
from trainflow.client.place_names import NamedPlace
from trainflow.deployment.address import PREFIX, SUFFIX, DeploymentAddress, parameter_name

if TYPE_CHECKING:
    from trainflow.client.runs import DeployedRuns
    from trainflow.kubernetes.api import KubernetesApi

POLL_SECONDS = 2.0
"""Time between two polls of an execution: quotas of Step Functions are shared by all callers of an account."""

TOKEN_SECONDS = 600
"""Age of a cluster's token at its replacement; EKS accepts it for 15 minutes."""


def open_deployment(place: NamedPlace | None) -> DeployedRuns:
    """The runs of a deployment; without a name, of the only one in the Region.

    Raises:
        PlaceUnavailable: If the deployment does not exist, or if there are several to choose from.
        PlaceRefused: If AWS does not let the caller read its address.
    """
    from trainflow.client.runs import DeployedRuns

    place = place or _only_one()
    session = place.session()
    address = _address(session, place)
    return DeployedRuns(
        address,
        client=session.client,
        kubernetes=lambda: _kubernetes(session, cluster=address.cluster),
        poll_seconds=POLL_SECONDS,
        hint_words=place_words(place.name),  # the deployment may be in another Region, or of another profile
    )


def deployments(session: Any) -> list[str]:
    """Names of the deployments in the session's account and Region."""
    from trainflow.client.refusals import told

    @told
    def found() -> list[str]:
        pages = session.client("ssm").get_paginator("get_parameters_by_path").paginate(Path=PREFIX, Recursive=True)
        names = [parameter["Name"] for page in pages for parameter in page["Parameters"]]
        return sorted(name.removeprefix(PREFIX).removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))

    return found()


def _only_one() -> NamedPlace:
    anywhere = NamedPlace(name="default", deployment="")
    session = anywhere.session()
    found = deployments(session)
    if len(found) != 1:
        what = f"has {len(found)} deployments ({', '.join(found)})" if found else "has no deployment"
        raise PlaceUnavailable(
            f"The account {what} in {session.region_name}; name one with --place, or use --local for the twin."
        )
    return NamedPlace(name=found[0], deployment=found[0])


def _address(session: Any, place: NamedPlace) -> DeploymentAddress:
    from trainflow.client.refusals import told

    ssm = session.client("ssm")

    @told
    def text() -> str | None:
        try:
            return str(ssm.get_parameter(Name=parameter_name(place.deployment))["Parameter"]["Value"])
        except ssm.exceptions.ParameterNotFound:
            return None

    found = text()
    if found is None:
        raise PlaceUnavailable(
            f"There is no deployment '{place.deployment}' in {session.region_name}: the parameter "
            f"{parameter_name(place.deployment)} is missing. Name another with --place, or deploy this version."
        )
    try:
        return DeploymentAddress.model_validate_json(found)
    except ValueError:
        raise PlaceUnavailable(
            f"The parameter {parameter_name(place.deployment)} is not an address; deploy this version: make deploy."
        ) from None


def _kubernetes(session: Any, *, cluster: str) -> KubernetesApi:
    """The cluster's API with the caller's own credentials; the token is renewed before it expires."""
    import atexit
    import base64

    from trainflow.client.observe.cluster import READ_SECONDS
    from trainflow.client.refusals import told
    from trainflow.kubernetes.api import KubernetesApi
    from trainflow.kubernetes.connection import from_endpoint
    from trainflow.kubernetes.eks import bearer_token

    @told
    def described() -> Mapping[str, Any]:
        found: Mapping[str, Any] = session.client("eks").describe_cluster(name=cluster)["cluster"]
        return found

    found, sts = described(), session.client("sts")
    with tempfile.NamedTemporaryFile("wb", suffix=".pem", delete=False) as file:
        file.write(base64.b64decode(found["certificateAuthority"]["data"]))
    atexit.register(Path(file.name).unlink, missing_ok=True)
    api = from_endpoint(found["endpoint"], ca_file=file.name, token=bearer_token(session, sts, cluster))
    renewed_at = time.monotonic()

    def renew(settings: Any) -> None:
        nonlocal renewed_at
        if time.monotonic() - renewed_at > TOKEN_SECONDS:
            settings.api_key["authorization"] = f"Bearer {bearer_token(session, sts, cluster)}"
            renewed_at = time.monotonic()

    hook: Callable[[Any], None] = renew
    api.configuration.refresh_api_key_hook = hook
    return KubernetesApi(api, read_seconds=READ_SECONDS)
