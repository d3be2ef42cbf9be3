"""How tasks of Spark become ranks, and what of a job's end is Spark's to know: decisions without Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ciranda.launch.dialled import Dialled
from ciranda.launch.errors import LaunchError
from ciranda.launch.failure import RankFailure
from ciranda.launch.job import Outcome
from ciranda.spark.task import Told, _ended


def test_tasks_of_a_machine_follow_one_another_as_ranks_and_have_names_of_their_own() -> None:
    machines = ["b", "a", "b", "a"]
    told = Told.by([{"machine": machine, "host": f"host-{machine}"} for machine in machines])
    assert told.tasks == [0, 2, 1, 3]
    assert [slot.host for slot in told.slots] == ["host-b/task-0", "host-b/task-2", "host-a/task-1", "host-a/task-3"]
    assert [(slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size) for slot in told.slots] == [
        (0, 2, 0, 2),
        (1, 2, 0, 2),
        (0, 2, 1, 2),
        (1, 2, 1, 2),
    ]


def test_tasks_of_one_machine_meet_there() -> None:
    assert Dialled("h/task-0", {}, "its own task", "its log", are_on_one_machine=True).resolved_name("h/task-1") == (
        "localhost",
        True,
    )
    assert Dialled("h/task-0", {}, "its own task", "its log").resolved_name("g/task-1") == ("g/task-1", False)


def test_results_are_in_the_order_of_ranks() -> None:
    assert _ended(Outcome(results={1: [b"c"], 0: [b"a", b"b"]}), 2).results == [b"ab", b"c"]


def test_a_rank_without_a_result_is_an_error_of_its_function() -> None:
    assert _ended(Outcome(results={0: [b"a"]}), 2).message.startswith("rank 1 ended without a result")


@pytest.mark.parametrize("code", [1, 75])
def test_a_ranks_own_failure_is_a_result_of_the_task(code: int) -> None:
    failure = RankFailure(1, "h/task-1", code, b"mine")
    ended = _ended(Outcome(code, failure, "rank 1 failed"), 2)
    assert (ended.message, ended.exit_code, ended.failure) == ("rank 1 failed", code, failure)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(75, None, "the agent on h/task-1 was lost"),
        Outcome(75, RankFailure(0, "h/task-0", 1, b"RanksLostError: rank 1"), "rank 0 failed"),
        Outcome(143, None, "ended", interrupted_by=15),
    ],
)
def test_a_lost_task_is_an_error_that_spark_sees(outcome: Outcome) -> None:
    with pytest.raises(LaunchError):
        _ended(outcome, 2)


def test_spark_is_not_imported_before_it_is_used() -> None:
    code = "import sys, ciranda, ciranda.spark; ciranda.init; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
