"""Disk that container images take on a node.

A layer is unpacked from its compressed form, which is deleted afterwards (EKS AMI, nodeadm: `discard_unpacked_layers`
in internal/containerd/config.template.toml). So a node holds every image unpacked, and the layers of the one that it
pulls twice. Images of earlier runs stay until the disk is nearly full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

BUILT_IMAGES_GB = {"tools": 0.3, "cpu": 2.0, "neuron": 10.0}
"""Compressed size of each kind of image that `make images` builds, in GB. Estimates: none has been built yet."""

UNPACKED = 3.0
"""Ratio of a layer's content to its compressed size, as for archives of data (`lambdas.logic.preflight.probe`)."""

SYSTEM_BYTES = 10 * 2**30
"""Amazon Linux, logs, and the images of daemon sets and controllers; an estimate."""

EVICTED_BELOW = 0.10
"""The kubelet evicts pods when less than this share of the disk is available (`nodefs.available`; nodeadm, internal/
kubelet/config.go). What a node offers to pods, its allocatable `ephemeral-storage`, leaves this share out."""


def bytes_for(compressed: Sequence[float]) -> float:
    """Bytes that a node needs to hold images, and to pull the largest of them last.

    Args:
        compressed: Compressed size of each image, in bytes, as a registry lists it.
    """
    return SYSTEM_BYTES + UNPACKED * sum(compressed) + max(compressed, default=0)


def disk_gib(compressed: Sequence[float]) -> int:
    """Smallest disk for these images, in GiB."""
    return math.ceil(bytes_for(compressed) / (1 - EVICTED_BELOW) / 2**30)
