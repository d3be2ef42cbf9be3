"""What a framework says of its tensors: the table of functions that the collectives are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from ciranda._collectives.rules import Rule

#: What is accepted where nothing is written to it, as whatever `numpy.asarray` takes.
Given = TypeVar("Given")
#: What collectives return, and work on in place.
Tensor = TypeVar("Tensor")
#: How many rows go to each rank.
Splits = TypeVar("Splits")


class Gradients(Protocol[Tensor]):
    """How a framework differentiates: what `Rule` needs of it."""

    def needed(self, tensors: Sequence[Any]) -> bool:
        """Whether an operation on these tensors has to be recorded."""

    def record(self, rule: Rule[Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return `rule.forward(tensors)`, and see to it that `rule.backward` is called for its gradient.

        The last `rule.n_constants` of the results have no gradient. Unless `rule.is_differentiable_twice`, the backward
        pass need not be recorded itself.
        """

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        """Return a new tensor of zeros."""

    def cast(self, tensor: Any, dtype: Any) -> Tensor:
        """Return the tensor, of bool or numbers, in another dtype."""


@dataclass(frozen=True, kw_only=True)
class Adapter(Generic[Given, Tensor, Splits]):
    """What the collectives need to know of a framework's tensors.

    What is said of the engine holds for all of it: it takes tensors that are contiguous and in CPU memory, by the
    buffer protocol, by DLPack, or described by address (`_core.TensorDescription`), and keeps them alive by itself.
    """

    #: The module that has the bound `collectives`, under that name.
    module: str
    #: How "Given", "Tensor" and "Splits" are written in the signatures of the public functions...
    types: Mapping[str, str]
    #: ...and the namespace in which that has a meaning.
    namespace: Mapping[str, Any] = field(default_factory=dict)

    #: The tensor as the engine can read it: itself, or a contiguous copy. Raises InvalidArgumentError for what is none,
    #: or is on a device that cannot be reached.
    readable: Callable[[Given], Tensor]
    #: The tensor as the engine can work on it in place: itself, or a copy that `bring_back` brings back. Raises
    #: InvalidArgumentError for what cannot be written to.
    writable: Callable[[Tensor], Tensor]
    #: What to hand to the engine for what `readable`, `writable` or `like` have returned.
    for_engine: Callable[[Tensor], object]
    #: A new tensor, for a result of the same shape and dtype.
    like: Callable[[Tensor], Tensor]
    #: (work, tensor): see to it that the caller's tensor has what the engine made in `writable(tensor)`; return it.
    bring_back: Callable[[Tensor, Tensor], Tensor]
    #: (output, input): an output that the engine allocated, as a tensor of its input's dtype.
    from_engine: Callable[[Any, Tensor], Tensor]
    #: Whether two tensors have memory in common.
    share_memory: Callable[[Tensor, Tensor], bool]
    #: Splits as something that has `dtype`, `shape`, and `tolist()`.
    splits: Callable[[Splits], Any]
    #: (numbers, splits): the numbers of rows received, which the engine allocated; of the dtype that goes with splits.
    counts: Callable[[Any, Splits | None], Tensor]
    #: None for a framework that does not differentiate.
    gradients: Gradients[Tensor] | None = None

    #: The same of several tensors, where a framework has a faster way than one after the other.
    all_readable: Callable[[Sequence[Given]], list[Tensor]] | None = None
    all_for_engine: Callable[[Sequence[Tensor]], Sequence[object]] | None = None
    all_brought_back: Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]] | None = None
