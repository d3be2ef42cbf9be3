"""How an optimizer is made distributed: an instance of a class derived from the optimizer's own.

So `isinstance(optimizer, torch.optim.SGD)` stays true, and learning rate schedulers, `torch.amp.GradScaler`, hooks and
`state_dict()` work as with the wrapped one. The class is made on the fly, so pickles and copies name the wrapped
class and what was added to it.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import torch

from ciranda._basics import rank, world
from ciranda._frameworks.marks import is_distributed
from ciranda._frameworks.naming import name_of_added
from ciranda._frameworks.options import PREFIX, Options
from ciranda._frameworks.parameters import Parameter, ParameterCheck
from ciranda._ops import Handle, Max
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.torch import ops
from ciranda.torch.tensors import comparable, is_trained

Tensor = torch.Tensor
Item = TypeVar("Item", bound=Hashable)

_ADDED = "_ciranda_distribution"


class WrappedOptimizer(torch.optim.Optimizer):
    """What is common to all ways to distribute an optimizer."""

    #: What begins the message that the ranks' parameters differ, and what makes them the same.
    _who = PREFIX
    _remedy = "broadcast_parameters(model.state_dict(), root_rank=0)"

    def _distribute(self, options: Options, names: dict[Tensor, str], members: list[list[Tensor]]) -> None:
        """Begin to work: `names` of all parameters, `members` of each group of those that are trained."""
        self._options = options
        #: The names of all parameters, as Horovod calls them.
        self._parameter_names = names
        self._members: list[list[Tensor]] = []
        #: Whether this rank's work is combined with others' at all.
        self._takes_part = options.process_set.included() is not False
        #: The world in which all ranks were found to have the same number.
        self._numbered_in: int | None = None
        self._parameter_check = self._make_check(options, next(iter(names.values()), ""))
        grouped = {parameter for group in members for parameter in group}
        self._frozen = [each for each in names if each not in grouped and not is_distributed(each)]
        self._hooks: list[Any] = []
        weakref.finalize(self, _remove, self._hooks).atexit = False
        self._show(options)
        for group in members:
            self._add_group(group)

    def _show(self, options: Options) -> None:
        """Have the attributes of Horovod's optimizers, where the wrapped one has none of that name."""
        for name, value in (
            ("op", options.op),
            ("gradient_predivide_factor", options.predivide),
            ("sparse_as_dense", options.sparse_as_dense),
            ("process_set", options.process_set),
        ):
            if not hasattr(self, name):
                setattr(self, name, value)

    @staticmethod
    def find_duplicates(lst: Iterable[Item]) -> set[Item]:
        """Return what is in `lst` more than once; Horovod's optimizers have it."""
        return {each for each, count in Counter(lst).items() if count > 1}

    def _call_at_gradient(self, parameter: Tensor, hook: Callable[[Tensor], None]) -> None:
        """Call `hook` whenever a gradient of `parameter` has been accumulated, as long as there is this optimizer."""
        self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]

    def _make_check(self, options: Options, name: str) -> ParameterCheck:
        """Return the check that the ranks begin with the same parameters; `name`: that of the first."""
        return ParameterCheck(
            f"{PREFIX}.{name}",
            self._who,
            options.process_set,
            comparable,
            self._remedy,
            has_names=True,
            only_warn=options.only_warns,
        )

    def _compared(self) -> list[Tensor]:
        """Return the parameters that are to be the same on all ranks, also those that are not trained now."""
        return [each for each in self._parameter_names if not is_distributed(each)]

    def _start_to_compare(self) -> None:
        """Begin to check, if that is due, that the ranks begin with the same parameters."""
        if self._parameter_check.is_due:
            named = self._parameter_names
            self._parameter_check.start([Parameter(id(each), named[each], each) for each in self._compared()])

    def _compare_parameters(self) -> None:
        """Check, if that is due, that the ranks begin with the same parameters.

        Raises:
            MismatchError: on all ranks; they would train models of their own.
        """
        self._start_to_compare()
        self._parameter_check.finish()

    def _distribution(self) -> tuple[Any, ...]:
        """Return the arguments of _distribute()."""
        return self._options, self._parameter_names, self._members

    def _add_group(self, parameters: list[Tensor]) -> None:
        """Combine from now on what these parameters bring, together."""
        raise NotImplementedError

    def _adopt(self, thawed: Sequence[Tensor]) -> None:
        """Combine from now on what these parameters bring, which were frozen when they came to the optimizer."""
        if not thawed:
            return
        chosen = set(thawed)
        self._frozen = [parameter for parameter in self._frozen if parameter not in chosen]
        for parameter in thawed:
            self._add_group([parameter])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as torch.optim.Optimizer does; what they bring is combined too."""
        super().add_param_group(param_group)
        self._parameter_check.expect_more()
        for parameter in vars(self)["param_groups"][-1]["params"]:
            self._parameter_names[parameter] = name_of_added(self._parameter_names)
            if is_distributed(parameter):
                continue
            if is_trained(parameter):
                self._add_group([parameter])
            else:
                self._frozen.append(parameter)

    def _tell_number(self) -> Handle[Tensor] | None:
        """Start to tell the others, once in each world, how this rank has numbered what has no names."""
        number = self._options.number
        if number is None or self._numbered_in == world.epoch:
            return None
        mine = torch.tensor([number, number], device="cpu")
        mine[1] *= -1
        return ops.allreduce_async(mine, name=f"{PREFIX}.noname.number", op=Max, process_set=self._options.process_set)

    def _check_number(self, told: Handle[Tensor] | None) -> None:
        """Make sure that all ranks have the same number.

        Raises:
            MismatchError: on all ranks; else each would wait for gradients that the others know by other names.
        """
        if told is None:
            return
        most, number = told.wait(), self._options.number
        if number is not None and not torch.equal(most[0], -most[1]):
            raise MismatchError(
                f"a DistributedOptimizer without named_parameters is number {number.nth} of its process set on rank "
                f"{rank()}, counted from 0 in the order of wrapping, but another number on other ranks: a rank has "
                "wrapped one more. Give named_parameters, with names that differ between optimizers"
            )
        self._numbered_in = world.epoch

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


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()


def check_optimizer(optimizer: object, wrapper: str) -> None:
    """Raise InvalidArgumentError unless `optimizer` is one that `wrapper` can wrap."""
    if isinstance(optimizer, WrappedOptimizer):
        raise InvalidArgumentError(f"the optimizer is distributed already: give {wrapper} the plain one")
    if isinstance(optimizer, torch.nn.Module):
        raise InvalidArgumentError(
            f"{wrapper} wraps an optimizer, and the model stays as it is: give it for example "
            "torch.optim.SGD(model.parameters(), lr=0.1), and named_parameters=model.named_parameters(). For the ways "
            "of DistributedDataParallel see docs/guide/from_ddp.md"
        )
    if not hasattr(optimizer, "param_groups"):
        raise InvalidArgumentError(f"{wrapper} wraps an optimizer, as torch.optim.SGD(...), not {optimizer!r:.100}")


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
