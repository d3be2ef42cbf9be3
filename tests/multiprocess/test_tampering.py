"""Bytes that are changed, repeated, left out or cut off on their way between hosts: never a wrong result, never a wait.

`make soak-wire` does what is here more often.
"""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle
import link
import numpy as np
import pytest
import tampering
from ranks import Ranks
from tampering import HEADER_BYTES, Count, Delay, Editor, EditRecords, FlipBit, HoldBack, Stream, mended

import ciranda as hvd
from ciranda.errors import MismatchError, RanksLostError

pytestmark = [pytest.mark.multiprocess, pytest.mark.netns]

STREAMS = [Stream(kind, sender) for kind in ("control", "data") for sender in range(2)]
N_FLIPS = int(os.environ.get("FLIPS", "60"))  # of each program
LEVEL = os.environ.get("WIRE", "authenticate")  # at which they run
# Far below the stall limit of 600 s: whoever takes as long has waited.
SECONDS = 120.0


@pytest.fixture(autouse=True)
def _skip_without_namespaces() -> None:
    reason = link.why_not()
    if reason is not None:
        pytest.skip(f"CHANGES BETWEEN HOSTS ARE NOT TESTED: {reason}")


# --- programs, which check their results


def _small() -> None:
    for turn in range(4):
        got = hvd.allreduce(np.array([hvd.rank() + turn], np.int32), op=hvd.Sum, name="small")
        assert got.tolist() == [1 + 2 * turn]


def _inputs(seed: int, count: int) -> list[np.ndarray]:
    return [np.random.default_rng([seed, rank]).integers(-1000, 1000, count, np.int32) for rank in range(2)]


def _rows() -> None:
    rows = hvd.allgather(np.full((hvd.rank() + 1, 3), hvd.rank(), np.int32))
    assert rows.tolist() == [[0] * 3, [1] * 3, [1] * 3]


def _training() -> None:
    """Parameters as objects, gradients of all sizes, some at once, a metric."""
    assert hvd.broadcast_object({"step": 7} if hvd.rank() == 0 else None, 0) == {"step": 7}
    for step in range(2):
        handles = []
        for layer, count in enumerate((100, 100, 1_000, 20_000, 100_000)):
            inputs = _inputs(step * 10 + layer, count)
            handles.append((hvd.allreduce_async(inputs[hvd.rank()], op=hvd.Sum, name=f"layer {layer}"), inputs))
        for handle, (first, second) in handles:
            np.testing.assert_array_equal(hvd.synchronize(handle), first + second)
        _rows()


PROGRAMS = {"small": _small, "training": _training, "rows": _rows}


def _run(program: str) -> str:
    """A world, from its beginning to its end. What its loss was, "" if nothing was lost."""
    try:
        hvd.init()
        PROGRAMS[program]()
    except RanksLostError as error:
        return str(error)
    finally:
        hvd.shutdown()
    return ""


# --- who changes what


@dataclass
class World:
    hosts: tampering.Hosts
    ranks: Ranks
    counts: dict[tuple[str, Stream], int] = field(default_factory=dict)

    def run(self, program: str) -> list[str]:
        return self.ranks.run(_run, program, timeout=SECONDS)

    def n_bytes(self, program: str) -> dict[Stream, int]:
        """How much a program sends on each stream when nobody changes anything."""
        counts = {stream: Count() for stream in STREAMS}
        self.hosts.tamper_with(counts.get)
        assert self.run(program) == ["", ""]
        return {stream: count.n_bytes for stream, count in counts.items() if count.n_bytes > 0}

    def run_with(self, program: str, stream: Stream, editor: FlipBit | EditRecords) -> list[str]:
        """What the ranks lost: the sender, as its peer says; or that peer, if it ended before it was heard."""
        self.hosts.tamper_with(lambda each: editor if each == stream else None)
        messages = self.run(program)
        sender, other = (f"rank {rank} (host host{rank}" for rank in (stream.sender, 1 - stream.sender))
        for message in filter(None, messages):
            assert sender in message or (other in message and " is gone: " in message), messages
        return messages


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    env = {"CIRANDA_WIRE": LEVEL}
    with tampering.two_hosts() as hosts, Ranks(2, env=env, hosts=hosts, env_of=hosts.env_of, initialize=False) as ranks:
        yield World(hosts, ranks)


