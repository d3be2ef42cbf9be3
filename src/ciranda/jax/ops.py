"""The collectives on JAX arrays, outside jit and inside.

`tensor` is an array, or anything that `jax.numpy.asarray` takes, on one CPU device; in a program for one GPU, on that.
The kind of value decides when the call is made. Concrete values are communicated at once, and an error is one of
`ciranda.errors`. Traced values, and any value while a program is traced, become a call of the compiled program, which
is made whenever the program runs; an error is then a `jax.errors.JaxRuntimeError` with the same message. In a program,
independent calls run concurrently, in any order on each rank.

`name` identifies the call across ranks: all ranks must use the same one. A traced call without a name is named after
the compiled function and its position; outside jit, calls without names must be made in the same order on all ranks. A
name may be used again for the next step, or in a loop; if it occurs several times in a program, the later calls get a
number as suffix.

Inside jit shapes are known beforehand: every rank contributes the same number of rows to allgather, and alltoall sends
equal parts. The functions with _async, and reduce, gather, scatter and scan, are for values outside jit. `grouped_`
functions take a list, or any other pytree, and return the same; those for values outside jit take lists.
"""

from __future__ import annotations

from ciranda._collectives.names import export
from ciranda.jax._jax_collectives import barrier, collectives, named  # noqa: F401 (which this module has, too)

export("jax", globals(), named)
