"""DistributedOptimizer: an optimizer of Paddle whose gradients are those of all ranks, in programs and in dygraph."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import paddle

from ciranda._frameworks.marks import is_distributed
from ciranda._frameworks.options import check_factor
from ciranda._ops import Average, Sum
from ciranda.errors import InvalidArgumentError
from ciranda.paddle.comparing import compare_in
from ciranda.paddle.compression import BF16Compressor, Compressor, FP16Compressor, NoneCompressor
from ciranda.paddle.eager import EagerGradients, flat
from ciranda.paddle.opening import open_program
from ciranda.paddle.rewriting import BUCKET_MB, LAZY, Combining, Pair, combine, is_own, lazy_error

_WIRES: dict[type[Compressor], Any] = {
    NoneCompressor: None,
    FP16Compressor: paddle.float16,
    BF16Compressor: paddle.bfloat16,
}


class DistributedOptimizer:
    """An optimizer that combines the gradients of all ranks before it applies them.

    Use it as the one that it wraps: `minimize()`, or `backward()` and `apply_gradients()`, in programs of either IR;
    `step()` in dygraph, where the reduction of gradients starts during the backward pass. Clipping, regularization and
    loss scaling see the combined gradients. All else is the wrapped optimizer's, by `__getattr__`.

    Args:
        optimizer: of Paddle. In dygraph, with its parameters.
        nrings: the number of lanes over which buckets are distributed round-robin, 1 to 16.
        bucket_mb: the largest MiB of gradients in one operation; 0: each alone.
        op: Average (the default) or Sum.
        gradient_predivide_factor: with op=Average: divides the gradients by this before they are summed, and by size()
            over this afterwards. Both are done by the engine.
        compression: Compression.none, Compression.fp16 or Compression.bf16.
        distributed: names of parameters whose gradients stay local; also those with the attribute `is_distributed`.
        name: distinguishes this optimizer's calls from those of others; the same on all ranks.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """

    def __init__(
        self,
        optimizer: Any,
        nrings: int = 2,
        bucket_mb: float = BUCKET_MB,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        compression: type[Compressor] = NoneCompressor,
        distributed: Collection[str] = (),
        name: str = "DistributedOptimizer",
    ) -> None:
        check_factor(gradient_predivide_factor, op)
        if op not in (Average, Sum):
            raise InvalidArgumentError("DistributedOptimizer combines gradients with op=Average or op=Sum")
        if compression not in _WIRES:
            raise InvalidArgumentError("compression must be Compression.none, Compression.fp16 or Compression.bf16")
        factors = (1.0 / gradient_predivide_factor, gradient_predivide_factor) if op == Average else (1.0, 1.0)
        self._optimizer = optimizer
        self._combining = Combining(op, *factors, prefix=name, wire=_WIRES[compression])
        self._nrings, self._bucket_mb = nrings, bucket_mb
        self._distributed = frozenset(distributed)
        self._gradients: EagerGradients | None = None
        if paddle.in_dynamic_mode():
            self._check_clipping(optimizer._parameter_list)
            self._gradients = EagerGradients(
                optimizer._parameter_list, self._combining, nrings, bucket_mb, self._distributed, self._is_lazy
            )

    def __getattr__(self, name: str) -> Any:
        if name == "_optimizer":  # not set yet
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    @property
    def _inner(self) -> Any:
        """The optimizer within that of `paddle.static.amp.decorate()`."""
        return getattr(self._optimizer, "_optimizer", self._optimizer)

    @property
    def _is_lazy(self) -> bool:
        """Whether it updates only the rows of sparse gradients."""
        return bool(getattr(self._inner, f"_{LAZY}", False))

    def _check_clipping(self, parameters: Iterable[Any] | None) -> None:
        """Raise InvalidArgumentError if local gradients are part of the norm of all: it would differ between ranks."""
        if not isinstance(getattr(self._inner, "_grad_clip", None), paddle.nn.ClipGradByGlobalNorm):
            return
        for each in flat(parameters):
            if (is_distributed(each) or each.name in self._distributed) and getattr(each, "need_clip", True):
                raise InvalidArgumentError(
                    f"the gradient of {each.name}, which is each rank's own, would be part of the norm by which all "
                    "ranks' gradients are clipped: leave the parameter out (need_clip=False)"
                )

    def _check_loss_scaling(self, pairs: Iterable[Pair]) -> None:
        """Raise InvalidArgumentError if loss scaling checks local gradients, which only some ranks may find finite."""
        amp = self._optimizer
        if not getattr(amp, "_use_dynamic_loss_scaling", False) and getattr(amp, "_init_loss_scaling", 1.0) == 1.0:
            return
        for pair in pairs:
            if is_own(pair, self._distributed):
                raise InvalidArgumentError(
                    f"the gradient of {pair.name}, which is each rank's own, would be part of what loss scaling finds "
                    "finite: train it without loss scaling"
                )

    # --- programs

    def backward(
        self, loss: Any, startup_program: Any = None, parameters: Any = None, no_grad_set: Any = None, **more: Any
    ) -> list[tuple[Any, Any]]:
        """Return pairs of parameter and combined gradient; in programs, insert the collectives.

        At the end of the startup program all ranks then receive rank 0's parameters.
        """
        found = self._optimizer.backward(loss, startup_program, parameters, no_grad_set, **more)
        if self._gradients is not None:
            self._gradients.synchronize()
            return [(parameter, parameter.grad) for parameter, _ in found]
        program = loss.block.program
        startup = startup_program or paddle.static.default_startup_program()
        rewritten = open_program(program)
        pairs = [Pair(parameter.name, parameter, gradient) for parameter, gradient in found if gradient is not None]
        self._check_clipping([pair.parameter for pair in pairs])
        self._check_loss_scaling(pairs)
        if not pairs:
            raise InvalidArgumentError("the program has no gradients: no parameter of it is trained by this loss")
        for pair in pairs if self._is_lazy else []:
            if rewritten.is_sparse(pair) and not is_own(pair, self._distributed):
                raise lazy_error(pair.name)
        combine(rewritten, pairs, self._combining, self._nrings, self._bucket_mb, self._distributed)
        compare_in(rewritten, pairs, self._combining.prefix, self._distributed)
        rewritten.broadcast_startup(startup, self._distributed)
        return [(pair.parameter, rewritten.current(pair)) for pair in pairs]

    def minimize(
        self, loss: Any, startup_program: Any = None, parameters: Any = None, no_grad_set: Any = None
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        """Compute the gradients, combine and apply them, as the wrapped optimizer's `minimize()`."""
        if self._gradients is not None:
            self._gradients.synchronize()
            result: tuple[Any, list[tuple[Any, Any]]] = self._optimizer.minimize(
                loss, startup_program, parameters, no_grad_set
            )
            return result
        pairs = self.backward(loss, startup_program, parameters, no_grad_set)
        with paddle.static.program_guard(loss.block.program, startup_program):
            return self._optimizer.apply_gradients(pairs), pairs

    # --- dygraph

    def _eager(self, what: str) -> EagerGradients:
        if self._gradients is None:
            raise InvalidArgumentError(f"{what} is for dygraph; this optimizer was wrapped while programs are written")
        return self._gradients

    def synchronize(self) -> None:
        """Wait until all gradients are combined, for changes before `step()`. Every rank must call it."""
        self._eager("synchronize()").synchronize()

    def no_sync(self) -> Any:
        """Return a context in which backward passes accumulate gradients on this rank, and combine nothing."""
        return self._eager("no_sync()").no_sync()

    def step(self) -> None:
        """Combine the gradients, unless `synchronize()` has, and make the wrapped optimizer's step."""
        gradients = self._eager("step()")
        gradients.synchronize()
        self._optimizer.step()
        gradients.begin_step()

    def clear_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clear the gradients. Raises AssertionError while they are being combined."""
        if self._gradients is not None:
            self._gradients.check_idle("clear_grad()")
        self._optimizer.clear_grad(*args, **kwargs)

    clear_gradients = clear_grad

    @property
    def _parameter_list(self) -> Any:
        """The parameters. GradScaler reads them before it unscales their gradients, which must be combined first."""
        if self._gradients is not None and self._gradients.has_started:
            self._gradients.synchronize()
        return self._optimizer._parameter_list
