"""Reads a timeline of all ranks, and checks that it is one that Perfetto draws as it is meant."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Trace:
    """What is in the file.

    Attributes:
        about: what it says of itself.
        processes, tracks: their names, the latter by process and number.
        spans: by process, in the order of their beginning, outer ones first.
        counters: by process and name, what it says of memory and links, in the order of time.
        arrows: the span from which each leads, and the one to which, as (process, span).
    """

    def __init__(self, path: Path) -> None:
        raw = path.read_bytes()
        whole = json.loads(gzip.decompress(raw) if path.name.endswith(".gz") else raw)
        events: list[Event] = whole["traceEvents"]
        self.about: dict[str, Any] = whole["otherData"]
        self.processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.tracks = {
            (event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"
        }
        self.spans: dict[int, list[Event]] = defaultdict(list)
        for event in sorted((event for event in events if event["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"])):
            self.spans[event["pid"]].append(event)
        self._check_spans()
        self.arrows = self._arrows(events)
        assert {event["ph"] for event in events} <= {"X", "M", "s", "f", "i", "C"}
        self.counters: dict[tuple[int, str], list[Event]] = defaultdict(list)
        for event in (event for event in events if event["ph"] == "C"):
            assert event["pid"] in self.processes
            self.counters[event["pid"], event["name"]].append(event)
        assert all(of == sorted(of, key=lambda event: event["ts"]) for of in self.counters.values())

    def calls(self, rank: int, name: str = "") -> list[Event]:
        """The spans of a rank's calls."""
        return [span for span in self.spans[rank] if span["cat"] == "call" and name in span["name"]]

    def calls_within(self, rank: int, outer: Event) -> list[Event]:
        """The calls of a rank within a span of any track."""
        return [call for call in self.calls(rank) if _contains(outer, call["ts"] + call["dur"])]

    def inside(self, rank: int, outer: Event) -> list[Event]:
        """The stages of a call."""
        return [
            span for span in self.spans[rank]
            if span["cat"] == "stage" and span["tid"] == outer["tid"] and _contains(outer, span["ts"])
            and _contains(outer, span["ts"] + span["dur"])
        ]  # fmt: skip

    def _check_spans(self) -> None:
        """Those of one track must not overlap, unless one contains the other."""
        for process, spans in self.spans.items():
            assert process in self.processes
            open_until: dict[int, list[float]] = defaultdict(list)
            for span in spans:
                assert (process, span["tid"]) in self.tracks
                assert span["ts"] >= 0
                assert span["dur"] >= 0
                ends = open_until[span["tid"]]
                while ends and ends[-1] <= span["ts"] + 1e-4:
                    ends.pop()
                assert not ends or span["ts"] + span["dur"] <= ends[-1] + 1e-4, span
                ends.append(span["ts"] + span["dur"])

    def _arrows(self, events: list[Event]) -> list[tuple[tuple[int, Event], tuple[int, Event]]]:
        ends: dict[int, dict[str, Event]] = defaultdict(dict)
        for event in events:
            if event["ph"] in ("s", "f"):
                assert event["ph"] not in ends[event["id"]]
                ends[event["id"]][event["ph"]] = event
        found = []
        for both in ends.values():
            assert both["s"]["ts"] < both["f"]["ts"]
            found.append((self._at(both["s"]), self._at(both["f"])))
        return found

    def _at(self, event: Event) -> tuple[int, Event]:
        """The innermost call around it."""
        around = [
            span for span in self.spans[event["pid"]]
            if span["cat"] == "call" and span["tid"] == event["tid"] and _contains(span, event["ts"])
        ]  # fmt: skip
        assert around, event
        return event["pid"], around[-1]


def _contains(span: Event, when: float) -> bool:
    return bool(span["ts"] - 1e-4 <= when <= span["ts"] + span["dur"] + 1e-4)
