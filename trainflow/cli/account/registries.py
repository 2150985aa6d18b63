"""Asks registries whether an image or a chart is there: the OCI distribution API, and the index of Helm repositories.

Anonymous, as the nodes and the charts' installation are. Registries say in `WWW-Authenticate` where a token is to be
had (OCI distribution specification; docker's token authentication).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
import yaml

from trainflow.cli.account.facts import Unknown
from trainflow.cli.account.needs import Artifact

TIMEOUT = urllib3.Timeout(connect=5, read=20)

LARGEST_ANSWER = 32 * 1024 * 1024
"""Most bytes of an answer. The index of eks-charts is about 2 MiB."""

MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)

DOCKER_HUB = "registry-1.docker.io"

_PARAMETER = re.compile(r'([a-z]+)="([^"]*)"')

_NAME = re.compile(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
"""Names of repositories: OCI distribution specification, pulling manifests."""

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|sha256:[0-9a-f]{64}")


class Unreadable(Exception):
    """Something from outside that is not what it should be; the message is a clause."""


@dataclass(frozen=True)
class Reference:
    """An image in a registry."""

    host: str
    repository: str
    tag: str
    """A tag, or a digest."""

    @property
    def url(self) -> str:
        """URL of the image's manifest."""
        return f"https://{self.host}/v2/{self.repository}/manifests/{self.tag}"


Get = Callable[[str, Mapping[str, str]], tuple[int, Mapping[str, str], bytes]]
"""URL and headers in; status, headers and body out."""


class Registries:
    """Answers whether artifacts exist."""

    def __init__(self, get: Get | None = None) -> None:
        self._get = get or Web().get

    def has(self, artifact: Artifact) -> bool | Unknown:
        """Whether an image or a chart is there."""
        try:
            if artifact.chart:
                return self._has_chart(artifact)
            return self._has_manifest(parse_reference(artifact.reference))
        except Unreadable as error:
            return Unknown(str(error))
        except urllib3.exceptions.HTTPError as error:
            url = artifact.reference if artifact.chart else parse_reference(artifact.reference).url
            host = urlsplit(url).hostname
            cause = getattr(error, "reason", None) or error
            return Unknown(f"{host} did not answer ({type(cause).__name__})", "Check the network, and ask again.")

    def _has_chart(self, artifact: Artifact) -> bool:
        status, _, body = self._get(f"{artifact.reference.rstrip('/')}/index.yaml", {})
        if status != 200:
            raise Unreadable(f"{artifact.reference} answered {status}")
        wanted = artifact.version.removeprefix("v")
        return wanted in {version.removeprefix("v") for version in chart_versions(body, artifact.chart)}

    def _has_manifest(self, reference: Reference) -> bool:
        status, headers, _ = self._get(reference.url, {"Accept": MANIFESTS})
        if status == 401:
            token = self._token(token_url(headers.get("WWW-Authenticate", ""), reference))
            with_token = {"Accept": MANIFESTS, "Authorization": f"Bearer {token}"}
            status, _, _ = self._get(reference.url, with_token)
        if status in (200, 404):
            return status == 200
        raise Unreadable(f"{reference.host} answered {status}")

    def _token(self, url: str) -> str:
        status, _, body = self._get(url, {})
        if status != 200:
            raise Unreadable(f"{urlsplit(url).hostname} gave no token ({status})")
        return parse_token(body)


class Web:
    """Requests, through the proxy that the environment names."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pools: dict[str | None, urllib3.PoolManager] = {}

    def get(self, url: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body, after redirects; a token does not follow to another host.

        Raises:
            urllib3.exceptions.HTTPError: If the host does not answer.
        """
        answer = self._pool(url).request(
            "GET", url, headers=headers, timeout=TIMEOUT, retries=urllib3.Retry(2, redirect=4), preload_content=False
        )
        try:
            body = answer.read(LARGEST_ANSWER)
        finally:
            answer.release_conn()
        return answer.status, answer.headers, body

    def _pool(self, url: str) -> urllib3.PoolManager:
        host = urlsplit(url).hostname or ""
        proxy = None if proxy_bypass(host) else getproxies().get("https")
        with self._lock:
            if proxy not in self._pools:
                self._pools[proxy] = urllib3.ProxyManager(proxy) if proxy else urllib3.PoolManager()
            return self._pools[proxy]


def parse_reference(text: str) -> Reference:
    """An image's name in its parts; one without a registry is Docker Hub's, as Docker has it.

    Raises:
        Unreadable: If it is not the name of an image.
    """
    name, _, digest = text.partition("@")
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first):
        host, path = first, rest
    else:
        host, path = DOCKER_HUB, name if slash else f"library/{name}"
    path, _, tag = path.partition(":")
    found = Reference(host, path, digest or tag or "latest")
    if not (_NAME.fullmatch(path) and _TAG.fullmatch(found.tag) and re.fullmatch(r"[A-Za-z0-9.-]+(:\d+)?", host)):
        raise Unreadable(f"'{text}' is not the name of an image")
    return found


def token_url(challenge: str, reference: Reference) -> str:
    """URL of a registry's token server, from its header `WWW-Authenticate`.

    Raises:
        Unreadable: If the header does not contain it.
    """
    kind, _, rest = challenge.partition(" ")
    parameters: dict[str, str] = dict(_PARAMETER.findall(rest))
    realm = parameters.pop("realm", "")
    if kind.lower() != "bearer" or not realm.startswith("https://"):
        raise Unreadable(f"{reference.host} wants a login of a kind that is not known here")
    query = {"scope": f"repository:{reference.repository}:pull"} | {
        name: value for name, value in parameters.items() if name in ("service", "scope")
    }
    return f"{realm.partition('?')[0]}?{urlencode(query)}"


def parse_token(body: bytes) -> str:
    """The token in a token server's answer.

    Raises:
        Unreadable: If it is missing.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Unreadable("the registry's token cannot be read") from None
    token = (document.get("token") or document.get("access_token")) if isinstance(document, dict) else None
    if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
        raise Unreadable("the registry's token cannot be read")
    return token


def chart_versions(index: bytes, chart: str) -> frozenset[str]:
    """The versions of a chart in the index of a Helm repository.

    Raises:
        Unreadable: If it is not an index.
    """
    try:
        # Scalars stay text: "1.10" is no number here, and a date that does not exist is no error.
        document = yaml.load(index, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # noqa: S506  (texts only)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise Unreadable("the chart repository's index cannot be read") from None
    entries = document.get("entries") if isinstance(document, dict) else None
    releases = entries.get(chart, []) if isinstance(entries, dict) else None
    if not isinstance(releases, list):
        raise Unreadable("the chart repository's index cannot be read")
    return frozenset(
        version
        for release in releases
        if isinstance(release, dict) and isinstance(version := release.get("version"), str)
    )
