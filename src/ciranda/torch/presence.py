"""What the ranks tell each other as they come to a step: which gradients they have, and which step it is."""

from __future__ import annotations

import enum
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

from ciranda import _core
from ciranda._basics import engine, world
from ciranda._frameworks.options import PREFIX, Options
from ciranda._numbering import Era, era_of
from ciranda._ops import ALLREDUCE, Average, Max, Sum
from ciranda._spans import Recorded, profiler
from ciranda.errors import MismatchError
from ciranda.process_sets import id_of

_FLOAT32 = _core.DATA_TYPES["float32"]


class Kind(enum.IntFlag):
    """What a rank has of a parameter's gradient; of all ranks together, what any of them has."""

    NONE = 0
    DENSE = 1
    SPARSE = 2


class Told:
    """What the ranks tell each other of some gradients: a table of float32 that an allreduce combines, in place.

    A column for each gradient: row 0, whether it is dense; row 1, whether it is sparse. Behind these a column for each
    bit that all ranks must have alike, set in row 0 or in row 1: those of the layout, and the last of the step's
    number. Of all ranks together: what is above zero, somebody has.

    No tensor of torch: each use of one costs a small model's step microseconds.

    Attributes:
        layout: bits of how the gradients lie in memory, if they travel as they do; their number never changes.
    """

    def __init__(self, name: str, sparse_as_dense: bool, layout: Sequence[bool] = ()) -> None:
        self._name = name
        self._sparse_as_dense = sparse_as_dense
        self.layout = layout
        self._table = array("f")
        self._is_odd = False
        #: Of an even step and an odd one: what this rank tells if all gradients are dense, and what comes of it if that
        #: is so on all ranks.
        self._usual = [self._table, self._table]
        self._usual_result = [b"", b""]

    def tell(self, kinds: Sequence[Kind], is_odd: bool) -> _core.TensorDescription:
        """Return the table to combine, of these gradients."""
        return self._tell(self._table_of(kinds, is_odd), is_odd)

    def tell_usual(self, n_gradients: int, is_odd: bool) -> _core.TensorDescription:
        """Return the table of so many gradients, all dense."""
        if len(self._usual[is_odd]) != 2 * (n_gradients + self._n_bits):
            self._usual[is_odd] = self._table_of([Kind.DENSE] * n_gradients, is_odd)
        return self._tell(self._usual[is_odd][:], is_odd)

    def _tell(self, table: array[float], is_odd: bool) -> _core.TensorDescription:
        self._table, self._is_odd = table, is_odd
        return _core.TensorDescription(table.buffer_info()[0], (2, len(table) // 2), _FLOAT32, table)

    @property
    def _n_bits(self) -> int:
        return len(self.layout) + 1

    def _table_of(self, kinds: Sequence[Kind], is_odd: bool) -> array[float]:
        columns = [*kinds, *(Kind.SPARSE if bit else Kind.DENSE for bit in (*self.layout, is_odd))]
        return array("f", [float(column == of_row) for of_row in (Kind.DENSE, Kind.SPARSE) for column in columns])

    # --- REQUIRES, from here on: the table was combined

    def _columns(self) -> list[tuple[float, float]]:
        n_columns = len(self._table) // 2
        return list(zip(self._table[:n_columns], self._table[n_columns:], strict=True))

    @property
    def is_usual(self) -> bool:
        """Whether all ranks have told that all gradients are dense, and of the same step."""
        result = self._table.tobytes()
        if result == self._usual_result[self._is_odd]:
            return True
        # A column of 1 on all ranks has come to the same in all places, whatever the averages round to.
        n_columns = len(self._table) // 2
        of_all = self._table[(1 + self._is_odd) * n_columns - 1]
        usual = self._table_of([Kind.DENSE] * (n_columns - self._n_bits), self._is_odd)
        if of_all <= 0 or self._table.tolist() != [of_one * of_all for of_one in usual]:
            return False
        self._usual_result[self._is_odd] = result
        return True

    def check(self, names: Sequence[str]) -> None:
        """Make sure that all ranks are at the same step, and combine the same.

        Raises:
            MismatchError: on all ranks, which could else wait for each other, or combine what does not belong together.
        """
        are_apart = [bool(upper and lower) for upper, lower in self._columns()]
        n_gradients = len(are_apart) - self._n_bits
        if are_apart[-1]:
            raise MismatchError(
                f"{self._name}: since their common start, ranks have made different numbers of steps with this "
                "optimizer. All must call step() equally often: skip a step only by values that all ranks have, and "
                "wrap the optimizer again on all ranks"
            )
        if any(are_apart[n_gradients:]):
            raise MismatchError(
                f"{self._name}: gradient_as_bucket_view=True sends gradients as they lie in memory, and ranks have "
                "parameters with different strides: give the models of all ranks the same memory_format before their "
                "optimizers are wrapped, or leave out gradient_as_bucket_view"
            )
        # Gradients may have been added since: their names come last.
        mixed = [name for name, is_mixed in zip(names, are_apart[:n_gradients], strict=False) if is_mixed]
        if mixed and not self._sparse_as_dense:
            raise MismatchError(
                f"the gradients of {', '.join(mixed)} are sparse on some ranks and dense on others; give "
                "DistributedOptimizer sparse_as_dense=True"
            )

    def kinds(self) -> list[Kind]:
        """Return what all ranks together have of each gradient."""
        members = self._columns()[: -self._n_bits]
        return [Kind((is_dense > 0) + 2 * (is_sparse > 0)) for is_dense, is_sparse in members]


def _bits(text: str) -> tuple[bool, ...]:
    """Return those of a checksum."""
    checksum = zlib.crc32(text.encode())
    return tuple(bool(checksum >> place & 1) for place in range(32))


class Presence:
    """Which gradients of an optimizer are there, and which are sparse, on this rank and on all together.

    At first the ranks ask each other in each step, by an allreduce of the kind that the gradients have. Once a step has
    shown that all ranks have all gradients, dense, they are *settled*: then nobody asks, each group of gradients tells
    along with its own allreduce, and a rank that lacks some takes part with zeros. All ranks are settled from the same
    step on, until the same.
    """

    def __init__(self, name: str, options: Options, priority: int, may_settle: bool) -> None:
        self._options = options
        # Only these show what some ranks lack.
        self._may_settle = may_settle and options.op in (Average, Sum)
        op = options.op if options.op in (Average, Sum) else Max
        self._told = Told(
            f"{PREFIX}.{name}.presence", options.sparse_as_dense, _bits("") if options.has_buckets else ()
        )
        self._layout = ""
        self._prepared = options.prepare(f"{name}.presence", priority, op)
        self._operation: _core.Operation | None = None
        #: Since when steps are counted, how many there were, and whether the others were told of the next.
        self._era: Era | None = None
        self._n_steps = 0
        self._has_told = False
        self._n_groups = 0
        self._n_started = 0
        #: Whether the last step, and this one as far as it has come, has shown that all ranks have all gradients.
        self._is_settled = False
        self._was_usual = False

    # --- by step

    @property
    def is_settled(self) -> bool:
        """Whether groups of gradients tell what there is, in this step."""
        is_known = self._is_settled and self._era == era_of(self._options.process_set)
        return is_known and self._options.weight is None

    @property
    def is_odd(self) -> bool:
        """Whether the step's number is."""
        return bool(self._n_steps % 2)

    def add_group(self, layout: str | None) -> None:
        """Take on a group of gradients, and how they lie in memory if they travel as they do."""
        self._n_groups += 1
        if layout is not None:
            self._layout += f"{layout}|"
            self._told.layout = _bits(self._layout)

    def start_group(self) -> bool:
        """Note that a group's gradients are all there; return whether those of all groups are."""
        self._n_started += 1
        return self._n_started == self._n_groups

    def restart(self) -> None:
        """Be ready for the gradients of the next backward pass."""
        self._n_started = 0

    def note_told(self) -> None:
        """Note that the others are told of this step, by a group of gradients."""
        self._has_told = True

    def note_heard(self, is_usual: bool) -> None:
        """Note whether what the others have told shows that all have all gradients."""
        self._was_usual = is_usual

    def count_step(self) -> None:
        """Note that a step is over, of which all was heard."""
        self._n_steps += self._has_told
        self._has_told = False
        self._is_settled = self._may_settle and self._was_usual

    # --- asking

    def begin(self) -> bool:
        """Return whether a new era has begun, of which to tell the others in full."""
        era = era_of(self._options.process_set)
        if self._era == era:
            return False
        self._era, self._n_steps, self._is_settled = era, 0, False
        self._operation = None
        return True

    def begin_anew(self) -> None:
        """Have a new era begin: after a disagreement, when a rank may have begun anew with another optimizer."""
        self._era, self._is_settled, self._has_told = None, False, False

    def tell(self, kinds: Sequence[Kind], are_usual: bool) -> None:
        """Start to tell the others which gradients this rank has. REQUIRES: they were heard before."""
        tell_usual = self._told.tell_usual
        mine = tell_usual(len(kinds), self.is_odd) if are_usual else self._told.tell(kinds, self.is_odd)
        connected: Any = world.engine or engine()
        if profiler.switch._is_profiler_enabled:
            connected = Recorded(connected, ALLREDUCE, id_of(self._options.process_set))
        self._operation = connected.submit_prepared(self._prepared, mine, None, True)
        self._has_told = True

    @property
    def is_to_be_heard(self) -> bool:
        """Whether the others were told something, and were not heard yet."""
        return self._operation is not None

    def poll(self) -> bool:
        """Whether hear() would not block."""
        return self._operation is None or self._operation.poll()

    def forget(self) -> None:
        """Hear nobody any more."""
        self._operation = None

    def hear(self, names: Sequence[str]) -> None:
        """Wait for what the others tell of the gradients with these names. REQUIRES: is_to_be_heard.

        Raises:
            MismatchError: as Told.check() does.
        """
        assert self._operation is not None
        operation, self._operation = self._operation, None
        operation.wait()
        self.note_heard(self._told.is_usual)
        if not self._was_usual:
            self._told.check(names)

    def kinds(self) -> list[Kind]:
        """Return what all ranks together have of each gradient. REQUIRES: they were heard."""
        return self._told.kinds()
