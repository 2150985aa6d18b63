"""The announcement of rank 0: what it writes, the workflow reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol import announcement

PODS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,120}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,120}[a-z0-9])?)?", fullmatch=True)


@given(PODS)
def test_a_pods_name_comes_back_from_its_announcement(pod: str) -> None:
    content = announcement.to_bytes(pod)
    assert len(content) <= announcement.MAX_BYTES
    assert announcement.announced_pod(content) == pod


@given(st.none() | st.binary(max_size=20))
def test_any_other_content_is_the_name_of_a_pod_or_none(content: bytes | None) -> None:
    found = announcement.announced_pod(content)
    assert found is None or announcement.to_bytes(found) == content


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "pod\n", "Pod", "pod-", "-pod", "a..b", "a.", "pod\0", "pöd", "p" * 254),
        *("../secrets/x", "victim/log?container=x&y=", "victim%2Flog", "victim/../../../../secrets#"),
    ],
)
def test_what_is_no_name_of_a_pod_is_neither_written_nor_read(text: str) -> None:
    assert announcement.announced_pod(text.encode()) is None
    with pytest.raises(ValueError, match="not the name of a pod"):
        announcement.to_bytes(text)


def test_the_longest_name_of_a_pod_is_one() -> None:
    longest = "p" * announcement.MAX_BYTES
    assert announcement.announced_pod(announcement.to_bytes(longest)) == longest
