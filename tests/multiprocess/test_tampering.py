"""Bytes that are changed, repeated, left out or cut off on their way between hosts: never a wrong result, never a wait.

`make soak-wire` does what is here more often.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import link
import numpy as np
import pytest
import tampering
from ranks import Ranks
from tampering import HEADER_BYTES, Count, EditRecords, FlipBit, Stream

import ciranda as hvd
from ciranda.errors import RanksLostError

pytestmark = [pytest.mark.multiprocess, pytest.mark.netns]

STREAMS = [Stream(kind, sender) for kind in ("control", "data") for sender in range(2)]
N_FLIPS = int(os.environ.get("FLIPS", "60"))  # of each program
# Far below the stall limit of 600 s: whoever takes as long has waited.
SECONDS = 60.0


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
        rows = hvd.allgather(np.full((hvd.rank() + 1, 3), hvd.rank(), np.int32))
        assert rows.tolist() == [[0] * 3, [1] * 3, [1] * 3]


PROGRAMS = {"small": _small, "training": _training}


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
    with tampering.two_hosts() as hosts, Ranks(2, hosts=hosts, env_of=hosts.env_of, initialize=False) as ranks:
        yield World(hosts, ranks)


@pytest.mark.parametrize("program", PROGRAMS)
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
