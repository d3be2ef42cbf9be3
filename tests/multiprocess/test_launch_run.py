"""`ciranda.launch.run`: a Python function on several processes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from launch_support import GUARD_SECONDS

from ciranda.launch import HostsError, LaunchError, Pool, run
from ciranda.launch.api import RunOptions

pytestmark = pytest.mark.multiprocess


class IdleStore:
    """A store that nobody connects to."""

    port = 4242

    def __init__(self, bind: list[str], port: int, secret: str, size: int, job: str) -> None:
        assert bind
        assert size > 0

    def lose(self, rank: int, why: str) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def options() -> RunOptions:
    return RunOptions(store_factory=IdleStore)


def test_results_come_back_in_the_order_of_ranks(options: RunOptions) -> None:
    base = 100

    def work(step: int, *, scale: int) -> tuple[int, int]:
        rank = int(os.environ["CIRANDA_RANK"])
        return rank, base + step * scale * rank

    assert run(work, (3,), {"scale": 2}, np=3, options=options) == [(0, 100), (1, 106), (2, 112)]


def test_large_arguments_and_results_survive(options: RunOptions) -> None:
    data = os.urandom(5 << 20)
    assert run(lambda text: text[::-1], (data,), np=2, options=options) == [data[::-1]] * 2


def test_large_arguments_and_results_cost_no_more_than_their_bytes(options: RunOptions) -> None:
    """80 MB there, and 80 back: 2 s of a core. What copies or searches what has come with each piece takes a minute."""
    data = os.urandom(1 << 20) * 40
    before = sum(os.times()[:4])
    assert run(lambda data: data, (data,), np=2, options=options) == [data] * 2
    assert sum(os.times()[:4]) - before < 20


def test_what_a_function_prints_is_not_its_result(options: RunOptions, capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        sys.stdout.write("hello\n")

    assert run(work, np=1, options=options) == [None]
    assert capfd.readouterr().out == "[0]<stdout>:hello\n"


def test_an_exception_is_raised_with_the_ranks_traceback(
    options: RunOptions, capfd: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        if os.environ["CIRANDA_RANK"] == "1":
            raise KeyError("missing thing")
        signal.pause()

    with pytest.raises(LaunchError, match=r"(?s)rank 1 on localhost failed first.*KeyError: 'missing thing'") as caught:
        run(work, np=2, options=options)
    assert caught.value.exit_code == 1
    assert str(caught.value).count("Traceback") == 1
    assert "missing thing" not in capfd.readouterr().err  # it is there once: where the exception is shown


def test_leaving_without_a_result_is_an_error(options: RunOptions) -> None:
    with pytest.raises(LaunchError, match="rank 0 ended without a result"):
        run(os._exit, (0,), np=1, options=options)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda o: run(int, np=0, options=o), HostsError),
        (lambda o: run(int, options=o), LaunchError),
        (lambda o: run(int, np=3, hosts="localhost:2", options=o), HostsError),
    ],
)
def test_impossible_requests_are_refused(
    options: RunOptions, call: Callable[[RunOptions], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(options)


@pytest.mark.parametrize("hosts", ["localhost", "user@elsewhere"])
def test_a_system_that_starts_no_program_is_said_in_a_sentence(
    hosts: str, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent, and the ssh that is asked where a host is."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(LaunchError, match=r"^cannot start .*: this user, .* raise 'ulimit -u'.*$"):
        run(int, np=1, hosts=hosts, options=options)


OTHER_PYTHON = """
from ciranda.launch import sent_function
sent_function.PYTHON = "cpython-27"
"""


def test_a_function_for_another_python_is_refused_by_the_ranks(
    options: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytecode would crash there, or compute something else."""
    (tmp_path / "sitecustomize.py").write_text(OTHER_PYTHON)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    with pytest.raises(LaunchError, match=f"the function was sent by {sys.implementation.cache_tag}, .* is cpython-27"):
        run(lambda: None, np=1, options=options)
    with Pool(np=1, options=options) as pool, pytest.raises(LaunchError, match=r"was sent by .* is cpython-27"):
        pool.run(lambda: None)


def test_it_runs_in_a_thread_and_leaves_signal_handlers_alone(options: RunOptions) -> None:
    before = signal.getsignal(signal.SIGINT)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend(run(os.getppid, np=2, options=options)))
    thread.start()
    thread.join(GUARD_SECONDS)
    assert len(found) == 2
    run(int, np=1, options=options)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_output_dir_is_filled(options: RunOptions, tmp_path: os.PathLike[str]) -> None:
    run(print, ("hi",), np=2, options=RunOptions(store_factory=IdleStore, output_dir=os.fspath(tmp_path)))
    with open(os.path.join(tmp_path, "rank.1", "stdout"), "rb") as file:
        assert file.read() == b"hi\n"
