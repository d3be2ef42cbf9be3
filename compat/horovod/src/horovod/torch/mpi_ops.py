"""`horovod.torch.mpi_ops`, served by Ciranda: the operations, and who this process is.

The classes are for scripts that call `HorovodAllreduce.apply(...)` and the like: the operations themselves can be
differentiated.
"""

from __future__ import annotations

from typing import Any

from horovod._names import attach
from horovod.common.basics import HorovodBasics
from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.torch import _averages, _needing_all

__getattr__, __dir__ = attach(__name__)

_basics = HorovodBasics(__file__)
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)


class HorovodAllreduce:
    """`allreduce`, called as a function of torch.autograd is."""

    @staticmethod
    def apply(
        tensor: Any, average: Any, name: Any, op: Any, prescale_factor: Any, postscale_factor: Any, process_set: Any
    ) -> Any:
        """Return the combined tensor."""
        factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
        return _averages.allreduce(tensor, average, name, op=op, process_set=process_set, **factors)


class HorovodGroupedAllreduce:
    """`grouped_allreduce`, called as a function of torch.autograd is."""

    @staticmethod
    def apply(
        average: Any, name: Any, op: Any, prescale_factor: Any, postscale_factor: Any, process_set: Any, *tensors: Any
    ) -> Any:
        """Return the combined tensors."""
        factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
        return tuple(_averages.grouped_allreduce(tensors, average, name, op=op, process_set=process_set, **factors))


class HorovodAllgather:
    """`allgather`, called as a function of torch.autograd is."""

    @staticmethod
    def apply(tensor: Any, name: Any, process_set: Any) -> Any:
        """Return all ranks' rows."""
        return _needing_all.allgather(tensor, name, process_set)


class HorovodGroupedAllgather:
    """`grouped_allgather`, called as a function of torch.autograd is."""

    @staticmethod
    def apply(name: Any, process_set: Any, *tensors: Any) -> Any:
        """Return all ranks' rows, for each tensor."""
        return tuple(_needing_all.grouped_allgather(tensors, name, process_set))


class HorovodBroadcast:
    """`broadcast`, called as a function of torch.autograd is."""

    @staticmethod
    def apply(tensor: Any, root_rank: int, name: Any, process_set: Any) -> Any:
        """Return the root's tensor."""
        return _needing_all.broadcast(tensor, root_rank, name, process_set)


class HorovodAlltoall:
    """`alltoall`, called as a function of torch.autograd is."""

    @staticmethod
    def apply(tensor: Any, splits: Any, name: Any, process_set: Any) -> Any:
        """Return the rows that came, and how many from each rank if `splits` are given."""
        return _needing_all.alltoall(tensor, splits, name, process_set)


class HorovodReducescatter:
    """`reducescatter`, called as a function of torch.autograd is."""

    @staticmethod
    def apply(tensor: Any, name: Any, op: Any, process_set: Any, prescale_factor: Any, postscale_factor: Any) -> Any:
        """Return this rank's rows of the combined tensor."""
        factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
        return _needing_all.reducescatter(tensor, name, op=op, process_set=process_set, **factors)


class HorovodGroupedReducescatter:
    """`grouped_reducescatter`, called as a function of torch.autograd is."""

    @staticmethod
    def apply(name: Any, op: Any, process_set: Any, prescale_factor: Any, postscale_factor: Any, *tensors: Any) -> Any:
        """Return this rank's rows of the combined tensors."""
        factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
        return tuple(_needing_all.grouped_reducescatter(tensors, name, op=op, process_set=process_set, **factors))
