"""Whether a node has a container's image, and the kubelet's words when it has not (pkg/kubelet/images)."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_LABEL = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST = (
    r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?::[0-9]+)|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+:[0-9]+)"
)
_DIGEST = "sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}"
_REFERENCE = re.compile(rf"(?:{_HOST}/)?{_LABEL}(?:/{_LABEL})*(?::[\w][\w.-]{{0,127}})?(?:@(?:{_DIGEST}))?")


@dataclass(frozen=True)
class ImageFault:
    """Reason why a container cannot be created; the kubelet tries again."""

    reason: str
    message: str


def image_fault(
    image: str, pull_policy: str, known: Collection[str] | None, *, tried: bool = False
) -> ImageFault | None:
    """The fault of an image; None if the node has it.

    Args:
        image: As the container names it.
        pull_policy: Never, IfNotPresent or Always.
        known: All images that exist; None if every image does.
        tried: Whether a pull has failed before, so that the next one has to wait.
    """
    if not _REFERENCE.fullmatch(image):
        detail = f'couldn\'t parse image name "{image}": invalid reference format'
        return ImageFault("InvalidImageName", f'Failed to apply default image tag "{image}": {detail}')
    if known is None or image in known:
        return None
    if pull_policy == "Never":
        return ImageFault("ErrImageNeverPull", f'Container image "{image}" is not present with pull policy of Never')
    pulled = f'failed to pull image "{image}": not found: it is none of the images that this node was told'
    if tried:
        return ImageFault("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {pulled}')
    return ImageFault("ErrImagePull", pulled)
