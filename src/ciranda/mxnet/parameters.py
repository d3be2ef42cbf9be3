"""The same parameters on all ranks, also those whose shapes are known only after the first forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

import mxnet as mx
from mxnet.gluon import Parameter, ParameterDict
from mxnet.ndarray import NDArray

from ciranda import _basics
from ciranda._frameworks.objects import allgather_object
from ciranda._numbering import Numbering
from ciranda._ops import BROADCAST
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.mxnet import arrays
from ciranda.mxnet._pushing import push
from ciranda.mxnet.failures import raises_mxnet_errors
from ciranda.process_sets import ProcessSet, global_process_set, id_of

_calls = Numbering()

#: The attribute of a parameter with the broadcasts of its next initialization: numbers and text, so that it can be
#: pickled, copied, and read without Ciranda.
_ATTRIBUTE = "_ciranda_broadcast"
_DENSE = "default"
_IS_WRAPPED = "_ciranda_broadcasts"

#: The number of initializations by name: copies of a net share the names of its parameters.
_initializations: dict[str, int] = {}
_basics.at_end.append(_initializations.clear)


_Plain = tuple[str, int, int]


class _Broadcast(NamedTuple):
    name: str
    root_rank: int
    process_set: int

    def plain(self) -> _Plain:
        """Return a plain tuple, which can be unpickled without Ciranda."""
        return self.name, self.root_rank, self.process_set

    def under_next_name(self) -> str:
        """Return the name for one more initialization."""
        nth = _initializations.get(self.name, 0)
        _initializations[self.name] = nth + 1
        return f"{self.name}#{nth}" if nth else self.name


class _Note(NamedTuple):
    """The value of a parameter's attribute, with broadcasts as plain tuples."""

    #: The broadcast of every initialization.
    standing: _Plain
    #: Broadcasts of the first initialization instead: ranks that had the parameter have already made them.
    made_elsewhere: tuple[_Plain, ...]
    #: The epoch of their world.
    epoch: int

    def due(self) -> list[_Broadcast]:
        """Return the broadcasts of an initialization."""
        is_of_this_world = self.epoch == _basics.world.epoch
        return [_Broadcast(*each) for each in (is_of_this_world and self.made_elsewhere) or (self.standing,)]


@raises_mxnet_errors
def broadcast_parameters(
    params: Any, root_rank: int = 0, prefix: str | None = None, process_set: ProcessSet = global_process_set
) -> None:
    """Broadcast the parameters of rank `root_rank` to every rank.

    Initialized parameters are broadcast at once, as operations of MXNet's engine. A Gluon parameter whose
    initialization is deferred, until the first forward pass determines its shape, is broadcast when it is initialized,
    and every parameter again when it is initialized again (`initialize(force_reinit=True)`): all ranks must then
    initialize it. Ranks may reach their parameters in different orders, and at different times. The call itself waits
    for the other ranks, which exchange the names of their parameters.

    Args:
        params: of a Gluon block, `net.collect_params()`, or a dict or list of its parameters; or arrays by name, as
            `module.get_params()` returns them.
        root_rank: the rank whose parameters are taken.
        prefix: distinguishes calls for parameters of the same names; by default their order does.
        process_set: the ranks that take part; all, if not given.

    Raises:
        InvalidArgumentError: `params` has another type, or `root_rank` is not a rank of the set.
        MismatchError: ranks have parameters of different names.
    """
    _basics.require_rank(root_rank)
    if process_set.ranks is not None and root_rank not in process_set.ranks:
        raise InvalidArgumentError(f"broadcast_parameters: root rank {root_rank} is not in {process_set!r}")
    found = _each_once(params)
    begin = f"broadcast_parameters.{_calls.next(process_set) if prefix is None else prefix}"
    there = _there_somewhere(found, begin, process_set)
    for name, value in found.items():
        _broadcast(value, _Broadcast(f"{begin}.{name}", root_rank, id_of(process_set)), is_there=name in there)


