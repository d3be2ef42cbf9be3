"""Programs for a GPU as ranks run them: what jax.jit would compile, with XLA's part played by xla_gpu.

python gpu_programs.py NAME...: runs the functions of these names.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xla_gpu
from jax.extend.core import Literal

import ciranda.jax as hvd
from ciranda.errors import MismatchError
from ciranda.jax import _plugin, arrays
from ciranda.jax._primitive import Call, _attributes, _name_of, _Names, collective_p, look_p, names_for_looks, size_p

GPU = xla_gpu.Gpu()


class Program:
    """The program of a function: our calls run on the GPU, and all else on the host between them."""

    def __init__(self, function: Callable[..., Any], *example: Any) -> None:
        self._names = _Names(getattr(function, "__name__", "program"))
        traced, structure = jax.make_jaxpr(function, return_shape=True)(*example)
        self._traced, self._structure = traced, jax.tree_util.tree_structure(structure)
        self._called: dict[int, str] = {}

    def __call__(self, *arguments: Any) -> Any:
        leaves = [np.asarray(each) for each in jax.tree_util.tree_leaves(arguments)]
        results = self._run(self._traced.jaxpr, self._traced.consts, leaves)
        return jax.tree_util.tree_unflatten(self._structure, results)

    def _run(self, program: Any, constants: Any, arguments: list[Any]) -> list[Any]:
        known: dict[Any, Any] = dict(zip(program.constvars, constants, strict=True))
        known |= dict(zip(program.invars, arguments, strict=True))
        for step in program.eqns:
            given = [each.val if isinstance(each, Literal) else known[each] for each in step.invars]
            known |= dict(zip(step.outvars, self._step(step, list(map(np.asarray, given))), strict=True))
        return [each.val if isinstance(each, Literal) else known[each] for each in program.outvars]

    def _step(self, step: Any, given: list[Any]) -> list[Any]:
        inner = step.params.get("jaxpr") or step.params.get("call_jaxpr")
        if inner is not None and hasattr(inner, "consts"):
            return self._run(inner.jaxpr, inner.consts, given)
        if step.primitive in (collective_p, size_p, look_p):
            return self._on_gpu(step, given)
        found = step.primitive.bind(*map(jnp.asarray, given), **step.params)
        return [np.asarray(each) for each in (found if step.primitive.multiple_results else [found])]

    def _on_gpu(self, step: Any, given: list[Any]) -> list[Any]:
        if step.primitive is look_p:
            look, name = step.params["look"], step.params["name"]
            names_for_looks[look] = name or f"{self._names.program}.look"
            target, name, call = _plugin.GPU_LOOK, look, Call(0)
        elif step.primitive is size_p:
            target, name, call = _plugin.GPU_SIZE, "", step.params["call"]
        else:
            call = step.params["call"]
            target, name = _plugin.GPU_COLLECTIVE, self._called.setdefault(id(step), "")
            if not name:
                name = self._called[id(step)] = _name_of(call, self._names)
        results = [GPU.array(np.full(each.aval.shape, 77, each.aval.dtype)) for each in step.outvars]
        attributes = _attributes(call, name, self._names.unique)
        GPU.call(target, [GPU.array(each) for each in given], results, attributes)
        return [each.get() for each in results]


def of_rank(rank: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(rank).normal(size=shape).astype(np.float32)


def found(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def fails(program: Program, *arguments: Any) -> str:
    try:
        result = program(*arguments)
    except xla_gpu.ProgramError as error:
        return str(error)
    raise AssertionError(f"no error, but {result}")


def every_collective() -> None:
    """Equals numpy's, whatever the call; what the stream is given afterwards sees the results."""
    n, rank = hvd.size(), hvd.rank()
    everyone = [of_rank(each, 2 * n, 3) for each in range(n)]
    mine, numbers = everyone[rank], np.arange(5, dtype=np.int32) + rank
    total = np.sum(everyone, axis=0)

    def close(result: Any, expected: Any) -> None:
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)

    close(Program(lambda x: hvd.allreduce(x, op=hvd.Sum), mine)(mine), total)
    halves = Program(lambda x: hvd.allreduce(x, prescale_factor=0.5, postscale_factor=4.0), mine)
    close(halves(mine), 2 * total / n)
    close(Program(lambda x: hvd.allreduce(x, op=hvd.Max), numbers)(numbers), np.arange(5) + n - 1)
    both = Program(lambda x, y: hvd.grouped_allreduce({"x": x, "y": y}, op=hvd.Sum), mine, mine[:1])(mine, mine[:1])
    close(both["x"], total)
    close(both["y"], total[:1])
    close(Program(lambda x: hvd.broadcast(x, n - 1), mine)(mine), everyone[-1])
    close(Program(hvd.allgather, mine)(mine), np.concatenate(everyone))
    close(Program(lambda x: hvd.reducescatter(x, op=hvd.Sum), mine)(mine), total[2 * rank : 2 * rank + 2])
    parts = Program(hvd.alltoall, mine)(mine)
    close(parts, np.concatenate([each[2 * rank : 2 * rank + 2] for each in everyone]))
    close(Program(lambda x: x * size_p.bind(call=Call(0)), numbers)(numbers), numbers * n)
    empty = np.zeros((0, 3), np.float32)
    close(Program(hvd.allreduce, empty)(empty), empty)
    slope = Program(jax.grad(lambda x: (hvd.allreduce(x, op=hvd.Sum) ** 2).sum()), mine)
    close(slope(mine), n * 2 * total)
    found("right")


