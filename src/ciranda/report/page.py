"""The facts of a job as a page of HTML that needs nothing else: no network, no JavaScript. Pure.

Names of tensors, hosts and commands are anybody's: whatever comes from the facts is escaped.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from ciranda import _limits
from ciranda.launch import in_flight
from ciranda.report import svg, units
from ciranda.report.advice import is_notable
from ciranda.report.steps import series_of
from ciranda.report.style import STYLE
from ciranda.report.svg import Part

Facts = Mapping[str, Any]

MOST_RANKS = 64  # in a picture or a table; of more, those that the others wait for most
_MOST_EVENTS = 200
_MOST_CHARACTERS = 120  # of a name
_LEAST_SHARE = 0.1  # of a step or of the time: less waiting is not the darkest in a picture
#: The beginning of a field's name, the class of its colour, and what a rank does then.
_PARTS = (
    ("computed", "compute", "computes"),
    ("waited", "wait", "waits for others"),
    ("agreed", "agree", "agrees"),
    ("moved", "move", "moves and combines"),
)


def page_of(facts: Facts) -> str:
    """The whole page."""
    job = facts["job"]
    sections = [
        _head(facts),
        _section("What is missing here", _missing(facts)),
        _section("What to try", _advice(facts)),
        _section("Where the ranks stood", _standstill(facts)),
        _section("Where a step goes", _where(facts)),
        _section("Ranks", _ranks(facts)),
        _section("Worlds", _worlds(facts)),
        _section("Steps over time", _steps(facts)),
        _section("Who was waited for, and when", _heat(facts)),
        _section("Collectives", _collectives(facts)),
        _section("Links", _links(facts)),
        _section("Memory", _memory(facts)),
        _section("Stalls, stragglers and errors", _events(facts)),
        _section("The job", _job(facts)),
    ]
    return document(f"ciranda job {job['id'][:8]}", sections)


def document(title: str, sections: Iterable[str]) -> str:
    """A page of sections, which are HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main></body></html>\n"
    )


def text(value: object) -> str:
    """Text of the facts, in HTML; what cannot be encoded, as names of files may have, is replaced."""
    return escape(str(value).encode("utf-8", "replace").decode("utf-8"))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{text(title)}</h2>{content}</section>" if content else ""


