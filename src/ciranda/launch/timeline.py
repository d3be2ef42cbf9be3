"""The timeline of all ranks: merges what each has recorded into one trace. Standard library only.

Each rank is a process of the trace. A lane has a track, and more where its calls overlap; a call is a span, in which
others say whom it waited for, and when its data moved. An arrow leads from the arrival of the last rank to each that
waited for it. Of an elastic job each place is a process, in which spans say which rank it had.

A million calls must take seconds, so what many calls have in common is made to text once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import Any

from ciranda.launch import record_file
from ciranda.launch.clocks import HostClock
from ciranda.launch.matching import Call, Group
from ciranda.launch.matching import Sequence as Collectives
from ciranda.launch.page import COLLECTIVES, PATHS
from ciranda.launch.record_file import DTYPES, OUTCOMES, Names, Pieces
from ciranda.launch.trace_writer import TraceFile

LEAST_WAIT_NS = 10_000  # shorter waits have no arrow, nor has what is within the clocks' error
_BRIEF_NS = 1_000  # a shorter queue is not drawn
_STEADY_NS = 10_000_000  # so long the clocks of two hosts keep their distance
_STEPS_TRACK = 0
_NEVER = 1 << 63
_DIRECT = PATHS.index("direct")
_ALREADY_NAMED = ("join", "add_process_set", "remove_process_set", "add_lane")  # by what their calls are called

_STAGE = '"cat":"stage","ph":"X",'
_NEGOTIATE = f'{{"name":"negotiate",{_STAGE}'
_QUEUE = f'{{"name":"queue",{_STAGE}'
_MOVE = f'{{"name":"move",{_STAGE}'


@dataclass
class RankRecords:
    """What one rank has recorded; of an elastic job, the processes of one place, one after the other."""

    rank: int
    host: str
    clock: HostClock
    file: Pieces


@dataclass
class Summary:
    """What the trace has.

    Attributes:
        bound_ns: how far two ranks' times may be from each other.
        n_steps: the highest number of a step.
        missing: ranks without records.
        lost: by rank, how many calls are missing.
        began_epoch_us: by rank, the time of day by its host's clock at which the times of the trace are 0.
        begin_ns, end_ns: of all that was recorded.
    """

    bound_ns: int = 0
    n_ranks: int = 0
    n_calls: int = 0
    n_steps: int = 0
    missing: list[int] = field(default_factory=list)
    lost: dict[int, int] = field(default_factory=dict)
    began_epoch_us: dict[int, float] = field(default_factory=dict)
    begin_ns: int = _NEVER
    end_ns: int = 0


def write_timeline(ranks: Sequence[RankRecords], to: TraceFile, began_ns: int, is_elastic: bool = False) -> Summary:
    """Write the trace of these ranks, but for its end. Times count from ``began_ns`` of the launcher's clock.

    Raises:
        ProtocolError: a rank's engine is of another version.
        OSError: the file cannot be written.
    """
    return _Merger(ranks, to, began_ns, is_elastic).run()


def about(
    summary: Summary, ranks: Sequence[RankRecords], began: float, job: str, command: Sequence[str]
) -> dict[str, Any]:
    """What the file says of itself, as JSON. ``began``: the time of day at which its times are 0."""
    hosts: dict[str, Any] = {}
    for records in ranks:
        of_host = hosts.setdefault(records.host, {"ranks": [], "clock_bound_us": records.clock.bound_ns / 1000})
        of_host["ranks"].append(records.rank)
    return {
        "job": job,
        "command": list(command),
        "began_epoch_seconds": began,
        "clock_bound_us": summary.bound_ns / 1000,
        "hosts": hosts,
        "calls": summary.n_calls,
        "ranks_without_records": summary.missing,
        "lost_calls": {str(rank): n for rank, n in summary.lost.items()},
        "ranks_began_epoch_us": {str(rank): at for rank, at in sorted(summary.began_epoch_us.items())},
    }


class _Name:
    """One name on one lane of a process set, in worlds of one size: its collectives."""

    __slots__ = ("args", "collectives", "head", "n_members")

    def __init__(self, collective: int, name: str, process_set: int, lane: int, size: int) -> None:
        self.collectives = Collectives()
        self.n_members = 0 if process_set else size  # 0: unknown
        kind = _at(COLLECTIVES, collective)
        shown = name if kind in _ALREADY_NAMED else f"{kind} {name}"
        self.head = f'{{"name":{json.dumps(shown)},"cat":"call","ph":"X",'
        self.args = f'"tensor":{json.dumps(name)}'
        if process_set:
            self.args += f',"process_set":{process_set}'
        if lane:
            self.args += f',"lane":{lane}'

    def args_of(self, first: int, n_bytes: int, algorithms: Mapping[int, str]) -> str:
        """What a call says, by its first word in the records."""
        path, outcome, dtype = first >> 16 & 0xFF, first >> 24 & 0xFF, first >> 32 & 0xFF
        args = f'{self.args},"bytes":{n_bytes},"path":"{_at(PATHS, path)}"'
        if algorithm := algorithms.get(first >> 40 & 0xFF):
            args += f',"algorithm":{json.dumps(algorithm)}'
        if dtype:
            args += f',"dtype":"{_at(DTYPES, dtype)}"'
        if outcome:
            args += f',"error":"{_at(OUTCOMES, outcome)}"'
        return args


class _Row:
    """What is the same for many calls of one rank: their name, what they say, and where they are drawn."""

    __slots__ = ("args", "is_direct", "name", "rank", "where")

    def __init__(self, rank: int, name: _Name, args: str, is_direct: bool, where: str) -> None:
        self.rank = rank
        self.name = name
        self.args = args
        self.is_direct = is_direct
        self.where = where


class _Tracks:
    """The tracks of one rank. Spans of a track may contain, but not overlap each other."""

    def __init__(self, process: int, to: TraceFile) -> None:
        self._process = process
        self._to = to
        self._of_lanes: dict[tuple[int, int], list[list[int]]] = {}  # by process set and lane: ends and numbers
        self._n = 1

    def of(self, process_set: int, lane: int) -> list[list[int]]:
        """The tracks of a lane, each with the end of its last span and its number."""
        return self._of_lanes.setdefault((process_set, lane), [])

    def add(self, process_set: int, lane: int, end: int) -> int:
        """Another track for a lane, with a span that ends then."""
        of_lane = self.of(process_set, lane)
        number = self._n
        self._n += 1
        of_lane.append([end, number])
        of_set = f"process set {process_set}, " if process_set else ""
        more = f" ({len(of_lane)})" if len(of_lane) > 1 else ""
        self.name(number, f"{of_set}lane {lane}{more}")
        return number

    def name(self, number: int, name: str) -> None:
        """Name a track; they are shown in the order of their numbers."""
        head = f'"ph":"M","pid":{self._process},"tid":{number}'
        self._to.put(f'{{"name":"thread_name",{head},"args":{{"name":{json.dumps(name)}}}}}')
        self._to.put(f'{{"name":"thread_sort_index",{head},"args":{{"sort_index":{number}}}}}')


class _Merger:
    def __init__(self, ranks: Sequence[RankRecords], to: TraceFile, began_ns: int, is_elastic: bool) -> None:
        self._ranks = ranks
        self._to = to
        self._began = began_ns
        self._is_elastic = is_elastic
        self._names: dict[tuple[int, str, int, int, int], _Name] = {}
        self._summary = Summary(bound_ns=_bound(ranks), n_ranks=len(ranks))
        self._least_wait = max(LEAST_WAIT_NS, self._summary.bound_ns)
        self._n_arrows = 0

    def run(self) -> Summary:
        bound = self._summary.bound_ns
        put_group = self._put_group
        for _, _, call in merge(*map(self._calls, range(len(self._ranks)))):
            name = call.row.name
            for group in name.collectives.add(call, bound, name.n_members):
                put_group(group)
        for name in self._names.values():
            for group in name.collectives.rest():
                put_group(group)
        self._summary.missing.sort()
        return self._summary

    # -- reading -----------------------------------------------------------------------------------------------------

    def _calls(self, index: int) -> Iterator[tuple[int, int, Call]]:
        """The calls of one rank, in the order of their ends; all else that it says is written."""
        records = self._ranks[index]
        place, began, convert = records.rank, self._began, records.clock.launchers
        rank, size, world_began = place, len(self._ranks), _NEVER
        tracks = _Tracks(place, self._to)
        self._name_process(records)
        if self._is_elastic:
            tracks.name(_STEPS_TRACK, "worlds, steps")
        names = Names()
        rows: dict[tuple[int, int, int, int, int], _Row] = {}
        last_step: tuple[int, int] | None = None
        has_begun = False
        latest = n_calls = 0
        for words, raw in record_file.entries(records.file):
            first, number_and_lane, process_set, n_bytes, submitted, _, ready, agreed, started, done = words
            kind = first & 0xFF
            if kind == record_file.CALL:
                n_calls += 1
                ahead = done - convert(done) + began
                if ahead != began and done - submitted >= _STEADY_NS:
                    begin = convert(submitted) - began
                    ready, agreed, started = (t and convert(t) + ahead - began for t in (ready, agreed, started))
                else:
                    begin = submitted - ahead
                done -= ahead
                # The counters of two cores may differ by some ticks, and stages may be skipped.
                if done < begin:
                    done = begin
                agreed = agreed - ahead if agreed else done
                if not begin <= agreed <= done:
                    agreed = begin if agreed < begin else done
                started -= ahead
                if not agreed <= started <= done:
                    started = agreed
                ready -= ahead
                if not begin <= ready <= agreed:
                    ready = begin if ready < begin else agreed
                if done > latest:
                    latest = done
                if begin < world_began:
                    world_began = begin
                lane = number_and_lane >> 32
                for track in tracks.of(process_set, lane):
                    if track[0] <= begin:
                        track[0] = done
                        number = track[1]
                        break
                else:
                    number = tracks.add(process_set, lane, done)
                key = (first, number_and_lane, process_set, n_bytes, number)
                row = rows.get(key)
                if row is None:
                    text = names.of(number_and_lane & 0xFFFFFFFF)
                    name = self._name_of(first >> 8 & 0xFF, text, process_set, lane, size)
                    where, is_direct = f'"pid":{place},"tid":{number},"ts":', first >> 16 & 0xFF == _DIRECT
                    row = rows[key] = _Row(rank, name, name.args_of(first, n_bytes, names.algorithms), is_direct, where)
                is_ok = not first >> 24 & 0xFF
                yield latest, index, Call(done, index, begin, ready, agreed, started, is_ok, row)
            elif kind == record_file.NAME:
                names.take(words, raw)
            elif kind == record_file.ALGORITHM:
                names.take_algorithm(words, raw)
            elif kind == record_file.STEP:
                step = (words[1], convert(words[2]) - began)
                if last_step is not None:
                    self._put_step(place, last_step, step)
                    self._summary.n_steps = max(self._summary.n_steps, step[0])
                elif not self._is_elastic:
                    tracks.name(_STEPS_TRACK, "steps")
                last_step = step
                latest = max(latest, step[1])
                world_began = min(world_began, step[1])
            elif kind == record_file.LOST:
                self._put_lost(place, words[1], convert(words[2]) - began)
            elif kind == record_file.BEGIN:  # of a world of this process; it may have had others
                record_file.check(words)
                ahead = began - convert(began)  # the host's clock is 0 at the time of day that the entry has
                self._summary.began_epoch_us[place] = words[5] + (began + ahead) / 1000
                self._put_world(place, rank, size, world_began, latest)
                rank, size, world_began = words[2], words[3], _NEVER
                has_begun = True
                names = Names()
                rows.clear()
                last_step = None
        self._put_world(place, rank, size, world_began, latest)
        self._summary.n_calls += n_calls
        if not has_begun:
            self._summary.missing.append(place)

    def _name_of(self, collective: int, name: str, process_set: int, lane: int, size: int) -> _Name:
        key = (collective, name, process_set, lane, size)
        if key not in self._names:
            self._names[key] = _Name(*key)
        return self._names[key]

    # -- writing -----------------------------------------------------------------------------------------------------

    def _name_process(self, records: RankRecords) -> None:
        number = f"[{records.rank}]" if self._is_elastic else f"rank {records.rank}"  # as before a line of output
        name = json.dumps(f"{number} ({records.host})")
        head = f'"ph":"M","pid":{records.rank}'
        self._to.put(f'{{"name":"process_name",{head},"args":{{"name":{name}}}}}')
        self._to.put(f'{{"name":"process_sort_index",{head},"args":{{"sort_index":{records.rank}}}}}')

    def _put_world(self, place: int, rank: int, size: int, begin: int, end: int) -> None:
        """Take note of when a world was; of an elastic job, write its span. Nothing if nothing was recorded in it."""
        if begin == _NEVER:
            return
        self._summary.begin_ns = min(self._summary.begin_ns, begin)
        self._summary.end_ns = max(self._summary.end_ns, end)
        if self._is_elastic:
            self._to.put(
                f'{{"name":"rank {rank} of {size}","cat":"world","ph":"X","pid":{place},"tid":{_STEPS_TRACK},'
                f'"ts":{begin / 1000:.3f},"dur":{(end - begin) / 1000:.3f}}}'
            )

    def _put_step(self, rank: int, begin: tuple[int, int], end: tuple[int, int]) -> None:
        self._to.put(
            f'{{"name":"step {end[0]}","cat":"step","ph":"X","pid":{rank},"tid":{_STEPS_TRACK},'
            f'"ts":{begin[1] / 1000:.3f},"dur":{(end[1] - begin[1]) / 1000:.3f}}}'
        )

    def _put_lost(self, rank: int, n_records: int, at: int) -> None:
        self._summary.lost[rank] = self._summary.lost.get(rank, 0) + n_records
        self._to.put(
            f'{{"name":"RECORDS_LOST","ph":"i","s":"p","pid":{rank},"tid":{_STEPS_TRACK},"ts":{at / 1000:.3f},'
            f'"args":{{"calls":{n_records}}}}}'
        )

    def _put_group(self, group: Group) -> None:
        calls, last = group.calls, group.last
        n_calls = len(calls)
        # Of a collective that failed on some rank, or of which records are missing, the last to come may be another.
        is_whole = n_calls == (last.row.name.n_members or n_calls)
        if not (is_whole and n_calls > 1 and group.all_ok):
            for call in calls:
                self._put_call(call, _NEGOTIATE, "")
            return
        said = f',"last":{last.row.rank}'
        wait_for = f'{{"name":"wait for rank {last.row.rank}",{_STAGE}'
        for call in calls:
            waited = last.arrived - call.arrived
            if waited < self._least_wait:
                self._put_call(call, _NEGOTIATE, said)
            else:
                self._put_call(call, wait_for, f'{said},"waited_us":{waited / 1000:.3f}')
                self._put_arrow(last, call)

    def _put_call(self, call: Call, wait: str, said: str) -> None:
        """Write the span of a call, and those of its stages. ``wait`` begins the first."""
        done, _, submitted, _, agreed, started, _, row = call
        name, where, begin = row.name, row.where, f"{submitted / 1000:.3f}"
        text = f'{name.head}{where}{begin},"dur":{(done - submitted) / 1000:.3f},"args":{{{row.args}{said}}}}}'
        if not row.is_direct:  # it found all others there
            text += f',\n{wait}{where}{begin},"dur":{(agreed - submitted) / 1000:.3f}}}'
            if started - agreed >= _BRIEF_NS:
                text += f',\n{_QUEUE}{where}{agreed / 1000:.3f},"dur":{(started - agreed) / 1000:.3f}}}'
            if done > started:
                text += f',\n{_MOVE}{where}{started / 1000:.3f},"dur":{(done - started) / 1000:.3f}}}'
        self._to.put(text)

    def _put_arrow(self, last: Call, call: Call) -> None:
        """From within the last rank's span to the end of the other's wait; it must not end before it begins."""
        self._n_arrows += 1
        begin = last.arrived
        end = max(begin + 1, call.agreed - 1)
        head = f'{{"name":"last to come","cat":"arrival","id":{self._n_arrows},'
        self._to.put(
            f'{head}"ph":"s",{last.row.where}{begin / 1000:.3f}}},\n'
            f'{head}"ph":"f","bp":"e",{call.row.where}{end / 1000:.3f}}}'
        )


def _bound(ranks: Sequence[RankRecords]) -> int:
    """How far the converted times of two ranks may be apart: the errors of two hosts add up."""
    bounds = sorted({id(records.clock): records.clock.bound_ns for records in ranks}.values())
    return sum(bounds[-2:])


def _at(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) else str(number)
