"""A Trainer for Gluon whose gradients are those of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import gluon

from ciranda import _basics
from ciranda._frameworks.naming import next_number
from ciranda._frameworks.objects import allgather_object
from ciranda._frameworks.parameters import Contents, Parameter
from ciranda._numbering import Era, era_of
from ciranda._ops import Average, Max
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.mxnet import _calls
from ciranda.mxnet.comparing import contents_of, make_check
from ciranda.mxnet.compression import Compression, Compressor
from ciranda.mxnet.gradients import factors_of, groups_of, reduce_
from ciranda.mxnet.ops import finish_pushed
from ciranda.mxnet.optimizer import DistributedOptimizer
from ciranda.process_sets import ProcessSet, global_process_set


class _LeftOut:
    """The placeholder of a parameter that a step skips."""

    grad_req = "null"
    _grad = None  # for AMP's loss scaler


class _Whole:
    """A parameter with row-sparse weights, which MXNet's Trainer would leave to a kvstore."""

    def __init__(self, param: gluon.Parameter) -> None:
        self._param = param

    def __getattr__(self, name: str) -> Any:
        return getattr(self._param, name)

    def list_data(self) -> list[Any]:
        """Return the weights: every rank has all rows."""
        return list(self._param._data)


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """A `gluon.Trainer` that averages every gradient over all ranks, without a kvstore.

    `step(batch_size)` divides by the batch of one rank, as the gradients are averaged over the ranks before. For
    gradient clipping and the like, `allreduce_grads()` and `update(batch_size)` are its two halves.

    Args:
        params: as for `gluon.Trainer`.
        optimizer: as for `gluon.Trainer`; a `DistributedOptimizer` is unwrapped, with a warning.
        optimizer_params: as for `gluon.Trainer`.
        compression: the compressor, as Compression.none or Compression.fp16 or a class of your own.
        gradient_predivide_factor: divides the gradients by this before they are summed, and by size() over this
            afterwards.
        prefix: distinguishes several trainers of a process; by default their order does.
        num_groups: the number of groups of gradients, each reduced as one; 0: each by itself.
        process_set: the ranks whose gradients are averaged. Others update with their own gradients.
        of_kvstores: none of the further arguments of `gluon.Trainer`, which are about kvstores.

    Raises:
        InvalidArgumentError: an argument is out of range, or about kvstores.
    """

    #: Whether ranks that begin with different parameters are warned, in place of an error.
    _only_warns = False

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        compression: type[Compressor] = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
        **of_kvstores: Any,
    ) -> None:
        _basics.require_init()
        _check_without_kvstore(of_kvstores)
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer averages gradients by itself: the optimizer inside the DistributedOptimizer is "
                "used instead of it",
                stacklevel=2,
            )
            optimizer = optimizer._optimizer
        self._factors = factors_of(gradient_predivide_factor)
        groups_of([], num_groups, str)
        self._compression = compression
        self._num_groups = num_groups
        self._process_set = process_set
        number = next_number(process_set)
        self._name = f"DistributedTrainer.{prefix if prefix is not None else f'{number.joins}.{number.nth}'}"
        self._compared_in: Era | None = None
        self._check = make_check(self._name, process_set, _contents, self._only_warns)
        self._params: list[Any] = []
        super().__init__(params, optimizer, optimizer_params, kvstore=None, update_on_kvstore=False)

    def step(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """Average the gradients over all ranks, and update the parameters.

        Args:
            batch_size: of one rank.
            ignore_stale_grad: a parameter whose gradient no rank has computed since the last step is unchanged; one
                that some ranks have used is updated on all, and the others contribute zeros.
        """
        if not ignore_stale_grad:
            super().step(batch_size)
            return
        self._compare(may_be_deferred=True)
        with self._with_used(_make_zero) as is_any:
            if is_any:
                super().step(batch_size)

    def update(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """Update the parameters, after `allreduce_grads()`.

        Args:
            batch_size: of one rank.
            ignore_stale_grad: a parameter whose gradient no rank has computed since the last step is unchanged; one
                that some ranks have used is updated on all. `allreduce_grads()` has averaged the gradients as they
                are, as a kvstore does: of ranks that have not used it, the previous gradient, or zeros.
        """
        if not ignore_stale_grad:
            super().update(batch_size)
            return
        self._compare(may_be_deferred=True)
        with self._with_used(_make_fresh) as is_any:
            if is_any:
                super().update(batch_size)

    @contextmanager
    def _with_used(self, make_used: Callable[[gluon.Parameter], None]) -> Iterator[bool]:
        """Show the base class the parameters that any rank has used since the last step; `make_used`: on others."""
        used = [_is_used(param) for param in self._params]
        used_somewhere = self._used_somewhere(used)
        for param, is_used, is_needed in zip(self._params, used, used_somewhere, strict=True):
            if is_needed and not is_used:
                make_used(param)
        seen = [param if is_needed else _LeftOut for param, is_needed in zip(self._params, used_somewhere, strict=True)]
        with self._with_params(seen):
            yield any(used_somewhere)

    def _used_somewhere(self, used: list[bool]) -> list[bool]:
        """Return whether any rank has computed each parameter's gradient since the last step; `used`: this rank."""
        if not self._params or self._process_set.included() is False:
            return used
        deferred = [param.grad_req != "null" and param._data is None for param in self._params]
        call = _calls.Call(f"{self._name}.used", self._process_set, op=Max)
        (flags,) = _calls.allreduce([mx.nd.array([used, deferred], ctx=mx.cpu(), dtype="uint8")], call)
        used_somewhere: list[bool]
        used_somewhere, deferred_somewhere = flags.asnumpy().astype(bool).tolist()
        for param, is_needed, is_missing in zip(self._params, used_somewhere, deferred_somewhere, strict=True):
            if is_needed and is_missing:
                raise InvalidArgumentError(
                    f"DistributedTrainer: parameter {param.name!r} was used on one rank, but on another its "
                    "initialization is deferred: run a forward pass with it on all ranks first, or give its block the "
                    "sizes of its inputs"
                )
        return used_somewhere

    @contextmanager
    def _with_params(self, params: list[Any]) -> Iterator[None]:
        """Replace the parameters that the base class sees."""
        every, self._params = self._params, params
        try:
            yield
        finally:
            self._params = every

    def _update(self, ignore_stale_grad: bool = False) -> None:
        whole = [_Whole(param) if getattr(param, "_stype", "default") != "default" else param for param in self._params]
        with self._with_params(whole):
            try:
                super()._update(ignore_stale_grad)
            except UserWarning:  # for a stale gradient: the program may end, and the other ranks' with it
                finish_pushed()
                raise

    def _init_kvstore(self) -> None:
        """Create no kvstore: `broadcast_parameters()` makes parameters equal on all ranks, also deferred ones."""
        self._distributed = False
        self._kv_initialized = True

    def _row_sparse_pull(self, parameter: Any, out: Any, row_id: Any, full_idx: bool = False) -> None:
        """Copy the weights to `out`: every rank has all rows."""
        weight = next((each for each in parameter._data if each.ctx == out.ctx), parameter._data[0])
        if weight is not out:
            weight.copyto(out)

    def _allreduce_grads(self) -> None:
        self._compare()
        self._check.compare(_parameters(self._params))  # those that were deferred or left out
        trained = [
            (index, param)
            for index, param in enumerate(self._params)
            if param.grad_req != "null" and param._grad is not None
        ]
        for group in groups_of(trained, self._num_groups, lambda pair: pair[1].dtype):
            first = group[0][0]
            call = _calls.Call(f"{self._name}.{first}", self._process_set, -first, Average, *self._factors)
            gradients = [_summed(param.list_grad()) for _, param in group]
            reduce_(gradients, call, self._compression)
            for gradient, (_, param) in zip(gradients, group, strict=True):
                for copy in param.list_grad():
                    if copy is not gradient:
                        gradient.copyto(copy)

    def _compare(self, may_be_deferred: bool = False) -> None:
        """Once in each world: raise MismatchError on all ranks unless they train the same parameters.

        `may_be_deferred`: an initialization may be deferred on some ranks only.
        """
        era = era_of(self._process_set)
        if self._compared_in == era or self._process_set.included() is False:
            return
        mine = [(param.name, param.shape, np.dtype(param.dtype).str, param.grad_req) for param in self._params]
        is_there = [may_be_deferred or param.grad_req == "null" or param._data is not None for param in self._params]
        everyones = allgather_object((mine, is_there), f"{self._name}.parameters", self._process_set)
        ranks = self._process_set.ranks or range(len(everyones))
        for rank, theirs in zip(ranks, everyones, strict=False):
            _check_alike(everyones[0][0], theirs[0], next(iter(ranks)), rank)
            _check_there(everyones[0], theirs, next(iter(ranks)), rank)
        self._compared_in = era
        if not may_be_deferred:
            self._check.compare(_parameters(self._params))


#: Arguments of `gluon.Trainer`, and what to do instead.
_OF_KVSTORES = {
    "kvstore": "it averages the gradients by itself, and broadcast_parameters() makes the parameters equal",
    "update_on_kvstore": "every rank updates the parameters by itself",
    "compression_params": "give it compression=, as Compression.fp16",
}


def _check_without_kvstore(arguments: Mapping[str, Any]) -> None:
    for name in arguments:
        if name not in _OF_KVSTORES:
            raise TypeError(f"DistributedTrainer got an unexpected argument {name!r}")
        if arguments[name]:
            raise InvalidArgumentError(
                f"DistributedTrainer takes no {name}, as it uses no kvstore: {_OF_KVSTORES[name]}"
            )


def _parameters(params: list[Any]) -> list[Parameter]:
    """Return those that are trained; others, as the statistics of BatchNorm, may be each rank's own."""
    return [Parameter(id(each), each.name, each) for each in params if each.grad_req != "null"]


def _contents(param: Any) -> Contents | None:
    return None if param._data is None else contents_of(param._data[0])


def _check_there(ours: Any, theirs: Any, rank: int, other: int) -> None:
    for (name, *_), mine, its in zip(ours[0], ours[1], theirs[1], strict=True):
        if mine != its:
            has, lacks = (rank, other) if mine else (other, rank)
            raise MismatchError(
                f"DistributedTrainer: parameter {name!r} is initialized on rank {has} but deferred on rank {lacks}: "
                "run a forward pass with it on all ranks first, or give its block the sizes of its inputs"
            )


def _check_alike(ours: list[Any], theirs: list[Any], rank: int, other: int) -> None:
    if len(ours) != len(theirs):
        longer, shorter = (ours, theirs) if len(ours) > len(theirs) else (theirs, ours)
        raise MismatchError(
            f"DistributedTrainer: rank {rank} trains {len(ours)} parameters but rank {other} {len(theirs)}: "
            f"{longer[len(shorter)][0]!r} and what follows have no counterpart"
        )
    for index, (mine, its) in enumerate(zip(ours, theirs, strict=True)):
        if not _fit(mine[1], its[1]) or mine[2:] != its[2:]:
            raise MismatchError(
                f"DistributedTrainer: parameter {index} is {mine[0]!r} on rank {rank}, of shape {mine[1]}, dtype "
                f"{mine[2]} and grad_req {mine[3]!r}, but {its[0]!r} on rank {other}, of shape {its[1]}, dtype "
                f"{its[2]} and grad_req {its[3]!r}"
            )


def _fit(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> bool:
    """Whether two shapes can be equal once their unknown dimensions are known."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and all(a == b or a <= 0 or b <= 0 for a, b in zip(one, other, strict=True))


def _is_used(param: gluon.Parameter) -> bool:
    if param.grad_req == "null" or param._data is None:
        return False
    return all(data._fresh_grad for data in param._data)


def _make_zero(param: gluon.Parameter) -> None:
    param.zero_grad()
    _make_fresh(param)


def _make_fresh(param: gluon.Parameter) -> None:
    for data in param._data:
        data._fresh_grad = True


def _summed(copies: list[Any]) -> Any:
    """Return the first of a process's gradients of one parameter, with those on its other devices added."""
    first = copies[0]
    for other in copies[1:]:
        first += other.as_in_context(first.ctx)
    return first


__all__ = ["DistributedTrainer"]
