"""The calls and steps of one rank, from the file that its engine has written, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ciranda.launch import record_file
from ciranda.launch.clocks import Reading
from ciranda.launch.page import PATHS
from ciranda.launch.record_file import N_WORDS, Names

Ints = npt.NDArray[np.int64]

_DIRECT = PATHS.index("direct")
_IN_ROUNDS = tuple(PATHS.index(name) for name in ("direct", "repeated", "memory", "messages"))

#: What calls of one name have in common: collective, name, process set, lane.
Key = tuple[int, str, int, int]


@dataclass
class RankCalls:
    """Of one rank, in the order in which the calls were done; times are nanoseconds of the launcher's clock.

    Attributes:
        keys: what there is; ``key`` has an index of it for each call.
        agreed: a direct round has agreed when it was submitted: it found all others there.
        algorithms: by which data was moved; ``algorithm`` has an index of it for each call.
        step_number, step_end: of each step whose end was recorded.
    """

    keys: list[Key]
    key: Ints
    dtype: Ints
    outcome: Ints
    algorithms: list[str]
    algorithm: Ints
    n_bytes: Ints
    submitted: Ints
    arrived: Ints
    agreed: Ints
    done: Ints
    step_number: Ints
    step_end: Ints
    n_lost: int = 0


def load(path: Path, clock: Sequence[Reading]) -> RankCalls | None:
    """What a rank has recorded in its last world; None without one.

    Raises:
        ProtocolError: its engine is of another version.
    """
    words = np.fromfile(path, dtype=np.uint64)
    table = words[: len(words) // N_WORDS * N_WORDS].reshape(-1, N_WORDS)
    kind = table[:, 0] & 0xFF
    begins = np.flatnonzero(kind == record_file.BEGIN)
    if not len(begins):
        return None
    record_file.check(tuple(int(word) for word in table[begins[-1]]))
    table, kind = table[begins[-1] :], kind[begins[-1] :]
    names = Names()
    for row in table[kind == record_file.NAME]:
        names.take(tuple(int(word) for word in row), row.tobytes())
    for row in table[kind == record_file.ALGORITHM]:
        names.take_algorithm(tuple(int(word) for word in row), row.tobytes())
    steps = table[kind == record_file.STEP].astype(np.int64)
    lost = table[kind == record_file.LOST]
    calls = table[kind == record_file.CALL]
    keys, key = _keys(calls, names)
    done, submitted, arrived, agreed = _times(calls, clock)
    return RankCalls(
        keys=keys,
        key=key,
        dtype=_byte(calls, 32),
        outcome=_byte(calls, 24),
        algorithms=["", "direct round", *(names.algorithms[number] for number in sorted(names.algorithms)[1:])],
        algorithm=_algorithm(calls),
        n_bytes=calls[:, 3].astype(np.int64),
        submitted=submitted,
        arrived=arrived,
        agreed=agreed,
        done=done,
        step_number=steps[:, 1],
        step_end=_launchers(steps[:, 2], clock),
        n_lost=int(lost[:, 1].sum()),
    )


def _byte(calls: npt.NDArray[np.uint64], shift: int) -> Ints:
    """A byte of the first word of each call."""
    found: Ints = (calls[:, 0] >> np.uint64(shift) & np.uint64(0xFF)).astype(np.int64)
    return found


def _algorithm(calls: npt.NDArray[np.uint64]) -> Ints:
    """For each call 0 if nothing is known, 1 for a direct round, else the number of the algorithm, from 2 on."""
    by_plan = _byte(calls, 40)
    return np.where(by_plan > 0, by_plan + 1, np.isin(_byte(calls, 16), _IN_ROUNDS).astype(np.int64))


def _keys(calls: npt.NDArray[np.uint64], names: Names) -> tuple[list[Key], Ints]:
    name_and_lane, of_name = np.unique(calls[:, 1], return_inverse=True)
    set_and_kind, of_set = np.unique(calls[:, 2] << np.uint64(8) | calls[:, 0] >> np.uint64(8) & np.uint64(0xFF),
                                     return_inverse=True)  # fmt: skip
    both, key = np.unique(of_name * max(1, len(set_and_kind)) + of_set, return_inverse=True)
    keys = []
    for number in both.tolist():
        first, second = divmod(number, len(set_and_kind))
        lane, name = divmod(int(name_and_lane[first]), 1 << 32)
        process_set, collective = divmod(int(set_and_kind[second]), 1 << 8)
        keys.append((collective, names.of(name), process_set, lane))
    return keys, key.astype(np.int64)


def _times(calls: npt.NDArray[np.uint64], clock: Sequence[Reading]) -> tuple[Ints, Ints, Ints, Ints]:
    """Done, submitted, arrived, agreed: as in a timeline, in this order also where counters of cores differ."""
    at = calls[:, 4:].astype(np.int64)
    ahead = at[:, 5] - _launchers(at[:, 5], clock)
    submitted, ready, agreed = at[:, 0], at[:, 2], at[:, 3]
    done = np.maximum(at[:, 5], submitted)
    agreed = np.clip(np.where(agreed == 0, done, agreed), submitted, done)
    agreed = np.where(_byte(calls, 16) == _DIRECT, submitted, agreed)
    arrived = np.where(_byte(calls, 16) == _DIRECT, ready, np.minimum(ready, agreed))
    arrived = np.clip(arrived, submitted, done)
    return done - ahead, submitted - ahead, arrived - ahead, agreed - ahead


def _launchers(at: Ints, clock: Sequence[Reading]) -> Ints:
    """These times in the launcher's clock: between two comparisons, clocks run evenly."""
    if not clock:
        return at
    ahead = np.interp(at, [reading.at for reading in clock], [reading.ahead for reading in clock])
    return at - np.rint(ahead).astype(np.int64)
