"""How an optimizer combines gradients: the arguments of DistributedOptimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ciranda import _core
from ciranda._frameworks.compression import Compressor, NoneCompressor
from ciranda._frameworks.misuse import Openings
from ciranda._frameworks.naming import Number
from ciranda._frameworks.parameters import only_warns
from ciranda._ops import ALLREDUCE, Average, Divisor, divides_by_all, terms_of
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set, id_of

PREFIX = "DistributedOptimizer"


@dataclass
class Options:
    """How gradients are combined: the arguments of DistributedOptimizer that outlive the call."""

    compression: type[Compressor]
    passes: int
    op: int
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet
    #: The weight of this rank's gradients in the average; None for equal weights.
    weight: float | None = None
    #: Whether the gradients of a group are contiguous in memory.
    has_buckets: bool = False
    #: The divisor of an average while ranks have joined.
    divisor: Divisor = "contributors"
    #: The identifier of the optimizer, if its parameters have no names.
    number: Number | None = None
    #: Whether gradients that are not combined are divided by the number of ranks.
    scale_local: bool = True
    #: Whether gradients that several passes have accumulated are divided by their number.
    averages_passes: bool = False
    #: What some texts of errors begin with.
    openings: Openings = field(default_factory=dict)
    #: Whether ranks that begin with different parameters are warned, in place of an error.
    only_warns: bool = field(default_factory=only_warns.get)

    def __getstate__(self) -> dict[str, Any]:
        # The set of all ranks is one object, which a pickle must not double.
        is_global = self.process_set is global_process_set
        return {**vars(self), "process_set": None if is_global else self.process_set}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.process_set is None:
            self.process_set = global_process_set

    def numbered(self, name: str) -> str:
        """Return a name of the optimizer: with its number, if it has one."""
        return name if self.number is None else f"{name}.{self.number.joins}.{self.number.nth}"

    def prepare(self, name: str, priority: int = 0, op: int | None = None) -> _core.PreparedCall:
        """Return a repeated allreduce, in place; by another op, if given."""
        chosen = self.op if op is None else op
        terms = terms_of(ALLREDUCE, chosen, -1, *self.factors(chosen), self.divides_by_all(chosen))
        return _core.PreparedCall(f"{PREFIX}.{name}", terms, id_of(self.process_set), priority)

    def divides_by_all(self, op: int) -> bool:
        """Return whether the divisor of averages is the number of all ranks, joined ones too."""
        return op == Average and divides_by_all(self.divisor)

    @property
    def divisor_of_any(self) -> Divisor:
        """The divisor for calls that need not be averages: other ops divide by nothing."""
        return "contributors" if self.divisor == "contributors" else "world where averaged"

    @property
    def shares_buckets(self) -> bool:
        """Whether buckets are combined over all ranks, with all their gradients."""
        is_global = id_of(self.process_set) == id_of(global_process_set)
        return self.has_buckets and is_global and self.compression is NoneCompressor

    def factors(self, op: int) -> tuple[float, float]:
        """Return the factors of inputs and results."""
        return (1.0 / self.predivide, self.predivide) if op == Average else (1.0, 1.0)


def positive(passes: int) -> int:
    """Return `passes`, a number of backward passes. Raises InvalidArgumentError unless it is 1 or more."""
    if passes < 1:
        raise InvalidArgumentError(f"backward_passes_per_step must be at least 1, not {passes}")
    return passes


def check_factor(predivide: float, op: int) -> None:
    """Raise InvalidArgumentError for a gradient_predivide_factor that is invalid, or not allowed with the reduction."""
    if not math.isfinite(predivide) or predivide == 0:
        raise InvalidArgumentError(f"gradient_predivide_factor must be a finite number other than 0, not {predivide}")
    if predivide != 1.0 and op != Average:
        raise InvalidArgumentError("gradient_predivide_factor can only be used with op=Average")