def calls_by_platform() -> None:
    """A program has the calls of the platform for which it is compiled."""
    traced = jax.jit(lambda x: hvd.alltoall(hvd.allreduce(x)) * size_p.bind(call=Call(0))).trace(jnp.ones((4, 3)))
    for platform, infix in [("cuda", "gpu_"), ("cpu", "")]:
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert text.count(f"@ciranda_jax_{infix}collective(") == 2, text
        assert text.count(f"@ciranda_jax_{infix}size(") == 1, text
        assert ("ciranda_jax_nothing" in text) == (platform == "cpu"), text
    found("right")


def trains() -> None:
    """As one process on all data does; parameters that nobody has broadcast are told of."""
    n, rank = hvd.size(), hvd.rank()
    data = [of_rank(10 + each, 8, 4) for each in range(n)]
    optimizer = hvd.distributed(optax.adam(0.05))
    params = {"w": jnp.ones((4, 2)), "b": jnp.zeros(2)}

    def loss(params: Any, x: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ params["w"] + params["b"]) - 0.3) ** 2)

    def step(params: Any, state: Any, x: Any) -> Any:
        updates, state = optimizer.update(jax.grad(loss)(params, x), state, params)
        return optax.apply_updates(params, updates), state

    alone, alone_state, all_data = params, optax.adam(0.05).init(params), np.concatenate(data)
    state = optimizer.init(params)
    program = Program(step, params, state, data[rank])
    for _ in range(4):
        params, state = program(params, state, data[rank])
        updates, alone_state = optax.adam(0.05).update(jax.grad(loss)(alone, all_data), alone_state, alone)
        alone = optax.apply_updates(alone, updates)
    for name, value in params.items():
        np.testing.assert_allclose(value, alone[name], rtol=1e-5, atol=1e-6)
    other = {"w": jnp.full((4, 2), float(rank)), "b": jnp.zeros(2)}
    another = hvd.distributed(optax.adam(0.05), name="another")
    begun = another.init(other)

    def forgets(params: Any, state: Any, x: Any) -> Any:
        return another.update(jax.grad(loss)(params, x), state, params)

    found(fails(Program(forgets, other, begun, data[rank]), other, begun, data[rank]))
    found("right")


def parameters() -> None:
    """Of arrays on a GPU, as far as that can be played: they take the way of arrays that are elsewhere."""
    arrays.is_on_cpu = lambda array: False
    rank = hvd.rank()
    mine = {"w": jnp.arange(3.0).astype(jnp.bfloat16) + rank, "b": jnp.zeros(()) + rank, "key": jax.random.key(rank)}
    roots = hvd.broadcast_parameters(mine, 1)
    assert roots["w"].dtype == jnp.bfloat16
    assert roots["w"].tolist() == [1, 2, 3]
    assert (float(roots["b"]), roots["key"]) == (1.0, jax.random.key(1))
    hvd.check_consistency(roots)
    try:
        hvd.check_consistency(mine)
    except MismatchError as error:
        found(f"differ: {error}")
    found("right")


def bad_input() -> None:
    """Is told, and the next call is made."""
    rank = hvd.rank()
    mine = of_rank(rank, 2 + rank, 3)
    found(fails(Program(lambda x: hvd.allreduce(x, name="other shapes"), mine), mine))
    found(fails(Program(lambda x: hvd.allgather(x, name="other rows"), mine), mine))
    GPU.knows_its_number = False
    one = np.ones(3, np.float32)
    found(fails(Program(lambda x: hvd.allreduce(x, name="old jaxlib"), one), one))
    GPU.knows_its_number = True
    np.testing.assert_array_equal(Program(lambda x: hvd.allreduce(x, op=hvd.Sum), one)(one), one * hvd.size())
    hvd.shutdown()
    found(fails(Program(hvd.allreduce, one), one))


def loses_a_rank() -> None:
    """The other's program ends with an error."""
    one = np.ones(3, np.float32)
    program = Program(lambda x: hvd.allreduce(x, name="call"), one)
    program(one)
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    found(fails(program, one))


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        hvd.init()
        globals()[asked]()
        hvd.shutdown()
