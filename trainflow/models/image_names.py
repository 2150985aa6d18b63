"""Names of container images in a private registry of Amazon ECR."""

from __future__ import annotations

import re
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
        """Where Docker logs in."""
        return f"{self.account}.dkr.ecr.{self.region}.amazonaws.com"


def in_private_ecr(image: str) -> EcrImage | None:
    """The parts of an image's name; None if the image is in a public registry or outside of ECR."""
    found = PRIVATE_ECR.fullmatch(image)
    return EcrImage(**found.groupdict()) if found else None
