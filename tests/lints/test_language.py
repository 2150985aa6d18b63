"""The product's language gets plainer: a counted pattern may become rarer in a room, never more frequent."""

from __future__ import annotations

from tests.lints.language import baseline, counts, places


def test_no_room_has_more_discouraged_patterns_than_before() -> None:
    now, limits = counts(), baseline()
    more = {room for room, count in now.items() if count > limits.get(room, 0)}
    found = "\n".join(f"{place.where}: {place.pattern}: {place.text}" for place in places() if place.room in more)
    limited = ", ".join(f"{room} {now[room]} of at most {limits.get(room, 0)}" for room in sorted(more))
    assert not more, f"Rewrite some of these places: {limited}\n{found}"


def test_the_baseline_falls_with_the_counts() -> None:
    now = counts()
    fewer = [room for room, limit in baseline().items() if now.get(room, 0) < limit]
    assert not fewer, f"Run `python -m tests.lints.language --lower`: {', '.join(fewer)} improved."
