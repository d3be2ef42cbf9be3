"""The base of a framework's collectives: its adapter, and signatures in its own types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from inspect import getattr_static
from operator import is_
from types import FunctionType
from typing import Any, Generic, TypeVar

from ciranda._collectives.adapter import Adapter, Given, Splits, Tensor
from ciranda._collectives.rules import Rule
from ciranda._ops import submit_move, submit_reduction
from ciranda.errors import InvalidArgumentError

Itself = TypeVar("Itself", bound="Base[Any, Any, Any]")


class Base(Generic[Given, Tensor, Splits]):
    """The functions of an adapter, as attributes.

    Each instance has its own class, whose public methods have the adapter's types in their annotations. So `help()`
    shows for the bound methods, which a framework exports, the same as for functions that were written for it.
    """

    def __new__(cls: type[Itself], adapter: Adapter[Any, Any, Any]) -> Itself:
        """Return an instance whose public methods are annotated with the adapter's types."""
        return object.__new__(_in_types_of(adapter, cls))

    def __init__(self, adapter: Adapter[Given, Tensor, Splits]) -> None:
        self._adapter = adapter
        self._readable = adapter.readable
        self._writable = adapter.writable
        self._for_engine = adapter.for_engine
        self._for_moving = adapter.for_moving or adapter.for_engine
        self._like = adapter.like
        self._laid_out_like = adapter.laid_out_like
        self._bring_back = adapter.bring_back
        self._from_engine = adapter.from_engine
        self._gradients = adapter.gradients
        self._all_readable = adapter.all_readable or partial(_each, adapter.readable)
        self._all_for_engine = adapter.all_for_engine or partial(_each, adapter.for_engine)
        self._all_for_moving = adapter.all_for_moving or (
            self._all_for_engine if adapter.for_moving is None else partial(_each, adapter.for_moving)
        )
        self._all_brought_back = adapter.all_brought_back or partial(_each_pair, adapter.bring_back)
        self._submit_move: Any = submit_move
        self._submit_reduction: Any = submit_reduction
        self._of_blocking_calls: Any = self._submitting_awaited()

    def _submitting_awaited(self) -> Any:
        awaited = object.__new__(type(self))
        vars(awaited).update(vars(self), _of_blocking_calls=awaited)
        awaited._submit_move = partial(submit_move, is_awaited=True)
        awaited._submit_reduction = partial(submit_reduction, is_awaited=True)
        return awaited

    @property
    def _awaited(self: Itself) -> Itself:
        """The same collectives, but for blocking calls: what they start is known to be waited for at once.

        Such an operation may take a direct round, and is not left to another thread.
        """
        return self._of_blocking_calls  # type: ignore[no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        # A bound method is pickled with what it is bound to.
        return _of_module, (self._adapter.module,)

    def _all_writable(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [self._writable(tensor) for tensor in tensors]

    def _as_given(self, given: Given, work: Tensor, output: Tensor) -> Tensor:
        """Return the new tensor `output`, whose input the engine read in `work`, laid out as the input is."""
        if work is given or self._laid_out_like is None:
            return output
        return self._laid_out_like(given, output)

    def _all_as_given(
        self, given: Sequence[Given], work: Sequence[Tensor], outputs: list[Tensor]
    ) -> Callable[[Any], list[Tensor]]:
        """Return what returns all outputs, once they are computed, laid out as their inputs are."""
        if self._laid_out_like is None or all(map(is_, work, given)):
            return lambda _: outputs
        three = list(zip(given, work, outputs, strict=True))
        return lambda _: [self._as_given(*each) for each in three]

    def _all_from_engine(self, outputs: Sequence[Any], work: Sequence[Tensor]) -> list[Tensor]:
        return [self._from_engine(*pair) for pair in zip(outputs, work, strict=True)]

    def _is_recorded(self, tensors: Sequence[Any]) -> bool:
        return self._gradients is not None and self._gradients.needed(tensors)

    def _recorded(self, rule: Rule[Tensor], tensors: Sequence[Any]) -> list[Tensor]:
        assert self._gradients is not None
        return self._gradients.record(rule, tensors)

    def _shapes(self, tensors: Sequence[Any]) -> list[tuple[tuple[int, ...], Any]]:
        """Return what `_zeros` takes to make tensors like these: pairs of shape and `Gradients.kind`."""
        assert self._gradients is not None
        return [(tuple(tensor.shape), self._gradients.kind(tensor)) for tensor in tensors]

    def _zeros(self, shapes: Sequence[tuple[tuple[int, ...], Any]]) -> list[Tensor]:
        """Return tensors of zeros."""
        assert self._gradients is not None
        return [self._gradients.zeros(*each) for each in shapes]

    def _splits_lists(self, n_tensors: int, splits: Sequence[Splits | None] | None) -> list[list[int]]:
        """Return the splits of each tensor as the engine takes them: no numbers for equal parts."""
        if splits is None:
            return [[]] * n_tensors
        if len(splits) != n_tensors:
            raise InvalidArgumentError(f"there are {n_tensors} tensors but splits for {len(splits)}")
        return [[] if each is None else whole_numbers(self._adapter.splits(each)) for each in splits]

    def _apart_from(self, inputs: Sequence[Tensor], outputs: list[Tensor]) -> list[Tensor]:
        """Return the outputs of a reducescatter. Raises InvalidArgumentError if one lies in another tensor's memory."""
        for index, output in enumerate(outputs):
            if any(self._adapter.share_memory(output, tensor) for tensor in (*inputs, *outputs[:index])):
                raise InvalidArgumentError(
                    "an output of a reducescatter lies in the memory of a tensor or another output"
                )
        return outputs


def _each(function: Any, tensors: Sequence[Any]) -> list[Any]:
    return [function(tensor) for tensor in tensors]


def _each_pair(function: Any, work: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
    return [function(*pair) for pair in zip(work, tensors, strict=True)]


def whole_numbers(splits: Any) -> list[int]:
    """Return the numbers of an array of one dimension. Raises InvalidArgumentError for any other."""
    numbers = splits.tolist()
    if len(splits.shape) != 1 or not numbers or any(type(number) is not int for number in numbers):
        raise InvalidArgumentError(
            f"splits must be whole numbers, one for each rank; got {splits.dtype} of shape {list(splits.shape)}"
        )
    return numbers  # type: ignore[no-any-return]


def _of_module(name: str) -> Any:
    return import_module(name).collectives


def _in_types_of(adapter: Adapter[Any, Any, Any], cls: type[Itself]) -> type[Itself]:
    """Return a subclass of `cls`, whose public methods are copies that are annotated with the adapter's types."""
    public = [name for name in dir(cls) if not name.startswith("_")]
    methods = {name: _copy(getattr_static(cls, name), name, adapter) for name in public}
    return type(cls.__name__, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__, **methods})


def _copy(function: FunctionType, name: str, adapter: Adapter[Any, Any, Any]) -> FunctionType:
    scope = {**adapter.namespace, **function.__globals__}
    copy = FunctionType(function.__code__, scope, name, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__, copy.__qualname__, copy.__doc__ = adapter.module, name, function.__doc__
    copy.__annotations__ = _in_types(adapter.types, function.__annotations__)
    return copy


def _in_types(types: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    variable = re.compile(rf"\b({'|'.join(types)})\b")
    return {name: variable.sub(lambda match: types[match[0]], text) for name, text in annotations.items()}
