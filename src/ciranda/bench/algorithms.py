"""The ways to carry a collective out, each measured for itself: what the cost model expects of them, what they take.

An engine carries out what the settings prescribe, so each way gets an engine of its own beside the one in use, in the
same processes: they can be measured in turns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from ciranda import _core
from ciranda._basics import engine, world
from ciranda._ops import terms_of
from ciranda.bench.plan import Array, Candidate, Case
from ciranda.bench.systems import Call


def candidates(collective: str, n_bytes: int) -> tuple[Candidate, ...]:
    """All ways in which this world could carry out a call of this size."""
    return tuple(Candidate(*row) for row in engine().candidates(_core.COLLECTIVES[collective], n_bytes))


class Prescribed:
    """Ciranda with a way prescribed, as a system to be measured. A collective: all ranks make it together."""

    def __init__(self, way: Candidate) -> None:
        # The only way that there is has no word in the settings, and needs none.
        algorithm = way.algorithm if way.is_a_choice else ""
        settings = {"CIRANDA_ALGORITHM": algorithm, "CIRANDA_SEGMENT_BYTES": str(way.segment_bytes)}
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            self._engine = _core.connect(world.epoch)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        world.epoch += 1

    def bind(self, case: Case, buffer: Array) -> Call:
        """See ciranda.bench.systems.System; allreduces and broadcasts only."""
        run, name = self._engine.run, case.name
        terms = terms_of(_core.COLLECTIVES[case.collective], _core.REDUCE_OPS[case.op], 0)

        def call() -> Array:
            run(terms, buffer, buffer, name)
            return buffer

        return call

    def shared_array(self, case: Case) -> Array:
        """Memory that all ranks have mapped, for such a buffer. A collective."""
        n_bytes = case.count * np.dtype(case.dtype).itemsize
        memory, _ = self._engine.allocate_shared(n_bytes, np.empty(0, np.uint8))
        return np.asarray(memory).view(case.dtype)

    def close(self) -> None:
        """Leave."""
        self._engine.shutdown()


class PrescribedSystems:
    """A Prescribed for each way that a case could go, connected when it is first wanted."""

    def __init__(self) -> None:
        self._systems: dict[str, Prescribed] = {}

    def of(self, found: Iterable[Candidate]) -> dict[str, Prescribed]:
        """By the titles of candidates. A collective."""
        wanted = {each.title: each for each in found}
        for title, each in wanted.items():
            if title not in self._systems:
                self._systems[title] = Prescribed(each)
        return {title: self._systems[title] for title in wanted}

    def close(self) -> None:
        """Leave all."""
        for system in self._systems.values():
            system.close()
