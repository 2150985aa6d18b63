"""The announcement of rank 0: what it writes, the workflow reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol import announcement

PODS = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True)


@given(PODS)
def test_a_pods_name_comes_back_from_its_announcement(pod: str) -> None:
    content = announcement.to_bytes(pod)
    assert len(content) <= announcement.MAX_BYTES
    assert announcement.announced_pod(content) == pod


@given(st.none() | st.binary(max_size=20))
def test_any_other_content_is_some_text_or_none(content: bytes | None) -> None:
    found = announcement.announced_pod(content)
    assert found is None or found.strip()