@pytest.mark.parametrize("program", ["small", "training"])
def test_a_flipped_bit_is_told_of_at_once_and_never_in_a_result(world: World, program: str) -> None:
    """In the goodbyes it may come too late to be told of."""
    totals = world.n_bytes(program)
    chance = random.Random(41)
    bits = [(stream, bit) for stream, n_bytes in totals.items() for bit in range(8 * n_bytes)]
    if program == "training":  # otherwise most would be in the largest tensor
        bits = [(stream, chance.randrange(8 * totals[stream])) for _ in range(N_FLIPS // 4) for stream in totals]
    n_told = n_done = 0
    for stream, bit in chance.sample(bits, min(N_FLIPS, len(bits))):
        flip = FlipBit(bit)
        messages = world.run_with(program, stream, flip)
        n_done += flip.is_done
        told = [message for message in messages if "was changed on its way" in message]
        assert told or not any(messages), messages
        n_told += bool(told)
    assert n_done > N_FLIPS // 2
    assert n_told > n_done // 2


def _left_out(number: int, record: bytes) -> bytes:
    return b"" if number == 0 else record


def _repeated(number: int, record: bytes) -> bytes:
    return 2 * record if number == 0 else record


def _exchanged() -> Callable[[int, bytes], bytes]:
    kept = bytearray()

    def exchange(number: int, record: bytes) -> bytes:
        if number == 0:
            kept.extend(record)
            return b""
        return record + bytes(kept) if number == 1 else record

    return exchange


def _instead_of_the_next() -> Callable[[int, bytes], bytes]:
    kept = bytearray()

    def replay(number: int, record: bytes) -> bytes:
        if number == 0:
            kept.extend(record)
        return bytes(kept) if number == 1 else record

    return replay


def _cut_off(number: int, record: bytes) -> bytes | None:
    return None if number == 0 else record


def _emptied(number: int, record: bytes) -> bytes:
    return record[:HEADER_BYTES] + bytes(len(record) - HEADER_BYTES) if number == 0 else record


CHANGES: dict[str, Callable[[], Callable[[int, bytes], bytes | None]]] = {
    "left out": lambda: _left_out,
    "repeated": lambda: _repeated,
    "exchanged": _exchanged,
    "instead of the next": _instead_of_the_next,
    "cut off": lambda: _cut_off,
    "emptied": lambda: _emptied,
}


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: f"{stream.kind} of {stream.sender}")
@pytest.mark.parametrize("change", CHANGES)
def test_a_record_that_is_not_where_it_was_is_told_of(world: World, stream: Stream, change: str) -> None:
    """Of the data it is the first of a large tensor, which others follow."""
    edit = EditRecords(CHANGES[change](), HEADER_BYTES + (64 << 10) if stream.kind == "data" else None)
    messages = world.run_with("training", stream, edit)
    assert edit.is_done
    assert all(messages)


# Those held back, and all that follows, in one direction: from where on, and of which of the connections.
HELD_BACK: dict[str, tuple[Stream, Callable[[], Editor]]] = {
    f"{each.kind} of {each.sender}": (each, lambda each=each: _hold_back_from(each)) for each in STREAMS
} | {"admission to data": (Stream("data", 0), lambda: HoldBack(n_of_handshake=1))}


def _hold_back_from(stream: Stream) -> Editor:
    """From the fourth record of control, or the first of a large tensor."""
    if stream.kind == "data":
        return EditRecords(lambda number, record: b"", HEADER_BYTES + (64 << 10))
    return EditRecords(lambda number, record: record if number < 3 else b"")


def _run_with_little_patience(program: str, n_sockets: int) -> str:
    settings = {"CIRANDA_LINK_TIMEOUT": "1", "CIRANDA_SOCKETS": str(n_sockets)}
    os.environ.update(settings)
    try:
        return _run(program)
    finally:
        for name in settings:
            del os.environ[name]


@pytest.mark.parametrize("which", HELD_BACK)
def test_records_that_are_held_back_are_told_of_though_nothing_follows(world: World, which: str) -> None:
    """By their sender; the other side tells it what has come. So they are if one direction of control is open."""
    stream, make = HELD_BACK[which]
    editor = make()
    world.hosts.tamper_with(lambda each: editor if each == stream else None)
    messages = world.ranks.run(_run_with_little_patience, "training", 1, timeout=SECONDS)
    connection = "the control connection" if stream.kind == "control" else "data connection 0"
    sender, other = (f"rank {rank} (host host{rank}" for rank in (stream.sender, 1 - stream.sender))
    assert messages[stream.sender].startswith(other), messages
    assert f") sent to it on {connection} does not arrive. Its host has acknowledged" in messages[stream.sender]
    assert f"is lost: what {sender}" in messages[stream.sender]
    assert messages[1 - stream.sender], messages


def test_records_that_one_of_several_sockets_holds_back_are_told_of(world: World) -> None:
    """Others have come by the other socket since, and cannot be read before them."""
    editors: Iterator[Editor | None] = iter([None, _hold_back_from(Stream("data", 0))])
    world.hosts.tamper_with(lambda each: next(editors) if each == Stream("data", 0) else None)
    messages = world.ranks.run(_run_with_little_patience, "training", 2, timeout=SECONDS)
    for message in messages:
        assert ") sent to it on data connection " in message, messages
        assert "does not arrive" in message


def _join() -> str:
    """Join a world, and leave it. Why this rank could not, or ""."""
    os.environ["CIRANDA_START_TIMEOUT"] = str(10 * SECONDS)
    try:
        hvd.init()
    except RanksLostError as error:
        return str(error)
    finally:
        hvd.shutdown()
        del os.environ["CIRANDA_START_TIMEOUT"]
    return ""


@pytest.mark.parametrize("sender", [0, 1], ids=["of the store", "of a rank"])
def test_what_the_store_says_is_not_changed_unseen(world: World, sender: int) -> None:
    """Nor what a rank tells it. A rank that refuses it tells the others, which would wait for it."""
    stream = Stream("store", sender)
    count = Count()
    world.hosts.tamper_with(lambda each: count if each == stream else None)
    assert world.ranks.run(_join, timeout=SECONDS) == ["", ""]
    for bit in random.Random(41).sample(range(8 * count.n_bytes), 3):
        flip = FlipBit(bit)
        world.hosts.tamper_with(lambda each, flip=flip: flip if each == stream else None)
        messages = world.ranks.run(_join, timeout=SECONDS)
        assert flip.is_done
        assert all("is not as it was sealed" in message for message in messages), messages
        assert "rank 1 (" in messages[0], messages
        assert ") could not join: " in messages[0], messages


# --- somebody who knows the records, and mends their sums


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: f"{stream.kind} of {stream.sender}")
@pytest.mark.parametrize("change", ["instead of the next", "repeated"])
def test_a_replayed_record_whose_sums_are_mended_is_told_of(world: World, stream: Stream, change: str) -> None:
    is_data = stream.kind == "data"
    kept = bytearray()

    def replay(number: int, record: bytes) -> bytes:
        if number == 0:
            kept.extend(record)
        if number != 1:
            return record
        again = mended(record[:8] + bytes(kept[8:]), 1) if len(record) == len(kept) else bytes(kept)
        return again if change == "instead of the next" else record + again

    edit = EditRecords(replay, HEADER_BYTES + (64 << 10) if is_data else None)
    messages = world.run_with("training", stream, edit)
    assert edit.is_done
    assert all(messages)