def _each_once(params: Any) -> dict[str, Any]:
    """Return parameters or arrays by name; one that several blocks share has the first of its names."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for name, value in sorted(_named(params), key=lambda pair: pair[0]):
        if id(value) not in seen:
            seen.add(id(value))
            found[name] = value
    return found


def _there_somewhere(found: dict[str, Any], begin: str, process_set: ProcessSet) -> set[str]:
    """Return the names that any rank has initialized. Raises MismatchError on all ranks if their names differ."""
    mine = {name: isinstance(value, NDArray) or value._data is not None for name, value in found.items()}
    everyones = allgather_object(mine, f"{begin}.names", process_set)
    ranks = process_set.ranks or range(len(everyones))
    for rank, theirs in zip(ranks, everyones, strict=True):
        for name in sorted(everyones[0].keys() ^ theirs.keys()):
            has, lacks = (rank, ranks[0]) if name in theirs else (ranks[0], rank)
            raise MismatchError(f"broadcast_parameters: rank {has} has a parameter {name!r}, but rank {lacks} has not")
    return {name for theirs in everyones for name, is_there in theirs.items() if is_there}


def _named(params: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(params, (Mapping, ParameterDict)):
        pairs = [(str(name), value) for name, value in params.items()]
    elif isinstance(params, (list, tuple)):
        pairs = [(getattr(value, "name", None) or f"{index:06}", value) for index, value in enumerate(params)]
        twice = len({name for name, _ in pairs}) < len({id(value) for _, value in pairs})
        pairs = [(f"{index:06}.{name}" if twice else name, value) for index, (name, value) in enumerate(pairs)]
    else:
        raise InvalidArgumentError(
            "broadcast_parameters takes a ParameterDict of Gluon, or a dict or list of parameters or arrays; got "
            f"{type(params).__name__}"
        )
    for name, value in pairs:
        if not isinstance(value, (Parameter, NDArray)):
            raise InvalidArgumentError(
                f"broadcast_parameters takes parameters and arrays of MXNet; {name!r} is a {type(value).__name__}"
            )
    return pairs


def _broadcast(value: Any, broadcast: _Broadcast, is_there: bool) -> None:
    """Broadcast an array or a parameter now, or at its initialization; `is_there`: some rank broadcasts it now."""
    if isinstance(value, NDArray):
        _push([value], broadcast.name, broadcast)
        return
    _wrap(type(value))
    made: tuple[_Plain, ...] = ()
    if value._data is None and is_there:
        before = vars(value).get(_ATTRIBUTE)
        of_this_world = before is not None and _Note(*before).epoch == _basics.world.epoch
        made = (*(before[1] if of_this_world else ()), broadcast.plain())
    vars(value)[_ATTRIBUTE] = tuple(_Note(broadcast.plain(), made, _basics.world.epoch))
    if value._data is not None:
        _push(value._data, broadcast.under_next_name(), broadcast)


def _push(copies: list[NDArray], name: str, broadcast: _Broadcast) -> None:
    """Broadcast the first of an array's copies on this process's devices, and update the others."""
    with mx.autograd.pause():
        first = copies[0] if copies[0].stype == _DENSE else copies[0].tostype(_DENSE)
        push(BROADCAST, [first], [first], name, broadcast.process_set, root=broadcast.root_rank)
        if first is not copies[0]:
            first.tostype(copies[0].stype).copyto(copies[0])
        for other in copies[1:]:
            copies[0].copyto(other)


def _sent(data: NDArray, name: str, broadcast: _Broadcast) -> NDArray:
    """Return the data with which a parameter is initialized: the root's `data`.

    Operations that make a rank's own data must not wait for earlier broadcasts: MXNet's operations share scratch
    memory, so random initializers may wait for a forward pass that waits for parameters. The root only reads its data,
    so it waits for no other rank; other ranks receive into a new array, and do not wait for their data.
    """
    with mx.autograd.pause():
        dense = data if data.stype == _DENSE else data.tostype(_DENSE)
        is_root = _basics.rank() == broadcast.root_rank
        target = dense if is_root else arrays.empty(dense.shape, dense)
        carrier = mx.nd.empty((1,)) if is_root else None
        push(BROADCAST, [target], [target], name, broadcast.process_set, root=broadcast.root_rank, carrier=carrier)
        return target if data.stype == _DENSE else target.tostype(data.stype)


@contextmanager
def without_broadcast(param: Parameter) -> Iterator[None]:
    """Initialize a parameter with this rank's own data, without the other ranks."""
    asked = vars(param).pop(_ATTRIBUTE, None)
    try:
        yield
    finally:
        if asked is not None:
            vars(param)[_ATTRIBUTE] = asked


def _wrap(kind: Any) -> None:
    """Make a parameter's class broadcast the data of an initialization, if the parameter has the attribute."""
    owner = next(each for each in kind.__mro__ if "_init_impl" in vars(each))
    own = vars(owner)["_init_impl"]
    if not hasattr(own, _IS_WRAPPED):
        owner._init_impl = _broadcasting(own)


def _broadcasting(own: Callable[..., None]) -> Callable[..., None]:
    @wraps(own)
    def initialize(self: Any, data: NDArray, ctx_list: Any) -> None:
        # Without the attribute, a base class's method that this one calls does not broadcast.
        asked = vars(self).pop(_ATTRIBUTE, None)
        if asked is None:
            own(self, data, ctx_list)
            return
        note = _Note(*asked)
        try:
            if self._data is None:  # otherwise it only moves to other devices
                for broadcast in note.due():
                    data = _sent(data, broadcast.under_next_name(), broadcast)
            own(self, data, ctx_list)
            note = note._replace(made_elsewhere=())
        finally:
            vars(self)[_ATTRIBUTE] = tuple(note)

    setattr(initialize, _IS_WRAPPED, True)
    return initialize
