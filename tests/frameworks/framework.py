"""What the conformance suite has to know of a framework: how to make, read and differentiate a tensor.

A framework NAME is added by a file `on_NAME.py` with a class `Adapter(Framework)`; ranks and pytest import it by its
name. All else has a default here, for modules whose functions have Horovod's names and return handles.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import ciranda
from ciranda.errors import CirandaError

Array = npt.NDArray[Any]

DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@dataclass(frozen=True)
class Call:
    """One call of this rank: `function` of the framework, in which form, on these tensors.

    `form` is "single", "grouped" or "in place"; in place is of one tensor.
    """

    function: str
    form: str
    tensors: Sequence[Any]
    options: dict[str, Any] = field(default_factory=dict)


class Framework:
    """A framework with the functions of Horovod in the module `ops`."""

    #: The package that must be installed; None: what every environment of the suite has.
    package: str | None = None
    #: Has the functions, `allreduce`, `allreduce_async`, ...; what it lacks is not tested.
    ops: Any
    dtypes: tuple[str, ...] = DTYPES
    has_gradients = False

    def make(self, array: Array) -> Any:
        """Return a new tensor of that content, which shares no memory with it."""
        raise NotImplementedError

    def read(self, tensor: Any) -> Array:
        """Return the content of a tensor."""
        raise NotImplementedError

    def gradients(
        self,
        function: Callable[[list[Any]], list[Any]],
        inputs: Sequence[Array],
        weigh: Callable[[tuple[int, ...]], Array],
    ) -> list[Array]:
        """Return what each input gets in the backward pass of the sum of weigh(shape of the result) * result."""
        raise NotImplementedError

    def compiled(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return `function` of one tensor as a program that is made once: a graph, what a jit makes, a closure."""
        return function

    def elsewhere(self) -> Any | None:
        """Return a tensor on a device that is not there or not supported; None where there is no such thing."""
        return None

    def finish(self) -> None:
        """Wait until the device has done what it was given."""

    def live_calls(self) -> int:
        """How many calls of the binding's native part have not ended."""
        return 0

    def version(self) -> str:
        return str(importlib.import_module(self.package).__version__) if self.package else ciranda.__version__

    def kind_of(self, error: BaseException) -> str:
        """Return the kind of a failure: "InvalidArgument", "Mismatch", ... Anything else is raised again."""
        if not isinstance(error, CirandaError):
            raise error
        return "InvalidArgument" if isinstance(error, ValueError) else type(error).__name__.removesuffix("Error")

    def message_of(self, error: BaseException) -> str:
        """Return what the engine says of a failure, the same on all ranks."""
        return str(error)

    # --- how calls are made, where functions return handles

    def has(self, function: str) -> bool:
        return hasattr(self.ops, function)

    def together(self, calls: Sequence[Call]) -> list[list[Any]]:
        """Make the calls in this order, so that none waits for another; return the results of each."""
        handles = [self._start(call) for call in calls]
        return [results_of(self.ops.synchronize(handle)) for handle in handles]

    def blocking(self, call: Call) -> list[Any]:
        """Make one call and wait for it."""
        return results_of(getattr(self.ops, self._name(call))(*self._arguments(call), **call.options))

    def _start(self, call: Call) -> Any:
        name = f"grouped_{call.function}" if call.form == "grouped" else call.function
        start = getattr(self.ops, f"{name}_async{'_' if call.form == 'in place' else ''}")
        return start(*self._arguments(call), **call.options)

    def _name(self, call: Call) -> str:
        return {"grouped": f"grouped_{call.function}", "in place": f"{call.function}_"}.get(call.form, call.function)

    def _arguments(self, call: Call) -> list[Any]:
        return [call.tensors] if call.form == "grouped" else list(call.tensors)


def results_of(result: Any) -> list[Any]:
    """Return the tensors of a result: none, one, or those of a group. Of an alltoall, without the received splits."""
    if result is None:
        return []
    if isinstance(result, list):
        return [tensor for each in result for tensor in results_of(each)]
    return [result[0]] if isinstance(result, tuple) else [result]


def load(name: str) -> Framework:
    """Return the framework of that name. Raises ImportError, or what its import raises."""
    adapter: Framework = importlib.import_module(f"on_{name}").Adapter()
    return adapter


def all_names() -> list[str]:
    return sorted(path.stem.removeprefix("on_") for path in Path(__file__).parent.glob("on_*.py"))
