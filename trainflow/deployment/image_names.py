"""Names of container images: of those in a private registry of Amazon ECR, and of those that a deployment allows."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

PRIVATE_ECR = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com/(?P<repository>[^:@]+)"
    r"(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
"""Amazon ECR user guide, "Amazon ECR private registry": the registry's address; then repository, tag and digest."""


@dataclass(frozen=True, kw_only=True)
class EcrImage:
    """An image's name, taken apart."""

    account: str
    region: str
    repository: str
    tag: str | None
    digest: str | None

    @property
    def registry(self) -> str:
        """Host name for `docker login`."""
        return f"{self.account}.dkr.ecr.{self.region}.amazonaws.com"


def in_private_ecr(image: str) -> EcrImage | None:
    """The parts of an image's name; None if the image is in a public registry or outside of ECR."""
    found = PRIVATE_ECR.fullmatch(image)
    return EcrImage(**found.groupdict()) if found else None


def is_allowed(image: str, allowed: Collection[str]) -> bool:
    """Whether an image is one of those that a deployment allows.

    Args:
        image: Name of the image, with its tag or digest, as in a spec.
        allowed: Registries, folders of registries or repositories, which allow all below them; and whole names. A
            short name is compared as it is written: `python` is not `docker.io/library/python`. All, if empty.
    """
    repository = _repository(image)
    return not allowed or any(image == each or f"{repository}/".startswith(f"{each}/") for each in allowed)


def _repository(image: str) -> str:
    """The name without tag and digest; a colon before the last slash belongs to a registry's port."""
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"
