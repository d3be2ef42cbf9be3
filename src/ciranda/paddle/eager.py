"""Gradients of dygraph: a bucket starts once the backward pass has computed the last of its members."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle

from ciranda._frameworks.marks import is_distributed
from ciranda._frameworks.parameters import Contents, Parameter, ParameterCheck
from ciranda._frameworks.planner import Bucket, Tensor, plan
from ciranda._ops import Handle, Max
from ciranda.errors import InvalidArgumentError
from ciranda.numpy.ops import allreduce as allreduce_numpy
from ciranda.paddle import ops
from ciranda.paddle.rewriting import Combining, Pair, check_names, lazy_error
from ciranda.paddle.tensors import for_engine, in_memory
from ciranda.process_sets import global_process_set

_REMEDY = "broadcast_parameters(model.state_dict(), root_rank=0)"


class _Travelling:
    """A bucket of a step: its members that are ready, and the call that combines them."""

    def __init__(self, bucket: Bucket, members: Sequence[Any]) -> None:
        self.bucket = bucket
        self.members = members
        self.come: set[int] = set()
        self.handle: Handle[Any] | None = None
        self.sent: list[Any] = []
        #: Of the members' gradients, since the call was made.
        self.versions: list[int] = []

    def check_unchanged(self) -> None:
        """Raise AssertionError if a gradient was changed since the call was made."""
        for parameter, version in zip(self.members, self.versions, strict=True):
            if parameter.grad is None or _version(parameter.grad) != version:
                raise AssertionError(
                    f"the gradient of {parameter.name} was changed or cleared between backward() and step(), while it "
                    "was being combined: call the optimizer's synchronize() before what changes gradients, as clipping "
                    "by a function does, or give the optimizer grad_clip="
                )


class EagerGradients:
    """The gradients of the parameters of an optimizer, in dygraph.

    Args:
        parameters: those of the optimizer.
        combining: how they are combined.
        nrings: the number of lanes.
        bucket_mb: the largest MiB of gradients in one operation.
        distributed: names of parameters whose gradients stay local.
        is_lazy: whether the optimizer updates only the rows of sparse gradients, which are refused then.
    """

    def __init__(
        self,
        parameters: Sequence[Any] | None,
        combining: Combining,
        nrings: int,
        bucket_mb: float,
        distributed: Collection[str],
        is_lazy: bool = False,
    ) -> None:
        trained = [each for each in flat(parameters) if not each.stop_gradient]
        if not trained:
            raise InvalidArgumentError("in dygraph the optimizer needs its parameters: give it parameters=...")
        check_names(distributed, [Pair(each.name, each, None) for each in trained])
        self._combining = combining
        self._is_lazy = is_lazy
        shared = [each for each in trained if not (each.name in distributed or is_distributed(each))]
        self._compared = [Parameter(place, each.name, each) for place, each in enumerate(shared)]
        self._check = ParameterCheck(
            f"{combining.prefix}.eager", "DistributedOptimizer", global_process_set, _contents, _REMEDY
        )
        self._is_syncing = True
        self._is_synchronized = False
        #: The exception of a hook in the backward pass.
        self._failure: Exception | None = None
        # The last parameters get their gradients first. Parameters' names count layers, and may differ between ranks.
        order = dict(enumerate(reversed(trained)))
        tensors = [
            Tensor(
                f"{index:05d}",
                int(np.prod(each.shape)) * int(each.element_size()),
                index,
                is_distributed=each.name in distributed or is_distributed(each),
            )
            for index, each in order.items()
        ]
        made = plan(tensors, nrings, int(bucket_mb * (1 << 20)))
        self._buckets = [_Travelling(bucket, [order[int(name)] for name in bucket.names]) for bucket in made.buckets]
        for travelling in self._buckets:
            for member, parameter in enumerate(travelling.members):
                parameter._register_backward_hook(self._hook(travelling, member))

    def _hook(self, travelling: _Travelling, member: int) -> Any:
        def on_gradient(*_: Any) -> None:
            if not self._is_syncing or self._failure is not None:
                return
            self._is_synchronized = False
            try:
                self._take(travelling, member)
            except Exception as error:
                # Paddle's backward pass hides exceptions of hooks.
                self._failure = error

        return on_gradient

    def _take(self, travelling: _Travelling, member: int) -> None:
        if travelling.handle is not None:
            raise AssertionError(
                "a gradient was computed a second time while it is being combined: call step() or synchronize() "
                "after each backward pass, or let those that accumulate be within no_sync()"
            )
        travelling.come.add(member)
        if len(travelling.come) == len(travelling.members):
            self._start(travelling)

    def _start(self, travelling: _Travelling) -> None:
        combining = self._combining
        gradients = [
            self._dense(parameter) if parameter.grad.is_selected_rows() else parameter.grad
            for parameter in travelling.members
        ]
        with paddle.no_grad():
            travelling.sent = [_sent(gradient, combining.wire) for gradient in gradients]
            travelling.handle = ops.grouped_allreduce_async_(
                travelling.sent,
                op=combining.op,
                name=f"{combining.prefix}.eager.{travelling.bucket.index}",
                prescale_factor=combining.prescale,
                postscale_factor=combining.postscale,
                process_set=global_process_set.lane(travelling.bucket.lane),
            )
        travelling.versions = [_version(parameter.grad) for parameter in travelling.members]

    def _dense(self, parameter: Any) -> Any:
        """Return the dense form of a parameter's sparse gradient."""
        if self._is_lazy:
            raise lazy_error(parameter.name)
        gradient = parameter.grad
        if gradient.dtype == paddle.bfloat16:
            raise InvalidArgumentError(
                f"the gradient of {parameter.name} is sparse: use the embedding with sparse=False"
            )
        values = gradient.numpy()
        dense = np.zeros(list(parameter.shape), values.dtype)
        np.add.at(dense, np.array(gradient.rows(), np.int64), values)
        return paddle.to_tensor(dense, place=paddle.CPUPlace())

    @property
    def has_started(self) -> bool:
        """Whether a backward pass has reached a parameter since gradients were combined."""
        return any(each.come for each in self._buckets)

    def check_idle(self, what: str) -> None:
        """Raise AssertionError if gradients are being combined."""
        if any(each.handle is not None for each in self._buckets):
            raise AssertionError(f"{what} was called between backward() and step(), while gradients are being combined")

    def begin_step(self) -> None:
        """Expect the gradients of the next step."""
        self._is_synchronized = False

    def synchronize(self) -> None:
        """Wait until all gradients are combined. A gradient that only other ranks have is zero here.

        Raises:
            AssertionError: a gradient was changed while it was being combined.
        """
        if self._is_synchronized:
            return
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
            self._compare()
            self._start_late()
            pending = [travelling for travelling in self._buckets if travelling.handle is not None]
            try:
                for travelling in pending:
                    travelling.check_unchanged()
            finally:
                self._finish_calls()
            for travelling in pending:
                _bring_back(travelling)
        finally:
            for travelling in self._buckets:
                travelling.handle, travelling.sent = None, []
                travelling.come.clear()
        self._is_synchronized = True

    def _compare(self) -> None:
        """Check, before the first step of a world, that the ranks begin with the same parameters.

        Raises:
            MismatchError: on all ranks.
        """
        self._check.compare(self._compared, self._finish_calls)

    def _finish_calls(self) -> None:
        """Finish the step's calls, which all ranks have made alike, and whose names the next step uses again."""
        for travelling in self._buckets:
            if travelling.handle is not None:
                travelling.handle.wait()

    def _start_late(self) -> None:
        """Start the buckets that the backward pass did not complete, on all ranks alike."""
        parameters = [parameter for each in self._buckets for parameter in each.members]
        mine = np.array([parameter.grad is not None for parameter in parameters], np.uint8)
        any_has = allreduce_numpy(mine, op=Max, name=f"{self._combining.prefix}.eager.presence")
        has = dict(zip(map(id, parameters), any_has.tolist(), strict=True))
        for travelling in self._buckets:
            if travelling.handle is not None or not any(has[id(parameter)] for parameter in travelling.members):
                continue
            for parameter in travelling.members:
                if parameter.grad is None:
                    parameter.grad = paddle.zeros_like(parameter)
            self._start(travelling)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backward passes within this accumulate on this rank."""
        self._is_syncing, before = False, self._is_syncing
        try:
            yield
        finally:
            self._is_syncing = before


def _contents(parameter: Any) -> Contents:
    tensor = in_memory(parameter.detach())
    return Contents(f"{tensor.dtype} {list(tensor.shape)}", for_engine(tensor))


def flat(parameters: Iterable[Any] | None) -> list[Any]:
    """Return the parameters of an optimizer, which may have groups of them."""
    found = []
    for each in parameters or []:
        found += list(each["params"]) if isinstance(each, dict) else [each]
    return found


def _version(gradient: Any) -> int:
    """Return how often it was changed in place; Paddle does not count that of sparse ones."""
    return 0 if gradient.is_selected_rows() else int(gradient.inplace_version)


def _set_all_rows(gradient: Any, dense: Any) -> None:
    """Set all rows of a sparse gradient: Paddle does not let it become a dense one."""
    rows = gradient.get_selected_rows()
    rows.set_rows(list(range(dense.shape[0])))
    rows.get_tensor().set(dense.astype(gradient.dtype).numpy(), paddle.CPUPlace())


def _sent(gradient: Any, wire: Any) -> Any:
    return gradient if wire is None or gradient.dtype not in (paddle.float32, paddle.float64) else gradient.astype(wire)


def _bring_back(travelling: _Travelling) -> None:
    with paddle.no_grad():
        for parameter, sent in zip(travelling.members, travelling.sent, strict=True):
            if parameter.grad.is_selected_rows():
                _set_all_rows(parameter.grad, sent)
            elif sent.dtype != parameter.grad.dtype:
                paddle.assign(sent.astype(parameter.grad.dtype), parameter.grad)
