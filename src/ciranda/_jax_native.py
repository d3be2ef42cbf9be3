"""The world of JAX's own collectives: the functions that libciranda_mpi.so calls when jaxlib starts to use it."""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress

import ciranda
from ciranda._init import ending


def join() -> int | str:
    """Join the world of JAX's processes; return the address of the engine's functions, or the reason of a failure."""
    try:
        ciranda.init()
        ending.leave_first()  # because JAX's coordinator waits for all processes
        ending.finish_first(_wait_for_programs)
        problem = _difference()
    except Exception as error:  # jaxlib reports it as its own error: an exception raised here would be lost
        return str(error)
    return problem or ciranda.get_c_table_address()


def describe() -> str:
    """Return the findings for `ciranda doctor`. Raises ImportError if jaxlib has no MPI collectives."""
    jaxlib = importlib.import_module("jaxlib")
    for name in ("jaxlib._jax", "jaxlib.xla_extension"):  # since 0.6, before
        with suppress(ImportError):
            if hasattr(importlib.import_module(name), "make_mpi_collectives"):
                return f"jaxlib {jaxlib.__version__} has its own collectives by MPI, for `ciranda run --jax-native`"
    raise ImportError(
        f"jaxlib {jaxlib.__version__} has no collectives by MPI: `ciranda run --jax-native` has no effect"
    )


def _wait_for_programs() -> None:
    """Wait for the programs that this thread has started: other ranks may need their collectives.

    JAX runs the programs of one thread in order, so waiting for a new one waits for all.
    """
    jax = importlib.import_module("jax")
    with suppress(Exception):  # the outcome of those programs no longer matters
        here = jax.device_put(0.0, jax.local_devices()[0])
        jax.jit(lambda value: value + 1)(here).block_until_ready()


def _difference() -> str | None:
    """Return the error if JAX's number of processes or process id differs from the world's size or rank."""
    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    n_processes, process_id = getattr(state, "num_processes", None), getattr(state, "process_id", None)
    if n_processes is None or (n_processes, process_id) == (ciranda.size(), ciranda.rank()):
        return None
    return (
        f"this is process {process_id} of {n_processes} for JAX, and rank {ciranda.rank()} of {ciranda.size()} for "
        "ciranda: start the program with 'ciranda run --jax-native', and call jax.distributed.initialize() without "
        "arguments"
    )
