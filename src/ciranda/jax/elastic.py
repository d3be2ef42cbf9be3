"""Training in JAX that starts again from its last commit when a collective has failed.

@elastic.run
def train(state):
    while state.step < 1000:
        state.params, state.optimizer_state = step(state.params, state.optimizer_state, batch_of(state.step))
        state.step += 1  # training goes on from what is committed
        if state.step % 100 == 0:
            state.commit()

train(elastic.JaxState(params=params, optimizer_state=optimizer.init(params), step=0))
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ciranda import _basics
from ciranda._frameworks import restarts
from ciranda._frameworks.objects import allgather_object, broadcast_object
from ciranda._frameworks.sampler import ElasticIndices
from ciranda._frameworks.states import HandledState, SamplerStateHandler, StateHandler
from ciranda.jax.arrays import as_wide_as, on_device
from ciranda.jax.functions import as_ciranda_error, broadcast_parameters, is_key

__all__ = ["ElasticSampler", "JaxState", "run"]

Result = TypeVar("Result")


def run(func: Callable[..., Result]) -> Callable[..., Result]:
    """Return `func(state, ...)`; it is called again, on all ranks, after a collective has failed on any.

    Before each call all ranks receive rank 0's state. Between calls, all ranks restore their last `state.commit()` and
    form a new world, of the same processes. Compiled programs run in that world, too. See `ciranda.elastic`.
    """
    return restarts.run(func, as_ciranda_error)


class ElasticSampler(ElasticIndices):
    """Divides the samples of an epoch that have not been used yet among the ranks of the world.

    An epoch is an order of all samples, the same on all ranks, of which the first `processed_num` have been used. The
    ranks take the remaining ones in turn, the same number each. Call `record_batch()` after each batch, and put the
    sampler into the state: after a failure the epoch continues with the remaining samples.

    Args:
        dataset: anything with a length.
        shuffle: whether each epoch has a different random order.
        seed: for that order; the same on all ranks.
        pad: whether samples are repeated so that all ranks have the same number. Without, ranks may differ by one
            sample, and so by a batch: end the epoch with `join()`.
    """


class JaxState(HandledState):
    """The state that survives a failure of a training in JAX: parameters, optimizer states, keys, numbers, samplers.

    Args:
        kwargs: its attributes: pytrees, whose arrays are copied by JAX; ElasticSamplers; and objects that can be copied
            and pickled. Assign new values as training goes on; `commit()` keeps copies, also of arrays that are donated
            to a step afterwards.
    """

    def __init__(self, **kwargs: Any) -> None:
        registry: list[tuple[type, type[StateHandler]]] = [(ElasticIndices, SamplerStateHandler)]
        super().__init__(registry, {}, kwargs)

    def save(self) -> None:
        """Keep copies of all values; of none, if a step on which they depend has failed."""
        jax.block_until_ready(self._objects())
        super().save()

    def _copied(self, values: dict[str, Any]) -> dict[str, Any]:
        return jax.block_until_ready(jax.tree_util.tree_map(_copy_of, values))  # type: ignore[no-any-return]

    def _of_rank_0(self, values: dict[str, Any]) -> dict[str, Any]:
        leaves, structure = jax.tree_util.tree_flatten(values)
        paths = list(map(jax.tree_util.keystr, (path for path, _ in jax.tree_util.tree_flatten_with_path(values)[0])))
        described = list(map(_description_of, leaves))
        roots_paths, roots = broadcast_object((paths, described))
        # A rank keeps the functions and types in its own structure, unless its paths differ from the root's.
        if any(allgather_object(paths != roots_paths)):
            skeleton = broadcast_object(jax.tree_util.tree_unflatten(structure, described))
            structure = structure if paths == roots_paths else jax.tree_util.tree_structure(skeleton)
        mine = leaves if _basics.rank() == 0 else list(map(_room_for, roots))
        return broadcast_parameters(jax.tree_util.tree_unflatten(structure, mine))  # type: ignore[no-any-return]


class _Array:
    """The placeholder of an array, with shape, dtype and type, without its content."""

    def __init__(self, array: Any, key_impl: Any) -> None:
        self.shape, self.dtype, self.is_jax = array.shape, np.dtype(array.dtype), isinstance(array, jax.Array)
        self.key_impl = key_impl


def _copy_of(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array):
        return copy.deepcopy(leaf)
    if is_key(leaf):
        return jax.random.clone(leaf)
    with as_wide_as(leaf.dtype):
        return jnp.array(leaf, copy=True)


def _description_of(leaf: Any) -> Any:
    if is_key(leaf):
        return _Array(jax.random.key_data(leaf), jax.random.key_impl(leaf))
    return _Array(leaf, None) if isinstance(leaf, (jax.Array, np.ndarray)) else leaf


def _room_for(description: Any) -> Any:
    if not isinstance(description, _Array):
        return description
    memory = np.zeros(description.shape, description.dtype)
    zeros = on_device(memory) if description.is_jax else memory
    return zeros if description.key_impl is None else jax.random.wrap_key_data(zeros, impl=description.key_impl)
