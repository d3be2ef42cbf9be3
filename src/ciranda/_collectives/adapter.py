"""The description of a framework's tensors: the table of functions on which the collectives are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from ciranda._collectives.rules import Rule

#: The type that is accepted for read-only inputs, such as anything that `numpy.asarray` takes.
Given = TypeVar("Given")
#: The type that collectives return, and work on in place.
Tensor = TypeVar("Tensor")
#: The number of rows for each rank.
Splits = TypeVar("Splits")


class Gradients(Protocol[Tensor]):
    """The functions of a framework's differentiation that `Rule` needs."""

    def needed(self, tensors: Sequence[Any]) -> bool:
        """Whether an operation on these tensors must be recorded."""

    def record(self, rule: Rule[Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return `rule.forward(tensors)`, and register `rule.backward` for its gradient.

        The last `rule.n_constants` of the results have no gradient. Unless `rule.is_differentiable_twice`, the backward
        pass need not be recorded itself.
        """

    def kind(self, tensor: Any) -> Any:
        """Return what `zeros` needs to make a tensor like this one in another shape: its dtype, and its device."""

    def zeros(self, shape: tuple[int, ...], kind: Any) -> Tensor:
        """Return a new tensor of zeros."""

    def cast(self, tensor: Any, dtype: Any) -> Tensor:
        """Return the tensor, of bool or numbers, in another dtype."""


@dataclass(frozen=True, kw_only=True)
class Adapter(Generic[Given, Tensor, Splits]):
    """The functions on a framework's tensors that the collectives need.

    The engine takes contiguous tensors in CPU memory or on a GPU, by the buffer protocol, by DLPack, or described by
    address (`_core.TensorDescription`), and keeps them alive by itself.
    """

    #: The module with the bound `collectives`, under that name.
    module: str
    #: How "Given", "Tensor" and "Splits" are written in the signatures of the public functions...
    types: Mapping[str, str]
    #: ...and the namespace in which that has a meaning.
    namespace: Mapping[str, Any] = field(default_factory=dict)

    #: The tensor as the engine can read it: itself, or a contiguous copy. Raises InvalidArgumentError for other
    #: objects, and for tensors on an inaccessible device.
    readable: Callable[[Given], Tensor]
    #: The tensor as the engine can work on it in place: itself, or a copy that `bring_back` copies back. Raises
    #: InvalidArgumentError for a tensor that cannot be written to.
    writable: Callable[[Tensor], Tensor]
    #: The engine's argument for a tensor that `readable`, `writable` or `like` has returned.
    for_engine: Callable[[Tensor], object]
    #: A new tensor, for a result of the same shape and dtype.
    like: Callable[[Tensor], Tensor]
    #: (work, tensor): copy the engine's result in `writable(tensor)` to the caller's tensor if needed; return it.
    bring_back: Callable[[Tensor, Tensor], Tensor]
    #: (output, input): an output that the engine allocated, as a tensor of its input's dtype.
    from_engine: Callable[[Any, Tensor], Tensor]
    #: Whether two tensors share memory.
    share_memory: Callable[[Tensor, Tensor], bool]
    #: Splits as an object with `dtype`, `shape`, and `tolist()`.
    splits: Callable[[Splits], Any]
    #: (numbers, splits): the numbers of rows received, which the engine allocated; of the dtype that matches `splits`.
    counts: Callable[[Any, Splits | None], Tensor]
    #: None for a framework that does not differentiate.
    gradients: Gradients[Tensor] | None = None
    #: The same as `for_engine` for collectives that only move tensors, if these take more of them. `from_engine` gets
    #: what they return for such.
    for_moving: Callable[[Tensor], object] | None = None

    #: (given, output): a new tensor from `like` with the strides of what the caller has given, where the framework's
    #: own functions keep them. None where tensors have none.
    laid_out_like: Callable[[Given, Tensor], Tensor] | None = None

    #: The same for several tensors, if a framework has a faster function than one after the other.
    all_readable: Callable[[Sequence[Given]], list[Tensor]] | None = None
    all_for_engine: Callable[[Sequence[Tensor]], Sequence[object]] | None = None
    all_for_moving: Callable[[Sequence[Tensor]], Sequence[object]] | None = None
    all_brought_back: Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]] | None = None
