"""What a collective costs inside a compiled program of JAX, beside the same calls of NumPy arrays in the same run.

    ciranda run -np 2 python benchmarks/jax_ops.py

Prints, for 4 KiB, the microseconds a call of: so many independent allreduces in one program, of so many arrays; of the
rows of one array, which leaves out what JAX does for each array that a program with effects is given and gives; custom
calls that do nothing, of both; the same by NumPy, started together and waited for; a chain in which each needs the last
one; the same by NumPy.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

import ciranda
import ciranda.jax as hvd


def median_us(run, repeats: int) -> float:
    """Return the median of what `run` takes, in microseconds."""
    took = []
    for index in range(repeats + 5):
        ciranda.barrier()
        began = time.perf_counter()
        run()
        if index >= 5:
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


def main() -> None:
    """Measure, and print on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=60)
    options = parser.parse_args()
    hvd.init()
    n = options.calls
    xs = [jnp.full((1024,), index, jnp.float32) for index in range(n)]
    arrays = [np.array(x) for x in xs]

    independent = jax.jit(lambda xs: [hvd.allreduce(x, op=hvd.Sum, name=f"i{i}") for i, x in enumerate(xs)])
    rows = jax.jit(lambda x: jnp.stack([hvd.allreduce(x[i], op=hvd.Sum, name=f"r{i}") for i in range(n)]))
    nothing = jax.ffi.ffi_call("ciranda_jax_nothing", jax.ShapeDtypeStruct((1024,), jnp.float32), has_side_effect=True)
    empty = jax.jit(lambda xs: [nothing(x) for x in xs])
    empty_rows = jax.jit(lambda x: jnp.stack([nothing(x[i]) for i in range(n)]))
    without = jax.jit(lambda xs: [x * 2 for x in xs])
    stacked = jnp.stack(xs)

    @jax.jit
    def chain(x):
        for index in range(n):
            x = hvd.allreduce(x, name=f"c{index}")
        return x

    def numpy_independent():
        handles = [ciranda.allreduce_async(x, op=ciranda.Sum, name=f"n{i}") for i, x in enumerate(arrays)]
        for handle in handles:
            handle.wait()

    def numpy_chain():
        x = arrays[0]
        for index in range(n):
            x = ciranda.allreduce(x, name=f"nc{index}")

    found = {
        "independent, in one program": median_us(lambda: jax.block_until_ready(independent(xs)), options.repeats),
        "independent, rows of one array": median_us(lambda: rows(stacked).block_until_ready(), options.repeats),
        "custom calls that do nothing": median_us(lambda: jax.block_until_ready(empty(xs)), options.repeats),
        "the same, rows of one array": median_us(lambda: empty_rows(stacked).block_until_ready(), options.repeats),
        "independent, NumPy": median_us(numpy_independent, options.repeats),
        "chain, in one program": median_us(lambda: chain(xs[0]).block_until_ready(), options.repeats),
        "chain, NumPy": median_us(numpy_chain, options.repeats),
        "the program without communication": median_us(lambda: jax.block_until_ready(without(xs)), options.repeats),
    }
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, {n} allreduces of 4 KiB, microseconds a call")
        for name, took in found.items():
            print(f"{name:36} {took / n:8.1f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
