"""Suites of tests that run on every rank: what a test that fails on one rank does to those after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ranks import Ranks

import ciranda as hvd
from ciranda import _basics

pytestmark = pytest.mark.multiprocess

N_TESTS = 9
FAILING = 3
Body = Callable[[int, "Failing"], None]


class Failing:
    """The assertion that fails in one test, on one rank."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def check(self, test: int) -> None:
        assert (test, hvd.rank()) != (FAILING, self._rank), "this fails on this rank alone"


def _sum(test: int, count: int, name: str | None = None) -> None:
    result = hvd.allreduce(np.full(count, test + 1.0), op=hvd.Sum, name=name)
    assert result.tolist() == [(test + 1) * hvd.size()] * count


def _between_barriers(test: int, failing: Failing) -> None:
    hvd.barrier()
    failing.check(test)
    hvd.barrier()
    _sum(test, 1 + test % 3)


def _skips_collectives(test: int, failing: Failing) -> None:
    """Of other shapes in each test, so that those of two tests never go together."""
    _sum(test, 10 + test)
    failing.check(test)
    _sum(test, 20 + test)
    _sum(test, 30 + test)


def _skips_names(test: int, failing: Failing) -> None:
    """The same in each test. All ranks then wait, for different names, until that has been too long."""
    _sum(test, 10 + test, "one")
    failing.check(test)
    _sum(test, 20 + test, "two")
    _sum(test, 30 + test, "three")


def _abandons_handles(test: int, failing: Failing) -> None:
    handles = [hvd.allreduce_async(np.ones(10 + test), name=name) for name in (None, "one", None)]
    failing.check(test)
    handles += [hvd.allreduce_async(np.ones(20 + test), name=name) for name in ("two", None)]
    for handle in handles:
        hvd.synchronize(handle)
    _sum(test, 30 + test)


BODIES = [_between_barriers, _skips_collectives, _skips_names, _abandons_handles]
#: More than ranks on a busy machine are apart by.
STALL = {"CIRANDA_STALL_SHUTDOWN_SECONDS": "3"}


def _run_suite(body: Body, failing_rank: int, shuts_down: bool) -> list[str]:
    """As pytest does: what a test raises ends that test alone. Returns how each ended."""
    ended, failing = [], Failing(failing_rank)
    for test in range(N_TESTS):
        try:
            hvd.init()
            body(test, failing)
            ended.append("passed")
        except Exception as error:
            ended.append(f"{type(error).__name__}: {error}")
        finally:
            if shuts_down:
                hvd.shutdown()
    return ended


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__.strip("_"))
@pytest.mark.parametrize(("n_ranks", "failing_rank"), [(2, 1), (2, 0), (3, 1)])
def test_tests_that_only_begin_with_init(body: Body, n_ranks: int, failing_rank: int) -> None:
    """Nothing tells the others of the failure; the next test is the first in which they hear of it, and the last."""
    with Ranks(n_ranks, env=STALL, initialize=False) as ranks:
        for ended in ranks.run(_run_suite, body, failing_rank, False):
            assert ended[FAILING] != "passed"
            assert ended[:FAILING] + ended[FAILING + 2 :] == ["passed"] * (N_TESTS - 2), ended


@pytest.mark.parametrize("failing_rank", [0, 2])
def test_tests_that_end_with_shutdown(failing_rank: int) -> None:
    with Ranks(3, initialize=False) as ranks:
        for body in BODIES:
            for ended in ranks.run(_run_suite, body, failing_rank, True):
                assert ended[FAILING] != "passed"
                assert ended[:FAILING] + ended[FAILING + 1 :] == ["passed"] * (N_TESTS - 1), ended


def _leave_and_come_again() -> None:
    hvd.init()
    if hvd.rank() == 1:
        hvd.shutdown()
    else:
        # Rank 1, or the other of these two, which has heard of it first and gone on to init().
        with pytest.raises(hvd.errors.AbortedError, match="has shut down"):
            _sum(0, 10)
    hvd.init()
    _sum(0, 20)


def test_a_world_that_one_rank_has_left_alone() -> None:
    with Ranks(3, initialize=False) as ranks:
        ranks.run(_leave_and_come_again)


def _fail_in_step(n_parts: int) -> list[str]:
    """All make the same wrong call in each part; it fails on two ranks before the third begins the part."""
    problems, was_refused = [], 0
    for _ in range(n_parts):
        deadline = time.monotonic() + 30
        while hvd.rank() == 2 and not _basics.engine().has_failed and time.monotonic() < deadline:
            time.sleep(0.005)
        try:
            hvd.init()
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}")
            continue
        with pytest.raises(hvd.HorovodInternalError):
            hvd.broadcast(np.ones((17, hvd.rank() + 1)), 0)
        was_refused += 1
    hvd.init()
    _sum(0, 10)
    return [*problems, f"refused {was_refused} times"]


def test_a_rank_that_is_slow_is_not_out_of_step() -> None:
    with Ranks(3) as ranks:
        assert ranks.run(_fail_in_step, 4) == [["refused 4 times"]] * 3


def _init_in_vain() -> list[Any]:
    twice = [hvd.ProcessSet([0]), hvd.ProcessSet([1]), hvd.ProcessSet([1, 0])]
    with pytest.raises(hvd.errors.InvalidArgumentError, match="exists already"):
        hvd.init(process_sets=twice)
    assert not hvd.is_initialized()
    assert [each.process_set_id for each in twice] == [None] * 3
    hvd.init(process_sets=twice[:2])
    _sum(0, 10)
    return [each.ranks for each in twice[:2]] + [sorted(hvd.get_process_set_ids_and_ranks())]


def test_an_init_that_failed_leaves_nothing() -> None:
    with Ranks(2, initialize=False) as ranks:
        assert ranks.run(_init_in_vain) == [[[0], [1], [0, 1, 2]]] * 2


def _sets_and_lanes() -> list[Any]:
    """Process sets of a world in which a collective has failed are there in the next, too."""
    hvd.init(num_lanes=2)
    first = hvd.add_process_set([0, 1])
    second = hvd.add_process_set([1, 2])
    hvd.remove_process_set(first)
    for _ in range(2):
        with pytest.raises(hvd.errors.MismatchError):
            hvd.allreduce(np.ones(1 + hvd.rank()))
        hvd.allreduce(np.ones(1))  # the world goes on
        hvd.init()
    in_set = hvd.allreduce(np.ones(1), op=hvd.Sum, process_set=second.lane(1))[0] if second.included() else None
    return [in_set, second.ranks, first.process_set_id]


def test_what_the_next_world_has_as_well() -> None:
    with Ranks(3, initialize=False) as ranks:
        results = ranks.run(_sets_and_lanes)
    assert results == [[None, [1, 2], None], [2.0, [1, 2], None], [2.0, [1, 2], None]]


def _init_until_it_works(n_tries: int) -> int:
    for n_failed in range(n_tries):
        try:
            hvd.init()
            return n_failed
        except hvd.errors.TimeoutError:
            pass
    raise AssertionError("never")


def _fail_to_init() -> None:
    with pytest.raises(hvd.errors.TimeoutError, match="rank 1"):
        hvd.init()


def test_an_init_that_failed_does_not_fail_those_after_it() -> None:
    """The rank that comes late is told of those that the others have given up."""
    with Ranks(2, env={"CIRANDA_START_TIMEOUT": "2"}, initialize=False) as ranks:
        ranks.run(_fail_to_init, on=[0])
        n_failed = ranks.run(_init_until_it_works, 20)
        assert n_failed[1] == 1 + n_failed[0]
        ranks.run(_sum, 0, 10)
