"""Moments on the page: in UTC as they are sent, in the reader's own time as they are shown (assets/times.js)."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d(?::\d\d)?) UTC")


def with_moments(text: str) -> Markup:
    """A text whose moments, such as `2026-11-27 15:42:10 UTC`, are `time` elements with UTC as their title."""
    parts, end = [], 0
    for found in _MOMENT.finditer(text):
        day, clock = found.groups()
        element = Markup('<time datetime="{}T{}Z" title="{}">{}</time>').format(day, clock, found[0], found[0])
        parts += [escape(text[end : found.start()]), element]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])
