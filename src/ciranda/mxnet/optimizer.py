"""An optimizer for the Module API whose gradients are those of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet.ndarray import NDArray

from ciranda import _basics
from ciranda._frameworks.naming import next_number
from ciranda._frameworks.parameters import Parameter
from ciranda._ops import Average
from ciranda.errors import InvalidArgumentError
from ciranda.mxnet import _calls
from ciranda.mxnet.comparing import contents_of, make_check
from ciranda.mxnet.gradients import factors_of, groups_of, reduce_
from ciranda.process_sets import ProcessSet, global_process_set

_OWN = ("_optimizer", "_process_set", "_predivide", "_num_groups", "_prefix", "_check")


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc]
    """An optimizer that averages every gradient over all ranks before `optimizer` uses it.

    For `mod.init_optimizer(optimizer=...)` and `mod.fit(optimizer=...)`. With Gluon, use `DistributedTrainer`. The
    wrapped optimizer does the rest; attributes are read and set on it.

    Args:
        optimizer: any `mx.optimizer.Optimizer`.
        gradient_predivide_factor: divides the gradients by this before they are summed, and by size() over this
            afterwards.
        num_groups: the number of groups of gradients that are updated together, each reduced as one; 0: each by
            itself.
        process_set: the ranks whose gradients are averaged. Others update with their own gradients.
    """

    #: Whether ranks that begin with different parameters are warned, in place of an error.
    _only_warns = False

    def __init__(
        self,
        optimizer: mx.optimizer.Optimizer,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        # Without the base class's __init__, whose attributes would hide those of the wrapped optimizer.
        if not isinstance(optimizer, mx.optimizer.Optimizer):
            raise InvalidArgumentError(
                f"DistributedOptimizer wraps an mx.optimizer.Optimizer, not {type(optimizer).__name__}: "
                "mx.optimizer.create('sgd', ...) makes one"
            )
        _basics.require_init()
        self._optimizer = optimizer
        self._process_set = process_set
        self._predivide = gradient_predivide_factor
        factors_of(gradient_predivide_factor)
        self._num_groups = num_groups
        number = next_number(process_set)
        self._prefix = f"DistributedOptimizer.{number.joins}.{number.nth}"
        self._check = make_check(self._prefix, process_set, contents_of, self._only_warns)

    def __getattr__(self, name: str) -> Any:
        if name in _OWN:  # not set yet, as in copy and pickle
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._optimizer, name, value)

    def __getstate__(self) -> dict[str, Any]:
        # The set of all ranks is one object, which a pickle must not duplicate.
        is_global = self._process_set is global_process_set
        own = {name: value for name, value in vars(self).items() if name != "_check"}
        return {**own, "_process_set": None if is_global else self._process_set}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._process_set is None:
            self._process_set = global_process_set
        self._check = make_check(self._prefix, self._process_set, contents_of, self._only_warns)

    def create_state(self, index: Any, weight: Any) -> Any:
        """Return the wrapped optimizer's state for a weight."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """Return the wrapped optimizer's state for a weight of float16."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Average the gradients over all ranks, and update the weights."""
        self._compare(index, weight)
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Average the gradients over all ranks, and update the weights and their float32 copies in the state."""
        self._compare(index, weight)
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate of the wrapped optimizer."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        """Set the multipliers of the learning rate of the wrapped optimizer."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        """Set the multipliers of the weight decay of the wrapped optimizer."""
        self._optimizer.set_wd_mult(args_wd_mult)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the wrapped optimizer."""
        return float(self._optimizer.learning_rate)

    def _compare(self, index: Any, weight: Any) -> None:
        """Before the first update of each weight: raise MismatchError on all ranks unless they have the same."""
        indices, weights = (index, weight) if isinstance(index, (tuple, list)) else ([index], [weight])
        names = getattr(self._optimizer, "idx2name", {})
        self._check.compare(
            [Parameter(key, str(names.get(key, key)), one) for key, one in zip(indices, weights, strict=True)]
        )

    def _reduce(self, index: Any, grad: Any) -> None:
        indices: Sequence[Any] = index if isinstance(index, (tuple, list)) else [index]
        gradients: Sequence[NDArray] = grad if isinstance(grad, (tuple, list)) else [grad]
        factors = factors_of(self._predivide)
        pairs = list(zip(indices, gradients, strict=True))
        for group in groups_of(pairs, self._num_groups, lambda pair: pair[1].dtype):
            name = f"{self._prefix}.{group[0][0]}"
            call = _calls.Call(name, self._process_set, -group[0][0] if _is_number(group) else 0, Average, *factors)
            reduce_([gradient for _, gradient in group], call)


def _is_number(group: Sequence[tuple[Any, NDArray]]) -> bool:
    return isinstance(group[0][0], int)
