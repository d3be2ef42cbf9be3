"""The check that all ranks begin to train with the same parameters."""

from __future__ import annotations

from typing import Any

from mxnet.ndarray import NDArray

from ciranda._frameworks.parameters import Contents, Describe, ParameterCheck
from ciranda.numpy.arrays import for_engine
from ciranda.process_sets import ProcessSet

_REMEDY = "broadcast_parameters(params, root_rank=0), with net.collect_params() or those of module.get_params(),"


def make_check(name: str, process_set: ProcessSet, describe: Describe, only_warns: bool) -> ParameterCheck:
    """Return the check of a trainer's or an optimizer's parameters; `name`: that of its calls."""
    return ParameterCheck(name, name.partition(".")[0], process_set, describe, _REMEDY, only_warn=only_warns)


def contents_of(data: NDArray) -> Contents:
    """Return what ranks compare of an array. Waits for the operations that write it."""
    array: Any = data.asnumpy()
    return Contents(f"{array.dtype} {list(array.shape)}", for_engine(array))
