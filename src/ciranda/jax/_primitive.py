"""The collectives as one primitive of JAX, and its lowering.

A program contains a call's parameters, its process set's number and its name, but not this rank, and the number of
ranks only in the shapes of results. So it outlives worlds.
"""

from __future__ import annotations

import inspect
import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.ffi
import numpy as np
from jax._src import effects
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ciranda import _core
from ciranda._ops import ALLREDUCE, BROADCAST, REDUCE, Sum
from ciranda.errors import NotSupportedError
from ciranda.jax import _plugin

_NAMES = {number: name for name, number in _core.COLLECTIVES.items()}
#: Collectives whose results can overwrite their tensors.
_IN_PLACE = (ALLREDUCE, BROADCAST, REDUCE)
#: ciranda_request.flags: divide by the number of all ranks, and fail while one has joined.
_DIVIDE_BY_ALL, _NEEDS_ALL = 4, 32
#: XLA:CPU runs a computation sequentially, waiting for each step, if all of its buffers have at most _SMALL_BYTES or it
#: has at most _FEW_STEPS steps. Ranks that reach its calls in different orders would deadlock. One larger, unused
#: buffer and _FEW_STEPS empty steps prevent it.
_SMALL_BYTES = 512
_FEW_STEPS = 8


class Call(NamedTuple):
    """The parameters of a collective, without its tensors.

    Attributes:
        process_set: the number from `id_of()`, which includes the lane and whether the call needs all ranks.
        name: None: the program's name with the position of the call.
        rows: the first dimensions of the results, where they differ from those of the tensors.
        splits: of an alltoall outside jit, whose results include the numbers of rows received, for each tensor.
        received: in a tangent of such an alltoall: the number of rows of each tensor from each rank.
        n_ranks: the size of the process set, where shapes depend on it; else 0.
    """

    collective: int
    op: int = Sum
    root: int = -1
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: int = 0
    divides_by_all: bool = False
    name: str | None = None
    rows: tuple[int, ...] | None = None
    splits: tuple[tuple[int, ...], ...] | None = None
    received: tuple[tuple[int, ...], ...] | None = None
    n_ranks: int = 0

    @property
    def kind(self) -> str:
        """The collective's name."""
        return _NAMES[self.collective]

    def named(self, suffix: str) -> str | None:
        """Return the name of a call that is derived from this one."""
        return None if self.name is None else f"{self.name}.{suffix}"


class CollectiveEffect(effects.Effect):  # type: ignore[misc]
    """Keeps a call in the program even if its result is unused: the other ranks wait for it."""

    def __str__(self) -> str:
        return "Ciranda"


_EFFECT = CollectiveEffect()
for _allowed in (
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
):
    _allowed.add_type(CollectiveEffect)

collective_p = Primitive("ciranda")
collective_p.multiple_results = True
#: The size of a process set at run time.
size_p = Primitive("ciranda_size")
#: A look (`ciranda._frameworks.looks`) at tensors. It has no results, and is left out where there is no program.
look_p = Primitive("ciranda_look")
look_p.multiple_results = True
#: By the name of a look, a name for the calls that it makes: the given one, or one like that of a call in its place.
names_for_looks: dict[str, str] = {}


def _abstract(*tensors: Any, call: Call) -> Any:
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if call.rows is not None:
        shapes = [(rows, *shape[1:]) for rows, shape in zip(call.rows, shapes, strict=True)]
    # update() keeps the sharding: one device, in shard_map.
    results = [tensor.update(shape=shape, weak_type=False) for shape, tensor in zip(shapes, tensors, strict=True)]
    if call.splits is not None:
        results += [jax.core.ShapedArray((call.n_ranks,), np.dtype(np.int32))] * len(tensors)
    return results, {_EFFECT}


collective_p.def_effectful_abstract_eval(_abstract)


