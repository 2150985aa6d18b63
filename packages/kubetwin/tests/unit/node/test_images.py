from __future__ import annotations

import pytest
from kubetwin.node.images import image_fault

KNOWN = ("busybox", "registry.example:5000/team/train:1.2")


@pytest.mark.parametrize(
    "image",
    ["busybox", "busybox:1.36", "registry.example:5000/team/train:1.2", "a/b/c@sha256:" + "0" * 64, "localhost/x:y"],
)
def test_every_image_exists_unless_others_are_told(image: str) -> None:
    assert image_fault(image, "Always", None) is None


@pytest.mark.parametrize(
    "image", ["UPPER", "a:b:c", "a b", "https://registry/a", "a/", "a@sha256:short", f"a@sha256:{'0' * 63}", "-a"]
)
def test_a_name_that_is_none_is_invalid(image: str) -> None:
    fault = image_fault(image, "Always", None)
    assert fault is not None
    assert fault.reason == "InvalidImageName"
    assert fault.message == (
        f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": invalid reference format'
    )


@pytest.mark.parametrize(
    ("policy", "tried", "reason"),
    [
        ("Always", False, "ErrImagePull"),
        ("IfNotPresent", True, "ImagePullBackOff"),
        ("Never", False, "ErrImageNeverPull"),
    ],
)
def test_an_image_that_the_node_was_not_told_cannot_be_pulled(policy: str, tried: bool, reason: str) -> None:
    fault = image_fault("busybox:2", policy, KNOWN, tried=tried)
    assert fault is not None
    assert fault.reason == reason


@pytest.mark.parametrize("image", KNOWN)
def test_an_image_that_the_node_was_told_exists(image: str) -> None:
    assert image_fault(image, "Never", KNOWN) is None
