"""Draws the efficiency over the number of ranks as an SVG picture."""

from __future__ import annotations

from collections.abc import Mapping

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 110, 40, 48

COLOURS = ("#1f77b4", "#d95f02")
MARKS = ("circle", "square")
"""Marks of the lines, so that they differ in shape and not only in colour."""


def svg(efficiencies: Mapping[str, Mapping[int, float]]) -> str:
    """Draw one line for each kind of scaling.

    Args:
        efficiencies: By kind, then by number of ranks; 1.0 is as much as so many single ranks would do.
    """
    ranks = sorted({size for shares in efficiencies.values() for size in shares})
    x_of = {size: LEFT + (WIDTH - LEFT - RIGHT) * at / max(1, len(ranks) - 1) for at, size in enumerate(ranks)}
    highest = max(1.0, *(share for shares in efficiencies.values() for share in shares.values()))
    parts = [_frame(), *(_y_line(tenth / 4, highest) for tenth in range(5)), *(_x_label(x_of[s], s) for s in ranks)]
    for number, (kind, shares) in enumerate(efficiencies.items()):
        points = [(x_of[size], _y_position(share, highest)) for size, share in sorted(shares.items())]
        parts.append(_line(kind, points, number))
    return "\n".join([*parts, "</svg>\n"])


def _y_position(share: float, highest: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share / highest


def _frame() -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12" role="img" aria-label="Scaling efficiency by number of ranks">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n'
        f'<text x="{LEFT}" y="22" font-size="14">Scaling efficiency of pretraining</text>\n'
        f'<text x="{(WIDTH - RIGHT + LEFT) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">ranks</text>'
    )


def _y_line(share: float, highest: float) -> str:
    y = _y_position(share, highest)
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
    )


def _x_label(x: float, size: int) -> str:
    return f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size}</text>'


def _line(kind: str, points: list[tuple[float, float]], number: int) -> str:
    colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    marks = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
        if mark == "circle"
        else f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>'
        for x, y in points
    )
    x, y = points[-1]
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>{marks}'
        f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" fill="{colour}">{kind}</text>'
    )