look_p.def_effectful_abstract_eval(lambda *_tensors, look, name: ([], {_EFFECT}))
look_p.def_impl(lambda *_tensors, look, name: [])
batching.primitive_batchers[look_p] = lambda tensors, dims, **named: ([], [])
ad.primitive_jvps[look_p] = lambda tensors, tangents, **named: (look_p.bind(*tensors, **named), [])
size_p.def_abstract_eval(lambda *, call: jax.core.ShapedArray((), np.dtype(np.int32)))


# --- compiling


class _Names(Counter[str]):
    """The names given in one program, with their counts; stored in JAX's lowering cache of the program."""

    _programs: ClassVar[defaultdict[str, itertools.count[int]]] = defaultdict(itertools.count)

    def __init__(self, program: str) -> None:
        super().__init__()
        self.program = program
        #: Unique in this process: jaxlib 0.5.3 gives runs of identical programs the same numbers. It depends only on
        #: earlier programs of the same name, so that a program in the compilation cache on disk is found again.
        self.unique = f"{program}/{next(self._programs[program])}"
        self._n_calls = 0
        #: The blocks that have enough steps.
        self._long_blocks: list[Any] = []

    def next(self, name: str) -> int:
        self[name] += 1
        return self[name] - 1

    def needs_steps(self, block: Any) -> bool:
        """Whether this call, not the program's first, needs added steps in its block; true once for each block.

        XLA may merge blocks into one computation: of two calls in it, the second is not the program's first.
        """
        self._n_calls += 1
        if self._n_calls == 1 or block in self._long_blocks:
            return False
        self._long_blocks.append(block)
        return True


def _names_of(context: Any) -> _Names:
    """Return the names of the program that is compiled, from JAX's cache of its lowered primitives."""
    compiled = context.cached_primitive_lowerings
    if _Names not in compiled:
        compiled[_Names] = _Names(mlir.ir.StringAttr(context.module.operation.attributes["sym_name"]).value)
    names: _Names = compiled[_Names]
    return names


def _name_of(call: Call, names: _Names) -> str:
    """Return a name that is unique in the program, the same on all ranks that compile the same program."""
    if call.name is None:
        return f"{names.program}.{call.kind}.{names.next(call.kind)}"
    nth = names.next(f"name {call.name}")
    return f"{call.name}#{nth}" if nth else call.name


def _attributes(call: Call, name: str, program: str) -> dict[str, Any]:
    flags = (_DIVIDE_BY_ALL if call.divides_by_all else 0) | (_NEEDS_ALL if call.process_set >> 63 else 0)
    return {
        "name": name,
        "program": program,
        "collective": np.int32(call.collective),
        "op": np.int32(call.op),
        "root": np.int32(call.root),
        "lane": np.int32(call.process_set >> 32 & 0x7FFFFFFF),
        "flags": np.int32(flags),
        "n_ranks": np.int32(call.n_ranks),
        "process_set": np.int64(call.process_set & 0xFFFFFFFF),
        "prescale": np.float64(call.prescale),
        "postscale": np.float64(call.postscale),
    }


def _check_program(context: Any, call: Call) -> None:
    """Raise NotSupportedError for a program for several devices, or for splits inside jit."""
    axes = context.module_context.axis_context  # for several devices, it has their number, a mesh, or replicas
    n_devices: Any = getattr(axes, "num_devices", None) or getattr(getattr(axes, "mesh", None), "size", 1)
    n_devices = max(n_devices, getattr(getattr(axes, "axis_env", None), "nreps", 1))
    if n_devices > 1:
        raise NotSupportedError(
            f"{call.kind} in a program for {n_devices} devices: each device would make the call, but a rank makes it "
            "once. Give each process one device"
        )
    if call.splits is not None:
        raise NotSupportedError(
            "alltoall with splits inside jit: the shape of its result depends on the other ranks. Call it outside jit, "
            "or without splits, which sends equal parts"
        )


def _n_bytes(value: Any) -> int:
    return int(np.prod(value.shape)) * int(value.dtype.itemsize)


