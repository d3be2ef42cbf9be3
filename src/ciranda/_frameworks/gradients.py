"""The gradients of a step, combined over the ranks: the common part of all frameworks' optimizers and tapes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from ciranda import _line
from ciranda._basics import rank, world
from ciranda._frameworks.objects import allgather_object
from ciranda._frameworks.options import PREFIX, Options
from ciranda._frameworks.parameters import Parameter, ParameterCheck
from ciranda._ops import LogicalAnd, LogicalOr, Min
from ciranda.errors import InvalidArgumentError, MismatchError
from ciranda.numpy.ops import allreduce_async
from ciranda.process_sets import global_process_set, id_of

#: A number of groups, or the groups themselves, as lists of variables.
Groups = int | Sequence[Sequence[Any]] | None


class Operations(Protocol):
    """The functions of a framework that combining needs. Its module, `ciranda.torch` for example, has them."""

    def allreduce(self, tensor: Any, **how: Any) -> Any:
        """Combine a tensor over the ranks."""

    def grouped_allreduce(self, tensors: Sequence[Any], **how: Any) -> list[Any]:
        """Combine several tensors as one operation."""


def identity_of(variable: Any) -> int:
    """Return the identity of a variable, however a framework wraps it."""
    # One of tf.distribute, which may be within one of Keras, has a handle in replicas only: that of its first.
    of_replica = getattr(getattr(variable, "_value", variable), "_primary", variable)
    return id(getattr(of_replica, "handle", of_replica))


def _parameter(variable: Any) -> Parameter:
    """Return a variable as a parameter to compare."""
    if not hasattr(variable, _KEY):
        setattr(variable, _KEY, object())
    return Parameter(getattr(variable, _KEY), getattr(variable, "path", None) or variable.name, variable)


def check_groups(groups: Groups, num_groups: int = 0) -> Groups:
    """Return the groups that the two arguments select: `num_groups` is the older one.

    Raises:
        InvalidArgumentError: `groups` is neither None, nor a number from 1, nor a list of lists.
    """
    if num_groups:
        warnings.warn("the argument `num_groups` is deprecated: use `groups`", DeprecationWarning, stacklevel=3)
    chosen = (num_groups or None) if groups is None else groups
    if isinstance(chosen, bool) or not (chosen is None or isinstance(chosen, (int, list, tuple))):
        raise InvalidArgumentError(f"groups must be a number or a list of lists of variables, not {chosen!r}")
    if isinstance(chosen, int) and chosen < 1:
        raise InvalidArgumentError(f"groups must be at least 1, or a list of lists of variables; got {chosen}")
    if isinstance(chosen, (list, tuple)) and not all(isinstance(group, (list, tuple)) for group in chosen):
        raise InvalidArgumentError("groups must be a number, or a list of lists of variables")
    return chosen


#: See GradientCombiner.
After = Callable[[Callable[[Any], Any], Any], Any]

#: How long to look at one of several calls of which any may end first, in seconds.
_LOOK = 0.001

#: Of a rank that has no gradients to combine: none is a bool, so that ranks that have some find out.
_NOTHING = np.array(False)

#: Checks that the variables of gradients are the same on all ranks, and returns the gradients. In a program that is
#: traced it adds that to the program, which must not make the step before.
Compare = Callable[[ParameterCheck, list[Parameter], list[Any]], list[Any]]

#: Of a variable: an object that stands for it, however long the variable lives.
_KEY = "_ciranda_key"

#: Of a variable that a tape leaves to each rank: the combiner that does.
_KEPT_BY = "_ciranda_kept_by"


def combiner_that_keeps(variables: Iterable[Any]) -> GradientCombiner | None:
    """Return the combiner that was last set to keep one of these local, or None."""
    found = (getattr(variable, _KEPT_BY, None) for variable in variables)
    return next((combiner for combiner in found if combiner is not None), None)


class GradientCombiner:
    """Combines the gradients of variables over the ranks of a process set.

    Args:
        operations: returns the framework's operations; called on first use.
        name: distinguishes these gradients from others; the same on all ranks. None leaves that to the operations.
        options: how to combine. If it has a number, that is part of the name, and the ranks check that it is equal.
        groups: the gradients that are combined together; by default all of a step.
        divided_by_size: divides a gradient by the number of ranks.
        prepared: returns, for a gradient and its variable, the tensor to combine.
        check: of the variables; all combiners of the same variables have the same. None: there is none.
        compare: how; see Compare.
        after: calls its argument, with a bool of the framework, and returns a gradient that is not used before that is
            done. With it, a rank whose gradients are all local takes part, so that ranks with gradients to combine fail
            at once. Without it, it does not.
    """

    def __init__(
        self,
        operations: Callable[[], Operations],
        name: str | None,
        options: Options,
        groups: Groups = None,
        divided_by_size: Callable[[Any], Any] | None = None,
        prepared: Callable[[Any, Any], Any] = lambda gradient, variable: gradient,
        after: After | None = None,
        check: ParameterCheck | None = None,
        compare: Compare | None = None,
    ) -> None:
        self._check, self._compare = check, compare
        self._operations = operations
        self._name = None if name is None else options.numbered(name)
        self._options = options
        #: The world in which all ranks were found to have the same number.
        self._numbered_in: int | None = None
        self._groups = groups
        self._divided_by_size = divided_by_size or self._divided_now
        self._prepared = prepared
        self._after = after
        self._n_groups = 1
        self._local: dict[int, Any] = {}

    def keep_local(self, variable: Any) -> None:
        """Keep the gradient of `variable` local: it is not combined."""
        self._local[identity_of(variable)] = variable  # kept, so that no other gets its identity

    def keep_local_for_others(self, variable: Any) -> None:
        """The same, if the optimizer of the gradients does not have this combiner: see `combiner_that_keeps()`."""
        self.keep_local(variable)
        if hasattr(variable, "assign"):
            setattr(variable, _KEPT_BY, self)

    def is_local(self, variable: Any) -> bool:
        """Whether the gradient of `variable` is not combined."""
        return identity_of(variable) in self._local

    @property
    def is_of_all_in_every_step(self) -> bool:
        """Whether all ranks combine gradients in every step."""
        return self._options.passes == 1 and id_of(self._options.process_set) == id_of(global_process_set)

    def compared(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return the gradients, after a check that the ranks have the same variables, which no step has changed yet.

        The check is made in the second step, as scripts that follow Horovod's examples broadcast after the first.

        Raises:
            MismatchError: on all ranks; they would train models of their own.
        """
        if self._check is None or self._compare is None or self._options.process_set.included() is False:
            return list(gradients)
        self._check_number()
        shared = [each for each in variables if hasattr(each, "assign") and not self.is_local(each)]
        return self._compare(self._check, [_parameter(each) for each in shared], list(gradients))

    def combined(
        self, gradients: Sequence[Any], variables: Sequence[Any], scale: float = 1.0, has_stepped: bool = False
    ) -> list[Any]:
        """Return the combined gradients of all ranks; None stays None.

        Args:
            gradients: one for each of `variables`.
            variables: those of the gradients.
            scale: multiplies the combined gradients.
            has_stepped: whether the variables have been changed by this rank's step.

        Raises:
            MismatchError: as compared(), unless `has_stepped`.
        """
        if self._options.process_set.included() is False:
            return [self._scaled(gradient, scale) for gradient in gradients]
        self._check_number()
        if not has_stepped:
            gradients = self.compared(gradients, variables)
        results = list(gradients)
        shared = []
        for index, gradient in enumerate(gradients):
            if gradient is None:
                continue
            if self.is_local(variables[index]):
                results[index] = self._scaled(self._own(gradient), scale)
            else:
                shared.append(index)
        groups = self._grouped(shared, variables)
        self._n_groups = max(len(groups), 1)
        for number, members in enumerate(groups):
            prepared = [self._prepared(gradients[index], variables[index]) for index in members]
            reduced = self._reduce(prepared, number, scale)
            for index, gradient in zip(members, reduced, strict=True):
                results[index] = gradient
        kept = next((index for index, gradient in enumerate(results) if gradient is not None), None)
        if self._after is not None and not shared and kept is not None:
            results[kept] = self._after(self._come_with_nothing, results[kept])
        return results

    def meet_without(self, doing: str) -> None:
        """Check that no rank waits for gradients of this one, which has none for now. A collective.

        Args:
            doing: what this rank does instead, for the others' error if gradients have not been combined before.

        Raises:
            MismatchError: some ranks combine gradients instead, which fails for them, too.
        """
        if self._options.process_set.included() is False:
            return
        self._check_number(doing)
        how: Any = {"op": LogicalOr, "process_set": self._options.process_set}
        # All at once, and whichever fails first: of a graph's calls, others wait for some, and never make some.
        names = [self._named(nth) for nth in range(self._n_groups)]
        if self._check is not None and self._check.is_due:
            names.append(self._check.name)
        waiting = [allreduce_async(_NOTHING, name=name, **how) for name in names]
        while waiting:
            for handle in [handle for handle in waiting if handle.is_done_within(_LOOK)]:
                waiting.remove(handle)
                handle.wait()

    def _come_with_nothing(self, nothing: Any) -> list[Any]:
        """Take part in combining the gradients of others, of which this rank has none."""
        groups = self._groups
        n_groups = 1 if groups is None else groups if isinstance(groups, int) else len(groups)
        how: Any = {"op": LogicalAnd, "process_set": self._options.process_set}
        return [self._operations().allreduce(nothing, name=self._named(nth), **how) for nth in range(n_groups)]

    def least(self, flag: Any) -> Any:
        """Return the least of all ranks' `flag`, a scalar."""
        if self._options.process_set.included() is False:
            return flag
        self._check_number()
        return self._operations().allreduce(
            flag, op=Min, name=self._named("least"), process_set=self._options.process_set
        )

    def _check_number(self, doing: str = "combines gradients") -> None:
        """Check, once in each world, that all ranks have numbered their optimizers alike, and do the same with them.

        Raises:
            MismatchError: on all ranks; otherwise each would wait for gradients with other names on the others.
        """
        number = self._options.number
        if number is None or self._numbered_in == world.epoch:
            return
        if _line.line() is not None:
            return  # a process that joins traces its program; those that have compiled theirs do not meet it here
        mine = (rank(), number, doing)
        told = allgather_object(mine, f"{PREFIX}.noname.number", self._options.process_set)
        other = next((each for each in told if each[2] != doing), None)
        if other is not None:
            raise MismatchError(
                f"rank {mine[0]} {doing}, but rank {other[0]} {other[2]}: their programs differ. Give fit() the same "
                "callbacks, in the same order, on all ranks"
            )
        if any(each[1] != number for each in told):
            raise MismatchError(
                f"a DistributedOptimizer without a name is number {number.nth} of its process set on rank {rank()}, "
                "counted from 0 in the order of wrapping, but another number on other ranks: a rank has wrapped one "
                "more. Give the argument name, other ones to other optimizers"
            )
        self._numbered_in = world.epoch

    def _named(self, suffix: object) -> str | None:
        return None if self._name is None else f"{self._name}.{suffix}"

    def _own(self, gradient: Any) -> Any:
        return self._divided_by_size(gradient) if self._options.scale_local else gradient

    def _divided_now(self, gradient: Any) -> Any:
        return gradient / self._options.process_set.size()

    @staticmethod
    def _scaled(gradient: Any, scale: float) -> Any:
        return gradient if gradient is None or scale == 1.0 else gradient * scale

    def _reduce(self, gradients: list[Any], number: int, scale: float) -> list[Any]:
        options = self._options
        prescale, postscale = options.factors(options.op)
        return self._operations().grouped_allreduce(
            gradients,
            op=options.op,
            name=self._named(number),
            compression=options.compression,
            prescale_factor=prescale,
            postscale_factor=postscale * scale,
            process_set=options.process_set,
            divisor=options.divisor_of_any,
        )

    def _grouped(self, indices: list[int], variables: Sequence[Any]) -> list[list[int]]:
        """Divide the positions of gradients into groups that are combined together."""
        if self._groups is None:
            return [indices] if indices else []
        if isinstance(self._groups, int):
            n_groups = min(self._groups, len(indices))
            bounds = [len(indices) * place // n_groups for place in range(n_groups + 1)] if n_groups else []
            return [indices[start:end] for start, end in pairwise(bounds)]
        left = {identity_of(variables[index]): index for index in indices}
        chosen = [[left.pop(key) for key in map(identity_of, group) if key in left] for group in self._groups]
        return [group for group in chosen if group] + [[index] for index in left.values()]