@pytest.mark.parametrize("stream", [STREAMS[0], STREAMS[3]], ids=lambda stream: f"{stream.kind} of {stream.sender}")
def test_a_record_of_another_session_is_told_of(world: World, stream: Stream) -> None:
    """At the same place of the same connection of the same job, a world before."""
    kept: list[bytes] = []

    def keep(number: int, record: bytes) -> bytes:
        if number == 0:
            kept.append(record)
        return record

    n_bytes = HEADER_BYTES + (64 << 10) if stream.kind == "data" else None
    world.hosts.tamper_with(lambda each: EditRecords(keep, n_bytes) if each == stream else None)
    assert world.run("training") == ["", ""]
    splice = EditRecords(lambda number, record: kept[0] if number == 0 else record, n_bytes)
    messages = world.run_with("training", stream, splice)
    assert splice.is_done
    assert all(messages)


@pytest.mark.parametrize("sender", [0, 1])
def test_what_was_sent_before_the_goodbye_arrives_after_it(world: World, sender: int) -> None:
    """The connections of a rank may take different ways; its goodbye is on another than its data."""
    world.hosts.tamper_with(lambda each: Delay(0.5) if each == Stream("data", sender) else None)
    assert world.run("rows") == ["", ""]


class _MakesAFolder:
    """What unpickles to a folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self._path),)


_OBJECT = {"weights": "w" * 600}


def _hand_over(levels: tuple[str, ...]) -> str:
    """Broadcast an object at a level. What the loss was, "" if there was none."""
    os.environ["CIRANDA_WIRE"] = levels[int(os.environ["CIRANDA_RANK"])]
    try:
        hvd.init()
        hvd.broadcast_object(_OBJECT if hvd.rank() == 0 else None, 0)
        hvd.allreduce(np.zeros(3, np.float32))
    except (RanksLostError, MismatchError) as error:
        return str(error)
    finally:
        hvd.shutdown()
        del os.environ["CIRANDA_WIRE"]
    return ""


def test_no_code_of_somebody_between_the_hosts_is_run(world: World, tmp_path: Path) -> None:
    """He knows what object is sent, where it stands, and mends the sums. Only at `check` is that enough."""
    folder = tmp_path / "made"
    sent = cloudpickle.dumps(_OBJECT)
    instead = pickle.dumps(_MakesAFolder(folder)).ljust(len(sent), b"\0")
    difference = bytes(left ^ right for left, right in zip(sent, instead, strict=True))
    place: dict[str, int] = {}

    def find(number: int, record: bytes) -> bytes:
        at = record.find(sent)
        if at >= 0:
            place.update(at=at, size=len(record))
        return record

    def rewrite(number: int, record: bytes) -> bytes:
        at = place["at"]
        if len(record) != place["size"]:
            return record
        altered = bytes(left ^ right for left, right in zip(record[at:], difference, strict=False))
        return mended(record[:at] + altered + record[at + len(altered) :], number)

    for kind in ("data", "control"):
        world.hosts.tamper_with(lambda each, kind=kind: EditRecords(find) if each == Stream(kind, 0) else None)
        world.ranks.run(_hand_over, ("check", "check"), timeout=SECONDS)
        if place:
            break
    assert place, "the object was not found, and so nothing is tested"
    for level, is_run in (("check", True), ("authenticate", False), ("encrypt", False)):
        edit = EditRecords(rewrite)
        world.hosts.tamper_with(lambda each, kind=kind, edit=edit: edit if each == Stream(kind, 0) else None)
        messages = world.ranks.run(_hand_over, (level, level), timeout=SECONDS)
        assert edit.is_done
        assert folder.exists() == is_run
        if is_run:
            folder.rmdir()
        else:
            assert all("rank 0 (host host0" in message for message in messages), messages
            assert "was changed on its way" in messages[1]


def test_another_level_on_one_rank_is_named_and_no_world_is_formed(world: World) -> None:
    world.hosts.tamper_with(lambda stream: None)
    here, there = world.ranks.run(_hand_over, ("authenticate", "check"), timeout=SECONDS)
    assert "rank 0 of 2" in here
    assert "CIRANDA_WIRE is 'authenticate' here but 'check' on rank 1" in here
    assert "CIRANDA_WIRE is 'check' here but 'authenticate' on rank 0" in there
