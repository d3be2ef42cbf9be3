"""`ciranda.launch.Pool`: ranks that stay between calls."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from launch_support import GUARD_SECONDS, TAG, Running, until

import ciranda
from ciranda.launch import HostsError, LaunchError, Pool
from ciranda.launch.api import RunOptions
from ciranda.launch.elastic import ElasticJob
from ciranda.launch.gathering import Gathering
from ciranda.launch.marked_output import MarkedOutput
from ciranda.launch.supervisor import Limits

pytestmark = pytest.mark.multiprocess

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # ranks do not import the tests


@pytest.fixture(scope="module")
def shared() -> Iterator[Pool]:
    """That each test leaves as it was: with ranks that can meet."""
    with Pool(np=2) as pool:
        yield pool


@pytest.fixture
def pool(shared: Pool) -> Iterator[Pool]:
    yield shared
    assert shared.run(total) == [2.0, 2.0]


def total() -> float:
    ciranda.init()
    return float(ciranda.allreduce(1.0, op=ciranda.Sum, name="total"))


def rank() -> int:
    return int(os.environ["CIRANDA_RANK"])


def test_processes_stay_and_results_come_in_the_order_of_ranks(pool: Pool) -> None:
    def keep(value: int) -> int:
        sys.kept = value * int(os.environ["CIRANDA_RANK"])  # type: ignore[attr-defined]
        return os.getpid()

    pids = pool.run(keep, (5,))
    assert pool.run(lambda *, more: (os.getpid(), sys.kept + more), kwargs={"more": 1}) == [  # type: ignore[attr-defined]
        (pids[0], 1),
        (pids[1], 6),
    ]


def test_globals_stay(pool: Pool) -> None:
    def assign(value: int) -> None:
        global kept
        kept = value + rank()

    def read() -> int:
        found: int = kept  # type: ignore[name-defined]
        return found

    pool.run(assign, (5,))
    assert pool.run(read) == [5, 6]
    pool.run(assign, (7,))
    assert pool.run(lambda: read() + rank()) == [7, 9]


def test_what_a_function_refers_to_here_goes_with_it(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (1, 2):
        monkeypatch.setattr(sys.modules[__name__], "sent", value, raising=False)
        assert pool.run(lambda: sent) == [value, value]  # type: ignore[name-defined]  # noqa: F821


def test_large_arguments_and_results_survive(pool: Pool) -> None:
    data = os.urandom(5 << 20)
    assert pool.run(lambda text: text[::-1], (data,)) == [data[::-1]] * 2


def test_output_is_the_call_s_own_and_complete(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    def say(text: str) -> None:
        sys.stdout.write(f"{text}\n" * 20000 + "no end")
        sys.stderr.write("a warning\n")

    for text in ("one", "two"):
        pool.run(say, (text,))
        out, err = capsys.readouterr()
        for each in range(2):
            mine = [line for line in out.splitlines() if line.startswith(f"[{each}]")]
            assert mine == [f"[{each}]<stdout>:{text}"] * 20000 + [f"[{each}]<stdout>:no end"]
        assert len(out.splitlines()) == 40002
        assert sorted(err.splitlines()) == [f"[{each}]<stderr>:a warning" for each in range(2)]


def test_output_that_comes_slowly_is_waited_for(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Line by line it comes until six seconds after the results, as on a machine that is busy."""
    put = MarkedOutput.put

    def put_late(self: MarkedOutput, writes: Iterable[tuple[int, bytes]]) -> None:
        for fd, data in writes:
            for line in data.splitlines(keepends=True):
                time.sleep(1.5 if b"late" in line else 0)
                put(self, [(fd, line)])

    with Pool(np=1) as pool:
        monkeypatch.setattr(MarkedOutput, "put", put_late)
        pool.run(lambda: sys.stdout.write("late\n" * 4))
        assert capsys.readouterr().out == "[0]<stdout>:late\n" * 4


def test_a_function_that_raises_is_named_and_others_that_wait_for_it_fail(pool: Pool, tmp_path: Path) -> None:
    def work(path: str) -> None:
        ciranda.init()
        ciranda.barrier()  # or rank 1 is gone before rank 0 looks for it, and rank 0 waits in init() for the next world
        if ciranda.rank() == 1:
            raise ValueError("no such batch")
        try:
            ciranda.allreduce(1.0, name="work")
        except Exception as error:
            with open(path, "w") as file:
                file.write(str(error))
            raise

    with pytest.raises(LaunchError, match=r"rank 1 raised:\nTraceback(?s:.*)\nValueError: no such batch\Z") as caught:
        pool.run(work, (str(tmp_path / "seen"),))
    assert "rank 1" in (tmp_path / "seen").read_text()
    assert "pool_rank.py" not in str(caught.value)
    assert caught.value.failure is not None
    assert caught.value.failure.rank == 1


def test_ranks_that_do_not_see_another_s_failure_are_interrupted(pool: Pool) -> None:
    pool.run(ciranda.shutdown)

    def work() -> None:
        if int(os.environ["CIRANDA_RANK"]) == 1:
            raise ValueError("before the others can meet it")
        ciranda.init()

    with pytest.raises(LaunchError, match="rank 1 raised:"):
        pool.run(work)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda: sys.exit("enough"), "SystemExit: enough"),
        (threading.Lock, "TypeError: cannot pickle"),
        (lambda: time.sleep(-1), "ValueError"),
    ],
)
def test_what_gives_no_result_is_an_error_of_the_call_alone(
    pool: Pool, function: Callable[[], object], says: str
) -> None:
    with pytest.raises(LaunchError, match=f"rank 0 raised:(?s:.*){says}"):
        pool.run(function)