def table(head: Sequence[str], body: Iterable[Sequence[str]], numbers: int = 1) -> str:
    """A table of text; columns from ``numbers`` on are set to the right."""
    sides = ["" if column < numbers else ' class="number"' for column in range(len(head))]
    heads = "".join(f"<th{side}>{text(name)}</th>" for name, side in zip(head, sides, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{side}>{text(cell)}</td>" for cell, side in zip(row, sides, strict=True)) + "</tr>"
        for row in body
    )
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def legend(parts: Iterable[tuple[str, str, str]]) -> str:
    """The colours of parts of bars, each with the class of its colour and what it is behind a name."""
    entries = "".join(f'<span><i class="fill {kind}"></i>{text(name)}</span>' for _, kind, name in parts)
    return f'<div class="legend">{entries}</div>'


def _note(words: str) -> str:
    return f'<p class="note">{text(words)}</p>'


def _short(name: str) -> str:
    return name if len(name) <= _MOST_CHARACTERS else name[: _MOST_CHARACTERS - 3] + "..."


def _label(rank: Facts) -> str:
    host = rank["host"]
    return f"{rank['rank']} ({host if len(host) <= 14 else host[:11] + '...'})"


def shown(ranks: Sequence[Facts]) -> list[Facts]:
    """As many ranks as there is room for, in their order."""
    most = sorted(ranks, key=lambda rank: -rank["waited_for_seconds"])[:MOST_RANKS]
    return sorted(most, key=lambda rank: rank["rank"])


def _of_more(ranks: Sequence[Facts]) -> str:
    return f" Of {len(ranks)} ranks, the {MOST_RANKS} that others wait for most." if len(ranks) > MOST_RANKS else ""


# -- the sections -----------------------------------------------------------------------------------------------------


def _head(facts: Facts) -> str:
    job, end, ranks = facts["job"], facts["end"], facts["ranks"]
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(job["began"]))
    n_steps = max((rank["steps"] for rank in ranks), default=0)
    seconds = sum(rank["seconds"] for rank in ranks)
    waited = sum(rank["waited_seconds"] for rank in ranks)
    step = _step_seconds(facts)
    tiles = [
        ("ranks", str(sum(len(host["ranks"]) for host in job["hosts"]))),
        ("hosts", str(len(job["hosts"]))),
        ("since its start" if end["how"] == "running" else "from start to end", units.seconds(job["seconds"])),
        ("steps", str(n_steps) if n_steps else "not counted"),
        ("a step, the median" if facts["recorded"] else "a step", units.seconds(step) if step else ""),
        ("of the ranks' time is waiting for others", units.share(waited / seconds) if seconds else ""),
    ]
    if end["hang"]:
        when = "now, all wait" if end["how"] == "running" else "at the end, all waited"
        tiles.append((f"{when} for rank {end['hang']['rank']}", units.seconds(end["hang"]["seconds"])))
    shown_tiles = "".join(
        f'<div class="tile"><b>{text(value)}</b><span>{text(name)}</span></div>' for name, value in tiles if value
    )
    return (
        f'<header><h1>Job {text(job["id"])} <span class="{text(end["how"])}">{text(end["how"])}</span></h1>'
        f'<p class="note">{text(began)}: <code>{text(_short(shlex.join(job["command"])))}</code></p>'
        f'<div class="tiles">{shown_tiles}</div></header>'
    )


def _step_seconds(facts: Facts) -> float:
    """How long a step takes: the median of what was recorded, else the mean of all; 0 if none was counted."""
    if facts["recorded"] and facts["recorded"]["steps"]:
        median: float = facts["recorded"]["median_step_seconds"]
        return median
    means = [rank["seconds"] / rank["steps"] for rank in facts["ranks"] if rank["steps"]]
    return max(means, default=0.0)


def _missing(facts: Facts) -> str:
    items = "".join(f"<li>{text(sentence)}</li>" for sentence in facts["missing"])
    return f"<ul>{items}</ul>" if items else ""


def _advice(facts: Facts) -> str:
    items = "".join(
        f"<li>{_gain(each['gain'])}{text(each['text'])}</li>" for each in facts["advice"]
    )  # the most gain first
    return f"<ol>{items}</ol>" if items else _note("Nothing: no rank waits for long, and little time goes to data.")


def _gain(gain: float | None) -> str:
    return f"<b>up to {text(units.share(gain))} of the time:</b> " if gain is not None else ""


def _standstill(facts: Facts) -> str:
    """Ranks that stood at the same place are one row."""
    standstill = facts["standstill"]
    if not standstill:
        return ""
    places: dict[tuple[str, bool], list[Facts]] = {}
    for rank in standstill["ranks"]:
        places.setdefault((rank["where"], rank["is_waited_for"]), []).append(rank)
    rows = [
        [_ranges([rank["rank"] for rank in ranks]), where, "yes" if is_waited_for else "",
         _span(rank["steps"] for rank in ranks), _span(rank["calls"] for rank in ranks),
         _span(rank["waiting"] for rank in ranks), _oldest_call(ranks)]
        for (where, is_waited_for), ranks in places.items()
    ]  # fmt: skip
    head = ["ranks", "where", "waited for", "steps", "calls done", "calls that wait", "oldest call in flight"]
    return (
        table(head, rows[:MOST_RANKS], 3)
        + _waiting_calls(standstill)
        + _note(f"When ranks last waited long for others, at {standstill['time']}. The stacks are in stacks.txt.")
    )


