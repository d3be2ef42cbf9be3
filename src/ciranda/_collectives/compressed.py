"""Reductions with compression, with the signatures of `horovod.torch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ciranda._collectives import rules
from ciranda._collectives.adapter import Given, Splits, Tensor
from ciranda._collectives.collectives import Collectives
from ciranda._frameworks.compression import Compressor, NoneCompressor
from ciranda._ops import ALLREDUCE, Average, Divisor, Handle, choose_op
from ciranda.errors import InvalidArgumentError
from ciranda.process_sets import ProcessSet, global_process_set


class CompressedCollectives(Collectives[Given, Tensor, Splits]):
    """The collectives, with a blocking allreduce and reducescatter that compress."""

    def allreduce(
        self,
        tensor: Given,
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        weight: float | None = None,
        divisor: Divisor = "contributors",
    ) -> Tensor:
        """Combine `tensor` over all ranks, element by element; every rank gets the same new tensor.

        Args:
            tensor: the same shape and dtype on every rank.
            average: deprecated, use `op`.
            name: see the module.
            compression: the compressor, as Compression.none or Compression.fp16 or a class of your own.
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
        chosen = choose_op(op, average)
        compressed, context = compression.compress(tensor)
        if self._is_recorded((compressed,)):
            call = rules.Reduction(chosen, prescale_factor, postscale_factor, process_set, weight, divisor)
            reduced = self._grouped_allreduce([compressed], name, call)[0]
        else:
            reduced = self._reduced(
                ALLREDUCE, compressed, name, chosen, prescale_factor, postscale_factor, process_set, weight, divisor
            )
        return compression.decompress(reduced, context)  # type: ignore[no-any-return]

    def grouped_allreduce(
        self,
        tensors: Sequence[Given],
        average: bool | None = None,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        weight: float | None = None,
        divisor: Divisor = "contributors",
    ) -> list[Tensor]:
        """`allreduce()` of several tensors as one operation: all or none. They may differ in shape and dtype."""
        chosen = choose_op(op, average)
        call = rules.Reduction(chosen, prescale_factor, postscale_factor, process_set, weight, divisor)
        compressed, contexts = _compressed(compression, tensors)
        return _decompressed(compression, self._grouped_allreduce(compressed, name, call), contexts)

    # --- reducescatter

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[Given],
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
        outputs: Sequence[Tensor] | None = None,
    ) -> Handle[list[Tensor]]:
        """Start `grouped_reducescatter()`. `synchronize(handle)` returns the list of results."""
        call = rules.Reduction(op, prescale_factor, postscale_factor, process_set, None, divisor)
        return self._start_reducescatters(tensors, name, call, outputs)

    def grouped_reducescatter(
        self,
        tensors: Sequence[Given],
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
    ) -> list[Tensor]:
        """`reducescatter()` of several tensors as one operation: all or none. They may differ in shape and dtype."""
        call = rules.Reduction(op, prescale_factor, postscale_factor, process_set, None, divisor)
        compressed, contexts = _compressed(compression, tensors)
        if self._is_recorded(compressed):
            results = self._recorded(rules.Reducescatter(self, name, call), compressed)
        else:
            results = self._awaited._start_reducescatters(compressed, name, call, None).wait()
        return _decompressed(compression, results, contexts)

    def reducescatter_async(
        self,
        tensor: Given,
        name: str | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
        output: Tensor | None = None,
    ) -> Handle[Tensor]:
        """Start `reducescatter()`. `synchronize(handle)` returns the result.

        Before that do not write to `tensor`, and neither read nor write `output`, which has no gradient.
        """
        call = rules.Reduction(op, prescale_factor, postscale_factor, process_set, None, divisor)
        outputs = None if output is None else [output]
        return self._start_reducescatters([tensor], name, call, outputs).then(lambda results: results[0])

    def reducescatter(
        self,
        tensor: Given,
        name: str | None = None,
        compression: type[Compressor] = NoneCompressor,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        divisor: Divisor = "contributors",
        output: Tensor | None = None,
    ) -> Tensor:
        """Combine `tensor` over all ranks, element by element, and return this rank's share of the rows.

        The rows (along dimension 0) are distributed in rank order: the same number to each rank, and one more to each
        of the first `rows mod size()`. They are bit for bit the rows of an `allreduce()`.

        Args:
            tensor: the same shape and dtype on every rank, with at least one dimension.
            name: see the module.
            compression: the compressor, as Compression.none or Compression.fp16 or a class of your own.
            op: Average (the default), or any other that `allreduce()` takes. Average and Sum have a gradient: every
                rank's gradient of its share, joined in rank order and scaled by both factors, and for Sum by size().
            process_set: the ranks that take part; all, if not given.
            prescale_factor: multiplies every input before they are combined.
            postscale_factor: multiplies the result.
            divisor: of an average, as for `allreduce()`.
            output: a tensor of the shape and dtype of the result; the result is written to it, and it is returned. By
                default a new one. It has no gradient.

        Raises:
            InvalidArgumentError: `output` has another shape or dtype, or overlaps `tensor`, or is given together with a
                compression or a `tensor` that needs a gradient.
        """
        is_plain = compression is NoneCompressor and not self._is_recorded(
            (tensor,) if output is None else (tensor, output)
        )
        factors = (prescale_factor, postscale_factor)
        if is_plain:
            return self._reducescatter(tensor, name, op, process_set, *factors, divisor, output)
        if output is not None:
            raise InvalidArgumentError(
                "a reducescatter into an output has neither compression nor gradient; detach first"
            )
        return self.grouped_reducescatter([tensor], name, compression, op, process_set, *factors, divisor)[0]


def _compressed(compression: type[Compressor], tensors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the tensors to send, and the contexts to decompress them with."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    return [tensor for tensor, _ in pairs], [context for _, context in pairs]


def _decompressed(compression: type[Compressor], results: Sequence[Any], contexts: Sequence[Any]) -> list[Any]:
    return [compression.decompress(*pair) for pair in zip(results, contexts, strict=True)]
