"""The pictures of a report: text of SVG, which is part of the page. Their colours are the page's, by class.

A picture is as wide as the page, and its text keeps its size. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 960
_LABEL_WIDTH = 150
_ROW = 22
_AXIS = 34
_HEIGHT = 200
_LEAST_SHADE = 0.05  # of the darkest


@dataclass(frozen=True)
class Part:
    """A part of a bar: its class of colour, how long it is, and what it says."""

    kind: str
    value: float
    title: str


def bars(rows: Sequence[tuple[str, Sequence[Part]]], unit: Callable[[float], str]) -> str:
    """A bar of parts in each row, all on one scale from 0."""
    most = max((sum(part.value for part in parts) for _, parts in rows), default=0.0)
    step, top = _scale(most)
    plot = WIDTH - _LABEL_WIDTH - 40
    height = _ROW * len(rows)
    texts = []
    for n in range(round(top / step) + 1):
        x = _LABEL_WIDTH + plot * n * step / top
        texts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height + 4}"/>')
        texts.append(_text(x, height + 18, unit(n * step), "tick middle"))
    for number, (label, parts) in enumerate(rows):
        x, y = float(_LABEL_WIDTH), number * _ROW + 3
        texts.append(_text(_LABEL_WIDTH - 8, y + 12, label, "end"))
        for part in parts:
            width = plot * part.value / top
            if width >= 0.05:
                texts.append(_rect(x, y, width, _ROW - 6, f"fill {part.kind}", part.title))
            x += width
    return _svg(texts, height + _AXIS - 8)


def lines(
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    x_unit: Callable[[float], str],
    y_unit: Callable[[float], str],
) -> str:
    """Points, from left to right, joined by lines, of one or several series, each with its class of colour."""
    points = [point for _, each in series for point in each]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    y_step, y_top = _scale(max(y for _, y in points))
    x_step, _ = _scale(right - left)
    width, height = WIDTH - 100, _HEIGHT
    x_scale = width / (right - left if right > left else 1.0)

    def place(x: float, y: float) -> tuple[float, float]:
        return 80 + (x - left) * x_scale, 8 + height - height * y / y_top

    texts = []
    for n in range(round(y_top / y_step) + 1):
        _, y = place(left, n * y_step)
        texts.append(f'<line class="grid" x1="80" x2="{80 + width}" y1="{y:.1f}" y2="{y:.1f}"/>')
        texts.append(_text(72, y + 4, y_unit(n * y_step), "tick end"))
    n = math.ceil(left / x_step - 1e-9)
    while n * x_step <= right + 1e-9 * x_step:
        x, _ = place(n * x_step, 0)
        texts.append(_text(x, height + 26, x_unit(n * x_step), "tick middle"))
        n += 1
    for kind, each in series:
        places = [place(x, y) for x, y in each]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        texts.append(f'<polyline class="line {escape(kind)}" points="{path}"/>')
        texts += [
            f'<circle class="dot {escape(kind)}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
            f"<title>{escape(f'{x_unit(at)}: {y_unit(value)}')}</title></circle>"
            for (x, y), (at, value) in zip(places, each, strict=True)
        ]
    return _svg(texts, height + _AXIS)


@dataclass(frozen=True)
class Columns:
    """The columns of a heat map: what they are, what each says in titles, and below the axis."""

    axis: str
    titles: Sequence[str]
    ticks: Sequence[str]


def heat_map(
    rows: Sequence[tuple[str, Sequence[float]]], columns: Columns, unit: Callable[[float], str], least_top: float
) -> str:
    """A cell for each row and column, the darker the larger its value, by the root of it: small ones are seen too.

    The darkest is the largest value, or ``least_top`` if all are smaller.
    """
    most = max([least_top, *(value for _, values in rows for value in values)])
    n_columns = len(columns.titles)
    width = (WIDTH - _LABEL_WIDTH - 20) / max(1, n_columns)
    height = _ROW * len(rows)
    texts = []
    for number, (label, values) in enumerate(rows):
        y = number * _ROW
        texts.append(_text(_LABEL_WIDTH - 8, y + 15, label, "end"))
        texts.append(_rect(_LABEL_WIDTH, y + 1, width * n_columns, _ROW - 2, "cold", ""))
        for column, value in enumerate(values):
            if value / most >= _LEAST_SHADE**2:
                title = f"{label}, {columns.titles[column]}: {unit(value)}"
                x, right = (round(_LABEL_WIDTH + edge * width, 2) for edge in (column, column + 1))
                texts.append(_rect(x, y + 1, right - x, _ROW - 2, "hot", title, math.sqrt(value / most)))
    for column in range(0, n_columns, max(1, math.ceil(n_columns / 8))):
        texts.append(_text(_LABEL_WIDTH + column * width, height + 16, columns.ticks[column], "tick"))
    texts.append(_text(_LABEL_WIDTH - 8, height + 16, columns.axis, "tick end"))
    return _svg([*texts, *_legend(height + 26, unit(most))], height + 42)


def _legend(y: float, most: str) -> list[str]:
    texts = []
    x, n_shades = WIDTH - 220, 5
    for n in range(n_shades):
        texts.append(_rect(x + 26 * n, y, 26, 10, "cold", ""))
        texts.append(_rect(x + 26 * n, y, 26, 10, "hot", "", math.sqrt((n + 0.5) / n_shades)))
    return [*texts, _text(x - 6, y + 9, "0", "tick end"), _text(x + 26 * n_shades + 6, y + 9, most, "tick")]


def _svg(texts: Sequence[str], height: float) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{"".join(texts)}</svg>'


def _rect(x: float, y: float, width: float, height: float, kind: str, title: str, opacity: float = 1.0) -> str:
    faint = f' fill-opacity="{opacity:.2f}"' if opacity < 1 else ""
    inside = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect class="{escape(kind)}" x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.0f}"{faint}>'
        f"{inside}</rect>"
    )


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{escape(kind)}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _scale(most: float) -> tuple[float, float]:
    """The distance of ticks, 1, 2 or 5 times a power of ten, and the end of an axis for values up to ``most``."""
    if most <= 0:
        return 1.0, 1.0
    rough = most / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return step, step * math.ceil(most / step - 1e-9)
