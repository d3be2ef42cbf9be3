"""How an optimizer is made distributed: an instance of a class derived from the optimizer's own.

So `isinstance(optimizer, torch.optim.SGD)` stays true, and learning rate schedulers, `torch.amp.GradScaler`, hooks and
`state_dict()` work as with the wrapped one. The class is made on the fly, so pickles and copies name the wrapped
class and what was added to it.
"""

from __future__ import annotations

from typing import Any

import torch

from ciranda.torch.gradients import Options

Tensor = torch.Tensor

_ADDED = "_ciranda_distribution"


class WrappedOptimizer(torch.optim.Optimizer):
    """What is common to all ways to distribute an optimizer."""

    def _distribute(self, options: Options, names: dict[Tensor, str], members: list[list[Tensor]]) -> None:
        """Begin to work: `names` of all parameters, `members` of each group of those that are trained."""
        raise NotImplementedError

    def _distribution(self) -> tuple[Any, ...]:
        """Return the arguments of _distribute()."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        added, wrapped = type(self).__bases__
        return _new, (added, wrapped), self.__getstate__()

    # copy.copy(), copy.deepcopy() and pickle would otherwise find torch's own.
    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return self.__reduce__()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), _ADDED: self._distribution()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # load_state_dict() calls this too, with a part of the state.
        distribution = state.get(_ADDED)
        super().__setstate__({key: value for key, value in state.items() if key != _ADDED})
        if distribution is not None:
            self._distribute(*distribution)


def _new(added: type[WrappedOptimizer], wrapped: type[torch.optim.Optimizer]) -> Any:
    derived: Any = type(
        wrapped.__name__, (added, wrapped), {"__module__": wrapped.__module__, "__doc__": wrapped.__doc__}
    )
    return derived.__new__(derived)


def wrap(
    optimizer: torch.optim.Optimizer,
    added: type[WrappedOptimizer],
    options: Options,
    names: dict[Tensor, str],
    members: list[list[Tensor]],
) -> Any:
    """Return `optimizer` with the methods of `added`: its class, state and parameter groups are taken over."""
    distributed = _new(added, type(optimizer))
    # Everything but a step() that a scheduler has put on the instance: it would hide ours.
    distributed.__dict__.update({key: value for key, value in vars(optimizer).items() if key != "step"})
    distributed._distribute(options, names, members)
    return distributed