class _CannotBeLoaded:
    def __reduce__(self) -> tuple[object, ...]:
        return int, ("no number",)


def test_arguments_that_cannot_be_loaded_are_an_error_of_the_call_alone(pool: Pool) -> None:
    with pytest.raises(LaunchError, match=r"rank 0 raised:(?s:.*)ValueError: invalid literal"):
        pool.run(lambda argument: argument, (_CannotBeLoaded(),))


def _never_ends(out: str) -> None:
    ciranda.init()
    open(f"{out}/{ciranda.rank()}", "w").close()
    if ciranda.rank() == 0:
        ciranda.allreduce(1.0, name="alone")
    time.sleep(600)


def test_ctrl_c_interrupts_all_ranks_and_the_pool_lives_on(pool: Pool, tmp_path: Path) -> None:
    def interrupt() -> None:
        until(lambda: len(list(tmp_path.iterdir())) == 2, what="the start of the function")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        pool.run(_never_ends, (str(tmp_path),))
    thread.join()


def test_it_can_be_used_from_another_thread(pool: Pool) -> None:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(pool.run(rank)))
    thread.start()
    thread.join(GUARD_SECONDS)
    assert results == [[0, 1]]


def test_calls_of_several_threads_come_one_after_another(pool: Pool) -> None:
    def work(number: int) -> tuple[int, float]:
        ciranda.init()
        return number, float(ciranda.allreduce(float(number), op=ciranda.Sum, name="threads"))

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: pool.run(work, (number,)), range(24)))
    assert found == [[(number, 2.0 * number)] * 2 for number in range(24)]


def test_another_thread_closes_the_pool_of_a_call(tmp_path: Path) -> None:
    pool = Pool(np=2)
    with ThreadPoolExecutor(1) as threads:
        under_way = threads.submit(pool.run, _never_ends, (str(tmp_path),))
        until(lambda: len(list(tmp_path.iterdir())) == 2, what="the start of the function")
        pool.close()
        with pytest.raises(LaunchError, match="the pool was closed by another thread"):
            under_way.result(GUARD_SECONDS)


def test_a_process_that_is_forked_leaves_the_pool_alone(pool: Pool) -> None:
    child = os.fork()
    if child == 0:
        pool.close()
        try:
            pool.run(rank)
        except LaunchError as error:
            os._exit(5 if "make another one here" in str(error) else 6)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert pool.run(rank) == [0, 1]


@pytest.mark.parametrize("number", [0, 1])
def test_a_rank_that_is_killed_is_named_and_closes_the_pool(number: int, tmp_path: Path) -> None:
    def work(number: int, has_begun: str) -> None:
        ciranda.init()
        if ciranda.rank() == number:
            while not os.path.exists(has_begun):  # or the other may raise in init(), before this one is missed
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        open(has_begun, "w").close()
        time.sleep(600)

    with Pool(np=2) as pool:
        pool.run(lambda: sys.stderr.write("no end"))
        with pytest.raises(LaunchError) as caught:
            pool.run(work, (number, str(tmp_path / "has begun")))
        said = f"ciranda: rank {number} on localhost failed first: killed by SIGKILL (signal 9); the end of its stderr:"
        assert str(caught.value) == f"{said}\nno end"
        assert caught.value.exit_code == 137
        with pytest.raises(LaunchError, match="the pool is closed"):
            pool.run(rank)


def test_a_rank_that_leaves_without_a_word_closes_the_pool() -> None:
    with Pool(np=2) as pool, pytest.raises(LaunchError, match="rank 1 has ended: the function must return, not exit"):
        pool.run(lambda: os._exit(0) if int(os.environ["CIRANDA_RANK"]) == 1 else time.sleep(600))


def test_a_pool_of_none_is_refused_and_an_elastic_one() -> None:
    with pytest.raises(HostsError, match="-np 0"):
        Pool(np=0)
    with pytest.raises(LaunchError, match="a pool cannot be elastic"):
        Pool(np=2, options=RunOptions(elastic=ElasticJob(2, 2, 2, Limits(2, 2))))


def test_ctrl_c_while_ranks_start_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Gathering, "wait", interrupt)
    before = {*threading.enumerate()}
    with pytest.raises(KeyboardInterrupt):
        Pool(np=2)
    assert {*threading.enumerate()} <= before, "the job goes on"


OWNER = """
import os, sys, time
from ciranda.launch import Pool
def sleep(seconds):
    print("up", flush=True)
    time.sleep(seconds)
pool = Pool(np=2)
if sys.argv[1] == "idle":
    print("up\\nup", flush=True)
    time.sleep(600)
if sys.argv[1] == "busy":
    pool.run(sleep, (600,))
pool.run(sleep, (0,))  # and ends, without close()
"""


@pytest.mark.parametrize("how", ["idle", "busy", "end"])
def test_nothing_is_left_of_a_pool_whose_process_ends(how: str, tmp_path: Path) -> None:
    tag = uuid.uuid4().hex
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen([sys.executable, "-c", OWNER, how], env={**os.environ, TAG: tag}, stdout=out)
    running = Running(process, tag)  # type: ignore[arg-type]
    try:
        if how != "end":
            until(lambda: (tmp_path / "out").read_bytes().count(b"up") == 2, what="the start")
            process.kill()
        assert process.wait(GUARD_SECONDS) == (0 if how == "end" else -signal.SIGKILL)
        running.assert_nothing_left()
    finally:
        running.close()
