"""The algorithms of an allreduce, each measured for itself: what the cost model expects of them, and what they take.

An engine carries out what the settings prescribe, so each algorithm gets an engine of its own beside the one in use, in
the same processes: they can be measured in turns.
"""

from __future__ import annotations

import os

from ciranda import _core
from ciranda._basics import circle, engine
from ciranda.bench.plan import Array, Candidate, Case
from ciranda.bench.systems import Call

_SETTING = "CIRANDA_ALGORITHM"


def candidates(collective: str, n_bytes: int) -> tuple[Candidate, ...]:
    """All ways in which this circle could carry out a call of this size."""
    return tuple(Candidate(*row) for row in engine().candidates(_core.COLLECTIVES[collective], n_bytes))


class Prescribed:
    """Ciranda with an algorithm prescribed, as a system to be measured. A collective: all ranks make it together."""

    def __init__(self, algorithm: str) -> None:
        before = os.environ.get(_SETTING)
        os.environ[_SETTING] = algorithm
        try:
            self._engine = _core.connect(circle.epoch)
        finally:
            if before is None:
                del os.environ[_SETTING]
            else:
                os.environ[_SETTING] = before
        circle.epoch += 1

    def bind(self, case: Case, buffer: Array) -> Call:
        """See ciranda.bench.systems.System; allreduces only."""
        run, collective, op = self._engine.run, _core.COLLECTIVES[case.collective], _core.REDUCE_OPS[case.op]
        name = case.name

        def call() -> Array:
            run(collective, buffer, buffer, name, op, 0, 1.0, 1.0)
            return buffer

        return call

    def close(self) -> None:
        """Leave."""
        self._engine.shutdown()


class PrescribedSystems:
    """A Prescribed for each algorithm that a case could use, connected when it is first wanted."""

    def __init__(self) -> None:
        self._systems: dict[str, Prescribed] = {}

    def of(self, found: tuple[Candidate, ...]) -> dict[str, Prescribed]:
        """By the names of candidates. A collective."""
        for each in found:
            if each.algorithm not in self._systems:
                self._systems[each.algorithm] = Prescribed(each.algorithm)
        return {each.name: self._systems[each.algorithm] for each in found}

    def close(self) -> None:
        """Leave all."""
        for system in self._systems.values():
            system.close()
