"""Two jobs side by side: what differs, as facts and as a page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ciranda.report import svg, units
from ciranda.report.page import document, legend, table, text
from ciranda.report.svg import Part

FORMAT = 1

#: The beginning of a field's name, the class of its colour, and what it is.
_PARTS = (
    ("computed", "compute", "computing"),
    ("waited", "wait", "waiting for others"),
    ("moved", "move", "moving and combining"),
)

Facts = Mapping[str, Any]


def comparison_of(first: Facts, second: Facts) -> dict[str, Any]:
    """The figures of both jobs, and what was set or installed otherwise in one of them.

    Of each figure ``better`` is "less" or "more", whichever is better, or None; ``change`` is the second by the first.
    ``parts`` of a step are means over the ranks, in seconds.
    """
    return {
        "format": FORMAT,
        "jobs": [first["job"]["id"], second["job"]["id"]],
        "figures": list(_figures(first, second)),
        "parts": [{name: _mean(each, f"{name}_seconds") for name, _, _ in _PARTS} for each in (first, second)],
        "differences": list(_differences(first, second)),
    }


def comparison_page(found: Facts) -> str:
    """The comparison as a page of HTML that needs nothing else."""
    first, second = (job[:8] for job in found["jobs"])
    rows = "".join(_row(figure) for figure in found["figures"])
    head = "".join(f'<th class="number">{text(name)}</th>' for name in (first, second, "change"))
    figures = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"
    differences = table(
        ["what", first, second], [[each["name"], each["first"], each["second"]] for each in found["differences"]], 3
    )
    bars = [
        (name, [Part(kind, parts[part], f"{title}: {units.seconds(parts[part])}") for part, kind, title in _PARTS])
        for name, parts in zip((first, second), found["parts"], strict=True)
    ]
    return document(
        f"ciranda jobs {first} and {second}",
        [
            f"<header><h1>Job {text(first)} and job {text(second)}</h1></header>",
            f"<section><h2>Where a step goes</h2>{legend(_PARTS)}{svg.bars(bars, units.seconds)}</section>",
            f'<section><h2>Figures</h2>{figures}<p class="note">Means of the whole jobs.</p></section>',
            f"<section><h2>What differs</h2>{differences if found['differences'] else '<p>Nothing.</p>'}</section>",
        ],
    )


def _figures(first: Facts, second: Facts) -> Iterator[dict[str, Any]]:
    yield _figure("a step", "seconds", "less", _mean(first, "seconds"), _mean(second, "seconds"))
    for name, _, title in _PARTS:
        pair = (_mean(each, f"{name}_seconds") for each in (first, second))
        yield _figure(f"{title}, in a step", "seconds", None if name == "computed" else "less", *pair)
    worst = (max((_per_step(rank, "waited_for_seconds") for rank in each["ranks"]), default=0.0)
             for each in (first, second))  # fmt: skip
    yield _figure("waiting for the last rank, in a step", "seconds", "less", *worst)
    memory = (max((rank["peak_memory_bytes"] for rank in each["ranks"]), default=0) for each in (first, second))
    yield _figure("memory of a rank, at most", "bytes", "less", *memory)
    yield from _of_sizes(first, second)


def _of_sizes(first: Facts, second: Facts) -> Iterator[dict[str, Any]]:
    """The bandwidths of the sizes that both have recorded."""
    one, other = ({_key(row): row for row in (each["recorded"] or {"sizes": []})["sizes"]} for each in (first, second))
    for key in [key for key in one if key in other]:
        collective, dtype, size = key
        title = f"{collective} {dtype} from {units.n_bytes(size)}"
        pair = (one[key]["bytes_per_second"], other[key]["bytes_per_second"])
        yield _figure(title, "bytes/s", "more", *pair)


def _key(row: Facts) -> tuple[str, str, int]:
    return row["collective"], row["dtype"], row["bytes_from"]


def _per_step(rank: Facts, name: str) -> float:
    return float(rank[name] / rank["steps"]) if rank["steps"] else 0.0


def _mean(facts: Facts, name: str) -> float:
    ranks: Sequence[Facts] = facts["ranks"]
    return sum(_per_step(rank, name) for rank in ranks) / len(ranks) if ranks else 0.0


def _figure(name: str, unit: str, better: str | None, first: float, second: float) -> dict[str, Any]:
    change = second / first if first > 0 else None
    return {"name": name, "unit": unit, "better": better, "first": first, "second": second, "change": change}


def _differences(first: Facts, second: Facts) -> Iterator[dict[str, str]]:
    one, other = (dict(_texts(each)) for each in (first, second))
    for name in [*one, *(name for name in other if name not in one)]:
        if one.get(name, "") != other.get(name, ""):
            yield {"name": name, "first": one.get(name, ""), "second": other.get(name, "")}


def _texts(facts: Facts) -> Iterator[tuple[str, str]]:
    job = facts["job"]
    yield "end", facts["end"]["how"]
    yield "command", " ".join(job["command"])
    yield "ciranda", job["version"]
    yield "ranks", str(sum(len(host["ranks"]) for host in job["hosts"]))
    yield "hosts", ", ".join(host["host"] for host in job["hosts"])
    yield "Python", ", ".join(sorted({host["python"] or "" for host in job["hosts"]}))
    yield "system", ", ".join(sorted({host["system"] or "" for host in job["hosts"]}))
    yield from job["settings"].items()


_UNITS: dict[str, Callable[[float], str]] = {
    "seconds": units.seconds,
    "bytes": units.n_bytes,
    "bytes/s": units.bandwidth,
}
_SAME = 0.05  # a change of less is nothing


def _row(figure: Facts) -> str:
    unit, change = _UNITS[figure["unit"]], figure["change"]
    kind = ""
    if change is not None and figure["better"] is not None and abs(change - 1) > _SAME:
        kind = " better" if (change < 1) == (figure["better"] == "less") else " worse"
    shown = f"{change:.2f}x" if change is not None else ""
    return (
        f'<tr><td>{text(figure["name"])}</td><td class="number">{text(unit(figure["first"]))}</td>'
        f'<td class="number">{text(unit(figure["second"]))}</td><td class="number{kind}">{text(shown)}</td></tr>'
    )
