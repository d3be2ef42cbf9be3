"""A program as a picture: its operators from top to bottom, and beside them the transfers on each ring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import paddle

from ciranda.errors import InvalidArgumentError
from ciranda.paddle import _plugin, programs

_COLOURS = ("#2a6fbb", "#c2452d", "#3d8f4f", "#8a5fb5", "#b8862b", "#2f8f93", "#a8497d", "#5d6b7a")
_ROW, _TEXT, _BAR = 16, 460, 22


@dataclass(frozen=True)
class Row:
    """One operator."""

    text: str
    #: Of collectives of ours: the ring, the calls that it starts, and those that it waits for.
    ring: int | None = None
    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


@dataclass(frozen=True)
class Span:
    """A call, from the row that starts it to the one that has waited for it."""

    name: str
    ring: int
    begin: int
    end: int


def rows_of(program: Any) -> list[Row]:
    """Return the operators of a program of either IR, in their order."""
    return [_row(op) for block in program.blocks for op in block.ops]


def _row(op: Any) -> Row:
    kind = programs.kind_of(op)
    if kind is None:
        return Row(programs.type_of(op))
    ring = int(programs.attribute(op, "ring_id"))
    if kind == "sync_comm":
        names = tuple(programs.attribute(op, "names"))
        return Row(f"sync_comm: {len(names)} calls", ring, (), names)
    name = str(programs.attribute(op, "name"))
    return Row(f"{kind}: {name}", ring, (name,), () if kind == "allreduce_start" else (name,))


def spans_of(rows: Sequence[Row]) -> list[Span]:
    """Return the transfers, in the order of their starts. One without a sync lasts to the end."""
    ends = {name: index for index, row in enumerate(rows) for name in row.ends}
    return [
        Span(name, row.ring or 0, index, ends.get(name, len(rows)))
        for index, row in enumerate(rows)
        for name in row.starts
    ]


def svg(rows: Sequence[Row]) -> str:
    """Return the picture."""
    spans = spans_of(rows)
    rings = sorted({span.ring for span in spans})
    columns = {ring: index for index, ring in enumerate(rings)}
    width, height = _TEXT + _BAR * (len(rings) + 1), _ROW * (len(rows) + 2)
    size = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        *(_label(_TEXT + _BAR * columns[ring] + 4, 0, str(ring), _colour(ring)) for ring in rings),
        *(_bar(span, _TEXT + _BAR * columns[span.ring]) for span in spans),
        *(_label(4, index + 1, row.text, _colour(row.ring)) for index, row in enumerate(rows)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _colour(ring: int | None) -> str:
    return "#888" if ring is None else _COLOURS[ring % len(_COLOURS)]


def _label(x: int, row: int, text: str, colour: str) -> str:
    shown = text if len(text) <= 68 else text[:65] + "..."
    return f'<text x="{x}" y="{_ROW * row + 12}" fill="{colour}">{escape(shown)}<title>{escape(text)}</title></text>'


def _bar(span: Span, x: int) -> str:
    top = _ROW * (span.begin + 1)
    return (
        f'<rect x="{x}" y="{top + 2}" width="{_BAR - 8}" height="{_ROW * (span.end + 2) - top - 4}" rx="3" '
        f'fill="{_colour(span.ring)}" fill-opacity="0.6"><title>{escape(span.name)}</title></rect>'
    )


def text(rows: Iterable[Row]) -> str:
    """Return the operators, a line for each, with the ring before those that communicate."""
    return "".join(f"{'' if row.ring is None else row.ring:>4}  {row.text}\n" for row in rows)


def saved_program(path: str) -> Any:
    """Return a program that `paddle.static.save()` or `save_inference_model()` has written.

    Args:
        path: with or without the suffix, .pdmodel or .json.

    Raises:
        InvalidArgumentError: there is none.
    """
    _plugin.require_library("reading a program")
    given = Path(path)
    for found in (given, Path(f"{path}.json"), Path(f"{path}.pdmodel")):
        if found.is_file() and found.suffix == ".pdmodel":
            return paddle.static.Program.parse_from_string(found.read_bytes())
        if found.is_file() and found.suffix == ".json":
            program = paddle.static.Program()
            rest = () if not paddle.__version__.startswith("3.0") else (1,)
            paddle.base.core.deserialize_pir_program(str(found), program, *rest)
            return program
    raise InvalidArgumentError(f"there is no program {path}, {path}.json or {path}.pdmodel")