def _oldest_call(ranks: Iterable[Facts]) -> str:
    """Of all these ranks."""
    calls = [call for rank in ranks for call in rank["calls_in_flight"]]
    return in_flight.text(max(calls, key=lambda call: call["seconds"])) if calls else ""


def _waiting_calls(standstill: Facts) -> str:
    """All calls that wait, where there are several."""
    if standstill["n_calls"] < 2:
        return ""
    rows = [
        [_short(call["name"]), units.seconds(call["waited_seconds"]), _some(call["submitted_by"],
         call["n_more_submitted"]), _some([each["rank"] for each in call["missing"]], call["n_more_missing"])]
        for call in standstill["calls"]
    ]  # fmt: skip
    more = _note(f"{standstill['n_calls']} in all.") if standstill["n_calls"] > len(rows) else ""
    return table(["call", "has waited", "made by ranks", "not by ranks"], rows, 4) + more


def _some(ranks: Sequence[int], n_more: int) -> str:
    return _ranges(ranks) + (f" and {n_more} more" if n_more else "")


def _span(values: Iterable[int]) -> str:
    found = sorted(values)
    return str(found[0]) if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def _where(facts: Facts) -> str:
    """Of recorded steps if there are some, else of the whole job."""
    recorded = facts["recorded"]
    ranks = shown(facts["ranks"])
    if not ranks:
        return _note("The ranks of this job were not counted.")
    if recorded:
        parts = {rank["rank"]: rank for rank in recorded["ranks"]}
        n_steps = recorded["steps"]
        about = (
            f"Mean of {n_steps} recorded steps, from step {recorded['first_step']} on." if n_steps else
            "All that was recorded, as one: no steps were counted."
        )  # fmt: skip
    else:
        parts = {rank["rank"]: rank for rank in ranks}
        n_steps = max(rank["steps"] for rank in ranks)
        about = f"Mean of {n_steps} steps." if n_steps else "Of the whole job, in which no steps were counted."
        if facts["end"]["hang"]:
            about += f" {_what_counts(facts)}."
        about += " What ranks agree on is part of waiting; --timeline-steps tells them apart, and for whom each waits."
    rows = [
        (_label(rank), _bar(parts[rank["rank"]], max(1, n_steps if recorded else rank["steps"])))
        for rank in ranks
        if rank["rank"] in parts
    ]
    note = " A rank computes where none of its calls is under way; it may do so at other times as well."
    return legend(_PARTS) + svg.bars(rows, units.seconds) + _note(about + note + _of_more(facts["ranks"]))


def _bar(rank: Facts, n_steps: int) -> list[Part]:
    bar = []
    for field, kind, name in _PARTS:
        value = rank.get(f"{field}_seconds", 0.0)
        said = f"{name}: {units.seconds(value / n_steps)}, {units.share(value / (rank['seconds'] or 1))}"
        if kind == "wait" and rank.get("waited_for"):
            said += "".join(
                f"; for rank {last}: {units.seconds(each / n_steps)}" for last, each in rank["waited_for"].items()
            )
        bar.append(Part(kind, value / n_steps, said))
    return bar


def _ranks(facts: Facts) -> str:
    ranks = shown(facts["ranks"])
    if not ranks:
        return ""
    recorded = {rank["rank"]: rank for rank in (facts["recorded"] or {"ranks": []})["ranks"]}
    for_whom = ["most for rank"] if recorded else []
    head = ["rank", "host", "steps", "others waited for it", "in a step", "it waited", *for_whom, "mostly it",
            "more than others", "cores busy", "memory, at most", "calls", "failed"]  # fmt: skip
    body = [_row(rank, recorded.get(rank["rank"], {}) if recorded else None) for rank in ranks]
    in_a_step = "; in a step, the median of those recorded" if recorded else ""
    return table(head, body, 2) + _note(
        f"{_what_counts(facts)}{in_a_step}. Others waited for a rank while it was the last to come."
        + _of_more(facts["ranks"])
    )


