"""The collectives on NumPy arrays, with the arguments of allreduce and reducescatter in NumPy's order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from ciranda._collectives import Collectives
from ciranda._collectives.rules import Reduction
from ciranda._ops import ALLREDUCE, Average, Divisor, Handle, choose_op
from ciranda.numpy.arrays import ADAPTER, Array
from ciranda.process_sets import ProcessSet, global_process_set


class NumpyCollectives(Collectives[npt.ArrayLike, Array, npt.ArrayLike]):
    """The collectives, with the arguments of allreduce and reducescatter in NumPy's order."""

    def allreduce(
        self,
        tensor: npt.ArrayLike,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        weight: float | None = None,
        divisor: Divisor = "contributors",
    ) -> Array:
        """Combine `tensor` over all ranks, element by element; every rank gets the same new tensor.

        Args:
            tensor: the same shape and dtype on every rank.
            average: deprecated, use `op`.
            name: see the module.
            op: Average (the default), Sum, Min, Max or Product; BitwiseAnd, BitwiseOr or BitwiseXor of integers;
                LogicalAnd, LogicalOr or LogicalXor of bool; Adasum (adaptive summation, Maleki et al., 2021) of
                floating-point types, each tensor a vector of its own. Integer averages round toward zero.
            prescale_factor: multiplies every input before they are combined.
            postscale_factor: multiplies the result.
            process_set: the ranks that take part; all, if not given.
            weight: this rank's weight, 0 or more, in a weighted average: the sum of weight * tensor over the sum of the
                weights. Ranks may differ in it, and calls too. Only with op=Average, of floating-point or complex
                types.
            divisor: the divisor of an average while some ranks have joined: "contributors", the number of ranks that
                take part; or "world", that of all ranks of the process set, as if the others contributed zeros.
        """
        if op is None or average is not None:
            op = choose_op(op, average)
        return self._reduced(
            ALLREDUCE, tensor, name, op, prescale_factor, postscale_factor, process_set, weight, divisor
        )

    def grouped_allreduce(
        self,
        tensors: Sequence[npt.ArrayLike],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        weight: float | None = None,
        divisor: Divisor = "contributors",
    ) -> list[Array]:
        """`allreduce()` of several arrays as one operation: all or none. They may differ in shape and dtype."""
        chosen = choose_op(op, average)
        return self._awaited.grouped_allreduce_async(
            tensors, None, name, chosen, prescale_factor, postscale_factor, process_set, weight, divisor
        ).wait()

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[npt.ArrayLike],
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
        outputs: Sequence[Array] | None = None,
    ) -> Handle[list[Array]]:
        """Start `grouped_reducescatter()`. `synchronize(handle)` returns the list of results."""
        call = Reduction(op, prescale_factor, postscale_factor, process_set, None, divisor)
        return self._start_reducescatters(tensors, name, call, outputs)

    def grouped_reducescatter(
        self,
        tensors: Sequence[npt.ArrayLike],
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
        outputs: Sequence[Array] | None = None,
    ) -> list[Array]:
        """`reducescatter()` of several arrays as one operation: all or none. They may differ in shape and dtype.

        `outputs`, if given, has an array for each, and is returned.
        """
        call = Reduction(op, prescale_factor, postscale_factor, process_set, None, divisor)
        return self._awaited._start_reducescatters(tensors, name, call, outputs).wait()

    def reducescatter_async(
        self,
        tensor: npt.ArrayLike,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
        output: Array | None = None,
    ) -> Handle[Array]:
        """Start `reducescatter()`. `synchronize(handle)` returns the result.

        Before that do not write to `tensor`, and neither read nor write `output`.
        """
        call = Reduction(op, prescale_factor, postscale_factor, process_set, None, divisor)
        outputs = None if output is None else [output]
        return self._start_reducescatters([tensor], name, call, outputs).then(lambda results: results[0])

    def reducescatter(
        self,
        tensor: npt.ArrayLike,
        op: int = Average,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
        output: Array | None = None,
    ) -> Array:
        """Combine `tensor` over all ranks, element by element, and return this rank's share of the rows.

        The rows (along dimension 0) are distributed in rank order: the same number to each rank, and one more to each
        of the first `rows mod size()`. They are bit for bit the rows of an `allreduce()`.

        Args:
            tensor: the same shape and dtype on every rank, with at least one dimension.
            op: Average (the default), or any other that `allreduce()` takes.
            name: see the module.
            process_set: the ranks that take part; all, if not given.
            prescale_factor: multiplies every input before they are combined.
            postscale_factor: multiplies the result.
            divisor: of an average, as for `allreduce()`.
            output: an array of the shape and dtype of the result; the result is written to it, and it is returned. By
                default a new one. It must not overlap `tensor`. Some ranks may give one and others not.

        Raises:
            InvalidArgumentError: `output` has another shape or dtype, is read-only, or overlaps `tensor`.
        """
        return self._reducescatter(tensor, name, op, process_set, prescale_factor, postscale_factor, divisor, output)


collectives = NumpyCollectives(ADAPTER)
