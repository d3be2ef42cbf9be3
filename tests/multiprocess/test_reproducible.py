"""The same bits, whatever carries the tensors and however they travel: transport, fusion, sizes, instruction set."""

from __future__ import annotations

import functools
import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from expected import DTYPES, OPS, Array, accepts, values
from ranks import Ranks

import ciranda as hvd

pytestmark = pytest.mark.multiprocess

TYPES = (*DTYPES, "bfloat16")
VARIANTS = {
    "tcp": {"CIRANDA_SHARED_MEMORY": "0"},
    "three sockets": {"CIRANDA_SHARED_MEMORY": "0", "CIRANDA_SOCKETS": "3"},
    "encrypted": {"CIRANDA_SHARED_MEMORY": "0", "CIRANDA_WIRE": "encrypt"},
    "checked": {"CIRANDA_SHARED_MEMORY": "0", "CIRANDA_WIRE": "check"},
    "unchecked": {"CIRANDA_SHARED_MEMORY": "0", "CIRANDA_WIRE": "none"},
    "doubling": {"CIRANDA_SHARED_MEMORY": "0", "CIRANDA_ALGORITHM": "doubling"},
    "tree": {"CIRANDA_SHARED_MEMORY": "0", "CIRANDA_ALGORITHM": "tree"},
    "chain": {"CIRANDA_SHARED_MEMORY": "0", "CIRANDA_ALGORITHM": "chain"},
    "hosts": {"CIRANDA_RELAYS": "1"},  # see _host_of
    "hosts, doubling": {"CIRANDA_ALGORITHM": "doubling"},
    "hosts, chain": {"CIRANDA_ALGORITHM": "chain"},
    "hosts, by-hosts": {"CIRANDA_ALGORITHM": "by-hosts"},  # of which one has two ranks, one has one
    "small slots": {"CIRANDA_SLOT_BYTES": "4096"},
    "short segments": {"CIRANDA_SEGMENT_BYTES": "4096"},
    "short segments by tcp": {"CIRANDA_SHARED_MEMORY": "0", "CIRANDA_SEGMENT_BYTES": "8192"},
    "other ways not tried": {"CIRANDA_AUTOTUNE": "0"},
    "two shots always": {"CIRANDA_ONE_SHOT_BYTES": "0"},
    "no fusion": {"CIRANDA_FUSION_THRESHOLD": "0"},
    "order not learned": {"CIRANDA_LEARNED_ORDER": "0"},
    "no cache": {"CIRANDA_CACHE_CAPACITY": "0"},
    "baseline instructions": {"CIRANDA_SIMD": "baseline"},
    "avx2": {"CIRANDA_SIMD": "avx2"},
    "slots written through caches": {"CIRANDA_STAGING_COPY": "cached"},
    "slots written past caches": {"CIRANDA_STAGING_COPY": "past-caches"},
    "no spinning": {"CIRANDA_SPIN_MICROSECONDS": "0"},
}


def _digest_of_everything(n_threads: int = 1) -> str:
    """Two rounds of named operations in flight together, so that they may be fused; then blocking ones.

    The former are submitted by as many threads, in whatever order those come.
    """
    digest = hashlib.sha256()
    accepted = [(op, dtype) for op in OPS for dtype in DTYPES if accepts(op, dtype)]
    accepted += [(op, "bfloat16") for op in ("sum", "average", "min", "max", "product")]
    cases = [(*each, count) for each in accepted for count in (1, 33, 5000)]
    for turn in range(2):
        submit = functools.partial(_submit, turn)
        with ThreadPoolExecutor(n_threads) as pool:
            handles = list(pool.map(submit, cases)) if n_threads > 1 else [submit(case) for case in cases]
        for handle in handles:
            digest.update(hvd.synchronize(handle).tobytes())
    digest.update(hvd.allreduce(values(hvd.rank(), 300_001, "float32", "sum")).tobytes())
    digest.update(hvd.allgather(np.full((hvd.rank() * 1000 + 1, 3), hvd.rank())).tobytes())
    for dtype in TYPES:
        digest.update(hvd.allgather(_values(501 + hvd.rank(), dtype)).tobytes())
        digest.update(hvd.broadcast(_values(70_000, dtype), 1).tobytes())
    return digest.hexdigest() + _digest_of_the_others() + _digest_in_memory_that_is_shared()