def _what_counts(facts: Facts) -> str:
    hang = facts["end"]["hang"]
    if hang is None:
        return "Of the whole job"
    begin, long = units.seconds(hang["begin"]), units.seconds(hang["seconds"])
    return (
        f"Of the job up to {begin} after its start, without the {long} at the end in which the others waited for rank "
        f"{hang['rank']}"
    )


def _row(rank: Facts, recorded: Facts | None) -> list[str]:
    """``recorded``: what the records tell of it; None without records of any."""
    seconds, steps = rank["seconds"] or 1.0, rank["steps"]
    whom = sorted((recorded or {}).get("waited_for", {}).items(), key=lambda item: -item[1])[:1]
    held_up = rank["waited_for_seconds"] / steps if steps else 0.0
    if recorded and "median_held_up_seconds" in recorded:
        held_up = recorded["median_held_up_seconds"]
    return [
        str(rank["rank"]),
        rank["host"],
        str(steps),
        units.share(rank["waited_for_seconds"] / seconds),
        units.seconds(held_up) if steps else "",
        units.share(rank["waited_seconds"] / seconds),
        *([", ".join(last for last, _ in whom)] if recorded is not None else []),
        rank["doing"]["mostly"] if rank["doing"] else "",
        rank["unlike_others"]["mostly"] if rank["unlike_others"] else "",
        f"{rank['cpu_seconds'] / seconds:.2f}",
        units.n_bytes(rank["peak_memory_bytes"]),
        str(rank["calls"]),
        str(rank["failed"]),
    ]


def _worlds(facts: Facts) -> str:
    """Of an elastic job."""
    if not facts["worlds"]:
        return ""
    head = ["places", "ranks", "after", "for", "steps", "a step", "waiting for others", "most for"]
    body = [
        [_ranges(world["ranks"]), str(world["size"]), units.seconds(world["from"]),
         units.seconds(world["until"] - world["from"]), str(world["steps"]), units.seconds(world["step_seconds"]),
         units.share(world["waited"]), "" if world["waited_for"] is None else str(world["waited_for"])]
        for world in facts["worlds"][-_MOST_EVENTS:]
    ]  # fmt: skip
    return table(head, body) + _note(
        "This job is elastic: elsewhere, a rank is a place, with all of its processes. Up to the last look at a "
        "world's counters, which is half a second before its end, or more where a job is old or has many ranks."
    )


def _steps(facts: Facts) -> str:
    series = series_of(facts)
    if series is None or len(series.seconds) < 2:
        return ""
    step = [(x, y) for x, y in zip(series.at, series.seconds, strict=True) if y > 0]
    if len(step) < 2:
        return ""
    return svg.lines([("move", step)], series.x_unit, units.seconds) + _note(
        f"How long a step takes, by {series.columns.axis}."
    )


def _heat(facts: Facts) -> str:
    series = series_of(facts)
    if series is None or len(series.at) < 2 or len(facts["ranks"]) < 2:
        return ""
    rows = [(_label(rank), series.waited_for[rank["rank"]]) for rank in shown(facts["ranks"])
            if rank["rank"] in series.waited_for]  # fmt: skip
    unit = units.seconds if series.is_of_steps else units.share
    what = "how long the others waited for it in a step" if series.is_of_steps else "the share of waiting for it"
    least_top = _LEAST_SHARE * (_step_seconds(facts) if series.is_of_steps else 1)
    return svg.heat_map(rows, series.columns, unit, least_top) + _note(
        f"For each rank, by {series.columns.axis}: {what}." + _of_more(facts["ranks"])
    )