def _add_steps(context: Any) -> None:
    rule = jax.ffi.ffi_lowering(_plugin.NOTHING, has_side_effect=True)
    for _ in range(_FEW_STEPS):
        rule(context.replace(avals_in=(), avals_out=()))


def _aliases(tensors: Sequence[Any], call: Call) -> dict[int, int]:
    return {index: index for index in range(len(tensors))} if call.collective in _IN_PLACE else {}


def _lower(context: Any, *tensors: Any, call: Call) -> Any:
    _check_program(context, call)
    aliases = _aliases(tensors, call)
    names = _names_of(context.module_context)
    name = _name_of(call, names)
    if names.needs_steps(mlir.ir.InsertionPoint.current.block):
        _add_steps(context)
    if max(map(_n_bytes, (*context.avals_in, *context.avals_out)), default=0) <= _SMALL_BYTES:
        ballast = np.zeros(2 * _SMALL_BYTES, np.uint8)
        context = context.replace(avals_in=(*context.avals_in, jax.core.ShapedArray(ballast.shape, ballast.dtype)))
        tensors = (*tensors, mlir.ir_constant(ballast))
    rule = jax.ffi.ffi_lowering(_plugin.COLLECTIVE, has_side_effect=True, operand_output_aliases=aliases)
    return rule(context, *tensors, **_attributes(call, name, names.unique))


def _lower_for_gpu(context: Any, *tensors: Any, call: Call) -> Any:
    """XLA runs the steps of a program for a GPU in one order."""
    _check_program(context, call)
    names = _names_of(context.module_context)
    target, aliases = _plugin.GPU_COLLECTIVE, _aliases(tensors, call)
    rule = jax.ffi.ffi_lowering(target, has_side_effect=True, operand_output_aliases=aliases)
    return rule(context, *tensors, **_attributes(call, _name_of(call, names), names.unique))


def _lower_look(context: Any, *tensors: Any, look: str, name: str | None, target: str = _plugin.LOOK) -> Any:
    names = _names_of(context.module_context)
    names_for_looks[look] = name or f"{names.program}.look.{names.next('look')}"
    rule = jax.ffi.ffi_lowering(target, has_side_effect=True)
    return rule(context, *tensors, **_attributes(Call(0), look, ""))


def _lower_size(context: Any, *, call: Call, target: str = _plugin.SIZE) -> Any:
    rule = jax.ffi.ffi_lowering(target)
    return rule(context, **_attributes(call, "", ""))


def _refuse(context: Any, *tensors: Any, call: Call) -> Any:
    raise NotSupportedError(
        f"{call.kind} in a program for {', '.join(context.module_context.platforms)}: only programs for the CPU and "
        "for GPUs of NVIDIA can make it: JAX_PLATFORMS=cpu"
    )


# Newer versions cache the lowering of a call and share it with equal calls, which would then share a name.
_EACH_ITSELF: dict[str, Any] = (
    {"cacheable": False} if "cacheable" in inspect.signature(mlir.register_lowering).parameters else {}
)
mlir.register_lowering(collective_p, _refuse, **_EACH_ITSELF)
mlir.register_lowering(collective_p, _lower, platform=_plugin.PLATFORM, **_EACH_ITSELF)
mlir.register_lowering(collective_p, _lower_for_gpu, platform=_plugin.GPU_PLATFORM, **_EACH_ITSELF)
mlir.register_lowering(look_p, _lower_look, platform=_plugin.PLATFORM, **_EACH_ITSELF)
mlir.register_lowering(
    look_p, partial(_lower_look, target=_plugin.GPU_LOOK), platform=_plugin.GPU_PLATFORM, **_EACH_ITSELF
)
mlir.register_lowering(size_p, _lower_size)
mlir.register_lowering(size_p, partial(_lower_size, target=_plugin.GPU_SIZE), platform=_plugin.GPU_PLATFORM)