def _values(count: int, dtype: str, op: str = "sum", seed: int = 0) -> Array:
    """What this rank brings; of bfloat16 too."""
    if dtype != "bfloat16":
        return values(hvd.rank(), count, dtype, op, seed)
    return values(hvd.rank(), count, "float32", op, seed).astype(ml_dtypes.bfloat16)


def _submit(turn: int, case: tuple[str, str, int]) -> Any:
    op, dtype, count = case
    return hvd.allreduce_async(
        _values(count, dtype, op, seed=turn),
        op=OPS[op],
        name=f"{op}.{dtype}.{count}",
        prescale_factor=0.75 if "float" in dtype else 1.0,
    )


def _digest_in_memory_that_is_shared() -> str:
    """What is reduced where it lies, among all and in a process set, has the bits of what is not."""
    digest = hashlib.sha256()
    ends = hvd.add_process_set([0, 2])
    for dtype in ("float16", "float32", "float64"):
        mine = _values(70_001, dtype)
        shared = hvd.empty(len(mine), dtype)
        for process_set in (hvd.global_process_set, ends):
            shared[:] = mine
            if process_set.included():
                hvd.allreduce_(shared, op=hvd.Sum, postscale_factor=0.75, process_set=process_set)
                apart = hvd.allreduce(mine, op=hvd.Sum, postscale_factor=0.75, process_set=process_set)
                assert shared.tobytes() == apart.tobytes()
            digest.update(hvd.broadcast(shared, 0).tobytes())
    hvd.remove_process_set(ends)
    return digest.hexdigest()


def _digest_of_the_others() -> str:
    """Adasum, weighted averages, and collectives that cut along rows or have a root: what all ranks got, together."""
    digest = hashlib.sha256()
    for dtype in ("float16", "float32", "float64"):
        for count in (3, 5000, 70_001):
            mine = values(hvd.rank(), count, dtype, "sum")
            digest.update(hvd.allreduce(mine, op=hvd.Adasum).tobytes())
            digest.update(hvd.allreduce(mine, weight=hvd.rank() / 3, prescale_factor=0.75).tobytes())
        group = [values(hvd.rank(), count, dtype, "sum") for count in (1, 700, 9000)]
        for result in hvd.grouped_allreduce(group, op=hvd.Adasum):
            digest.update(result.tobytes())
        rows = values(hvd.rank(), 20_003 * 3, dtype, "sum").reshape(-1, 3)
        for op in (hvd.Average, hvd.Min, hvd.Max, hvd.Product, hvd.Sum):
            whole = hvd.allreduce(rows, op=op, prescale_factor=0.75)
            part = hvd.reducescatter(rows, op=op, prescale_factor=0.75)
            assert hvd.allgather(part).tobytes() == whole.tobytes()
            digest.update(whole.tobytes())
        on_root = hvd.reduce(rows, root_rank=1, op=hvd.Sum, prescale_factor=0.75)
        assert on_root is None or on_root.tobytes() == whole.tobytes()
        mixed, _ = hvd.alltoall(rows, np.array([6668, 6668, 6667]))
        gathered = hvd.gather(mixed, root_rank=2)
        dealt = hvd.scatter(np.empty((0, 3), dtype) if gathered is None else gathered, root_rank=2)
        digest.update(hvd.allgather(dealt).tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def reference() -> str:
    with Ranks(3) as ranks:
        digests = set(ranks.run(_digest_of_everything))
    assert len(digests) == 1
    return digests.pop()


def _host_of(rank: int) -> dict[str, str]:
    """Two hosts, as far as the ranks can tell."""
    name = f"host{rank // 2}"
    return {"CIRANDA_HOST_ID": name, "CIRANDA_HOST": name}


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_variant(variant: str, reference: str) -> None:
    env_of = _host_of if variant.startswith("hosts") else lambda rank: {}
    with Ranks(3, env=VARIANTS[variant], env_of=env_of) as ranks:
        assert ranks.run(_digest_of_everything) == [reference] * 3


def test_several_threads(reference: str) -> None:
    with Ranks(3) as ranks:
        assert ranks.run(_digest_of_everything, 4) == [reference] * 3