def _collectives(facts: Facts) -> str:
    recorded = facts["recorded"]
    found = table(
        ["collective", "calls", "failed", "bytes", "mean size", "agreeing, with waits", "moving and combining"],
        [
            [row["collective"], str(row["calls"]), str(row["failed"]), units.n_bytes(row["bytes"]),
             units.n_bytes(row["bytes"] / max(1, row["calls"])), units.seconds(row["agree_seconds"]),
             units.seconds(row["move_seconds"])]
            for row in facts["collectives"]
        ],
    ) if facts["collectives"] else ""  # fmt: skip
    if found:
        found += _note("Of all ranks together, in the whole job. Calls overlap, and so may these times.")
    found += _sizes_counted(facts)
    if not recorded:
        return found + (_note("--timeline-steps records calls, for times and bandwidths of sizes.") if found else "")
    found += "<h3>By size</h3>" + _sizes(recorded) + _note(_limit(facts))
    return found + "<h3>Tensors that take most time</h3>" + _tensors(recorded)


def _sizes_counted(facts: Facts) -> str:
    """Of the whole job, by class of sizes and by algorithm, as counted."""
    if not facts["sizes"]:
        return ""
    sizes = table(
        ["collective", "size, from", "calls", "failed", "bytes", "agreeing, a call", "moving, a call"],
        [
            [row["collective"], units.n_bytes(row["bytes_from"]), str(row["calls"]), str(row["failed"]),
             units.n_bytes(row["bytes"]), units.seconds(row["agree_seconds"] / row["calls"]),
             units.seconds(row["move_seconds"] / row["calls"])]
            for row in facts["sizes"]
        ],
    )  # fmt: skip
    algorithms = table(
        ["algorithm", "calls", "bytes", "moving, a call"],
        [
            [row["algorithm"], str(row["calls"]), units.n_bytes(row["bytes"]),
             units.seconds(row["move_seconds"] / row["calls"])]
            for row in facts["algorithms"]
        ],
    ) if facts["algorithms"] else ""  # fmt: skip
    others = "Direct rounds have no algorithm. " if algorithms else ""
    return f"<h3>Sizes and algorithms, in the whole job</h3>{sizes}{algorithms}" + _note(
        f"{others}Of all ranks together; times are means, of direct rounds estimated by every 61st."
    )


def _links(facts: Facts) -> str:
    """Those that have carried most, and what memory the engine holds."""
    if not facts["links"]:
        return ""
    head = ["from rank", "to rank", "sent", "a second", "sent again", "waiting, at most"]
    rows = [
        [str(link["rank"]), str(link["peer"]), units.n_bytes(link["sent_bytes"]),
         units.bandwidth(link["sent_bytes"] / link["seconds"]) if link["seconds"] else "", str(link["retries"]),
         units.n_bytes(link["most_queued_bytes"])]
        for link in facts["links"][:MOST_RANKS]
    ]  # fmt: skip
    return table(head, rows, 2) + _note(
        "Over TCP, or through rings in shared memory, with all that is sent beside the tensors; what ranks of a host "
        "combine in memory that they share is not. Sent again: segments of TCP. Those that have carried most."
    )


def _memory(facts: Facts) -> str:
    rows = [
        [str(rank["rank"]), rank["host"], units.n_bytes(rank["peak_memory_bytes"]),
         *(units.n_bytes(rank["engine_memory_bytes"][name]) for name in ("slot", "kept", "empty"))]
        for rank in shown(facts["ranks"]) if any(rank["engine_memory_bytes"].values())
    ]  # fmt: skip
    if not rows:
        return ""
    head = ["rank", "host", "process, at most", "slots", "kept results", "empty()"]
    return table(head, rows, 2) + _note(
        "At most, of each look. Slots: memory for transfers that the ranks of a host share; pages that were never used "
        "take none. Kept results: what was freed, and waits for results of that size." + _of_more(facts["ranks"])
    )


def _sizes(recorded: Facts) -> str:
    head = ["collective", "type", "algorithm", "size, from", "calls", "bytes", "agreeing", "moving and combining",
            "bandwidth"]  # fmt: skip
    return table(
        head,
        [
            [row["collective"], row["dtype"], ", ".join(row["algorithms"]), units.n_bytes(row["bytes_from"]),
             str(row["calls"]), units.n_bytes(row["bytes"]), units.seconds(row["median_agree_seconds"]),
             units.seconds(row["median_move_seconds"]), units.bandwidth(row["bytes_per_second"])]
            for row in recorded["sizes"]
        ],
        3,
    )  # fmt: skip


def _limit(facts: Facts) -> str:
    said = (
        "Of the recorded calls that succeeded; times are medians. Bandwidth: bytes of a rank's tensors of that size, "
        "by the time in which the rank moves at least one of them."
    )
    costs = facts["job"]["costs"]
    if not costs:
        return f"{said} To see this machine's limit here, run 'ciranda tune' before the job."
    return (
        f"{said} By 'ciranda tune', large allreduces of two ranks can reach "
        f"{units.bandwidth(_limits.in_shared_memory(costs))} in shared memory and "
        f"{units.bandwidth(_limits.between_hosts(costs))} between hosts."
    )


def _tensors(recorded: Facts) -> str:
    return table(
        ["tensor", "collective", "calls", "bytes", "waiting", "agreeing", "moving and combining"],
        [
            [_short(row["name"]), row["collective"], str(row["calls"]), units.n_bytes(row["bytes"]),
             units.seconds(row["waited_seconds"]), units.seconds(row["agreed_seconds"]),
             units.seconds(row["moved_seconds"])]
            for row in recorded["tensors"]
        ],
        2,
    )  # fmt: skip


def _events(facts: Facts) -> str:
    end = facts["end"]
    notable = [event for event in facts["events"] if is_notable(event)]
    rows = [[units.seconds(event["at"]), event["kind"], said(event)] for event in notable[-_MOST_EVENTS:]]
    found = table(["after", "what", ""], rows, 3) if rows else ""
    if len(notable) > _MOST_EVENTS:
        found += _note(f"The last {_MOST_EVENTS} of {len(notable)}.")
    if end["message"]:
        found += f"<pre>{text(end['message'])}</pre>"
    if end["how"] == "unknown":
        found += _note(
            "The log ends before the job: its launcher was killed, the disk was full, or the job goes on elsewhere."
        )
    warnings = [
        [str(rank["rank"]), rank["host"], _short(rank["warning"])] for rank in facts["ranks"] if rank["warning"]
    ]
    if warnings:
        found += "<h3>Last warning of each rank</h3>" + table(["rank", "host", ""], warnings[:MOST_RANKS], 3)
    return found or _note("None.")


def said(event: Facts) -> str:
    """An event in words."""
    who = f"rank {event['rank']} ({event['host']})" if "host" in event else f"rank {event['rank']}"
    if event["kind"] == "stall":
        return f"others had waited long for {who}: {event['where']}"
    if event["kind"] == "exit":
        return f"{who} ended: {event['how']}"
    return str(event.get("text", ""))


def _job(facts: Facts) -> str:
    job = facts["job"]
    hosts = table(
        ["host", "node", "system", "Python", "cores", "ranks"],
        [
            [host["host"], host["node"] or "", host["system"] or "", host["python"] or "", str(host["cores"] or ""),
             _ranges(host["ranks"])]
            for host in job["hosts"]
        ],
        6,
    )  # fmt: skip
    settings = table(["setting", "value"], job["settings"].items(), 2) if job["settings"] else _note("No settings.")
    return (
        f"<p><code>{text(shlex.join(job['command']))}</code></p>{_note('ciranda ' + job['version'])}{hosts}{settings}"
    )


def _ranges(ranks: Sequence[int]) -> str:
    """``0-3, 8``."""
    found: list[list[int]] = []
    for rank in sorted(ranks):
        if found and found[-1][1] == rank - 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
