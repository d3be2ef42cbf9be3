"""Lines, prefixes, progress bars and the report of a failure."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda.launch import protocol
from ciranda.launch.agent import Agent
from ciranda.launch.failure import TAIL_BYTES, RankFailure, culprit, last_words, report
from ciranda.launch.held import Held
from ciranda.launch.memory_kills import MemoryKills
from ciranda.launch.output import MAX_PARTIAL_BYTES, STDERR, STDOUT, LineBuffer, Screen, ScreenStyle, fit

CLEAR = b"\r\x1b[K"


def text_of(writes: list[tuple[int, bytes]]) -> bytes:
    return b"".join(data for _, data in writes)


def test_lines_carry_rank_and_stream() -> None:
    screen = Screen(ScreenStyle())
    assert screen.feed(0, "stdout", b"one\ntwo\nthr") == [
        (STDOUT, b"[0]<stdout>:one\n"),
        (STDOUT, b"[0]<stdout>:two\n"),
    ]
    assert screen.feed(12, "stderr", b"oops\n") == [(STDERR, b"[12]<stderr>:oops\n")]
    assert screen.feed(0, "stdout", b"ee\n") == [(STDOUT, b"[0]<stdout>:three\n")]


def test_an_unfinished_line_appears_at_the_end() -> None:
    screen = Screen(ScreenStyle())
    assert screen.feed(1, "stdout", b"no newline") == []
    assert screen.finish(1) == [(STDOUT, b"[1]<stdout>:no newline\n")]
    assert screen.finish(1) == []


def test_time_stands_in_front_when_asked_for() -> None:
    screen = Screen(ScreenStyle(timestamp=True, now=lambda: 1_700_000_000.25))
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_700_000_000)).encode()
    assert screen.feed(0, "stdout", b"x\n") == [(STDOUT, clock + b".250 [0]<stdout>:x\n")]


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_without_prefix_and_terminal_every_byte_passes_unchanged(pieces: list[bytes]) -> None:
    screen = Screen(ScreenStyle(prefix=False))
    out = b"".join(text_of(screen.feed(0, "stdout", piece)) for piece in pieces)
    assert out + text_of(screen.finish(0)) == b"".join(pieces)


def test_without_prefix_streams_do_not_mix_within_a_line() -> None:
    screen = Screen(ScreenStyle(prefix=False))
    out = screen.feed(0, "stdout", b"he") + screen.feed(1, "stdout", b"other\n") + screen.feed(0, "stdout", b"llo\n")
    assert text_of(out) == b"other\nhello\n"


def test_in_a_file_a_redrawn_line_appears_once_as_it_last_looked() -> None:
    screen = Screen(ScreenStyle())
    assert screen.feed(0, "stderr", b"\r 0%") == []
    assert screen.feed(0, "stderr", b"\r 50%") == []
    assert screen.feed(0, "stderr", b"\r100%\n") == [(STDERR, b"[0]<stderr>:100%\n")]
    assert screen.feed(0, "stdout", b"dos line\r\n") == [(STDOUT, b"[0]<stdout>:dos line\n")]


def test_on_a_terminal_the_progress_bar_stays_below_the_others_lines() -> None:
    screen = Screen(ScreenStyle(columns=80))
    assert text_of(screen.feed(0, "stderr", b"\r10%")) == b"[0]<stderr>:10%"
    assert text_of(screen.feed(1, "stdout", b"hello\n")) == CLEAR + b"[1]<stdout>:hello\n" + b"[0]<stderr>:10%"
    assert text_of(screen.feed(0, "stderr", b"\r20%")) == CLEAR + b"[0]<stderr>:20%"
    assert text_of(screen.feed(0, "stderr", b"\r99%\n")) == CLEAR + b"[0]<stderr>:99%\n"
    assert text_of(screen.feed(1, "stdout", b"bye\n")) == b"[1]<stdout>:bye\n"


def test_on_a_terminal_only_the_lowest_ranks_bar_is_live() -> None:
    screen = Screen(ScreenStyle(columns=80))
    assert text_of(screen.feed(1, "stderr", b"\rone 10%")) == b"[1]<stderr>:one 10%"
    assert text_of(screen.feed(0, "stderr", b"\rzero 5%")) == CLEAR + b"[0]<stderr>:zero 5%"
    assert screen.feed(1, "stderr", b"\rone 20%") == []
    assert text_of(screen.finish(0)) == CLEAR + b"[0]<stderr>:zero 5%\n" + b"[1]<stderr>:one 20%"


def test_a_live_line_never_wraps() -> None:
    screen = Screen(ScreenStyle(columns=20))
    drawn = text_of(screen.feed(0, "stderr", b"\r" + b"x" * 100))
    assert drawn == b"[0]<stderr>:" + b"x" * 7


def test_the_launchers_own_words_go_above_the_live_line() -> None:
    screen = Screen(ScreenStyle(columns=40))
    screen.feed(0, "stderr", b"\r10%")
    assert text_of(screen.say("note")) == CLEAR + b"note\n" + b"[0]<stderr>:10%"


@pytest.mark.parametrize(
    ("line", "columns", "expected"),
    [
        ("abcdef", 3, "abc"),
        ("\x1b[31mabcdef\x1b[0m", 3, "\x1b[31mabc\x1b[0m"),
        ("日本語", 4, "日本"),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301e\u0301"),
    ],
)
def test_fitting_counts_cells_not_characters(line: str, columns: int, expected: str) -> None:
    assert fit(line.encode(), columns).decode().startswith(expected)


def test_endless_lines_and_bars_do_not_fill_memory() -> None:
    buffer = LineBuffer()
    n_bytes = sum(len(line) for _ in range(40) for line in buffer.feed(b"x" * (64 << 10)))
    assert n_bytes >= 40 * (64 << 10) - MAX_PARTIAL_BYTES
    for i in range(1000):
        assert buffer.feed(b"\r%d" % i) == []
    assert buffer.partial == b"999"
    assert len(buffer._partial) < 10


@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"bc", b"\r\n"]), max_size=30), st.integers(1, 5))
def test_lines_do_not_depend_on_how_the_stream_is_cut(pieces: list[bytes], step: int) -> None:
    stream = b"".join(pieces)
    whole, cut = LineBuffer(), LineBuffer()
    at_once = whole.feed(stream) + whole.finish()
    in_pieces = [line for i in range(0, len(stream), step) for line in cut.feed(stream[i : i + step])] + cut.finish()
    assert at_once == in_pieces


TRACE = b'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nValueError: boo\n'


def test_the_last_words_are_the_traceback() -> None:
    assert last_words(b"warning\nanother\n" + TRACE) == TRACE.rstrip()
    assert last_words(b"".join(b"%d\n" % i for i in range(100))) == b"\n".join(b"%d" % i for i in range(80, 100))
    assert last_words(b"") == b""
    assert last_words(b"\r10%\r20%" + b"\n" + TRACE) == TRACE.rstrip()


def test_the_report_names_rank_host_and_code() -> None:
    text = report(RankFailure(3, "hostB", 7, b"noise\n" + TRACE))
    first, *rest = text.splitlines()
    assert first.startswith("ciranda: rank 3 on hostB failed first: exit code 7")
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: boo"
    assert "killed by SIGKILL (signal 9)" in report(RankFailure(0, "a", -9, b""))
    of_memory = RankFailure(0, "a", -9, b"", is_for_memory=True)
    assert (
        of_memory.how()
        == "killed by SIGKILL (signal 9); the kernel has killed a process of this host for want of memory"
    )
    of_stop = RankFailure(0, "a", -9, b"", stopped_seconds=60.0)
    assert of_stop.how() == "killed by SIGKILL (signal 9), since it was stopped for 60 s (CIRANDA_STOPPED_SECONDS)"
    assert report(of_stop).endswith("it wrote nothing to stderr"), "why it was killed is known"
    assert RankFailure(0, "a", -9, b"").exit_code == 137
    assert RankFailure(0, "a", 7, b"").exit_code == 7


def test_each_kill_for_want_of_memory_accounts_for_one_process(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("pgfault 9\noom_kill 3\n")
    kills = MemoryKills(str(vmstat))
    assert not kills.took_one()
    vmstat.write_text("pgfault 9\noom_kill 5\n")
    assert [kills.took_one() for _ in range(3)] == [True, True, False]
    vmstat.unlink()
    assert not MemoryKills(str(vmstat)).took_one()


def test_the_rank_to_blame_is_the_one_that_does_not_point_at_another() -> None:
    lost = RankFailure(0, "a", 1, b"ciranda.errors.RanksLostError: rank 2 on b died")
    cause = RankFailure(2, "b", -11, b"")
    assert culprit([lost, cause]) is cause
    assert culprit([lost]) is lost


def held() -> tuple[Held, list[float]]:
    clock = [0.0]
    return Held(lambda: clock[0]), clock


def test_a_traceback_is_kept_back_and_nothing_else() -> None:
    kept, _ = held()
    assert kept.feed(b"warning\n") == b"warning\n"
    assert kept.feed(b"error\n" + TRACE) == b"error\n"
    assert kept.feed(b"more\n") == b""
    assert kept.take() == TRACE + b"more\n"
    assert kept.feed(b"later\n") == b"later\n"


def test_a_traceback_is_not_kept_back_for_long() -> None:
    kept, clock = held()
    kept.feed(TRACE)
    assert kept.deadline is not None
    clock[0] = kept.deadline - 0.01
    assert kept.expired() == b""
    clock[0] = kept.deadline
    assert kept.expired() == TRACE
    assert (kept.deadline, kept.expired()) == (None, b"")


def test_no_more_is_kept_back_than_the_report_can_show() -> None:
    kept, _ = held()
    kept.feed(TRACE)
    much = b"x" * TAIL_BYTES
    assert kept.feed(much) == TRACE + much


# -- the agent -------------------------------------------------------------------------------------------------------


def test_what_a_dead_rank_wrote_is_passed_on_before_its_exit_is_told() -> None:
    """All of it, however little else waits to be sent; and not what others go on to write."""
    inbox, outbox = os.pipe()
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    agent = Agent(inbox, outbox)
    agent._pipes[read_end] = (0, "stderr")
    for text in (b"a" * 50_000, b"last words"):
        os.write(write_end, text)
        agent._drain([read_end])
        messages = [protocol.decode(line) for line in bytes(agent._outbox._queue).splitlines()]
        assert b"".join(protocol.unpack(message["data"]) for message in messages) == text
        agent._outbox._queue.clear()
    for fd in (inbox, outbox, read_end, write_end):
        os.close(fd)
    os.close(agent._wake_read)
    os.close(agent._wake_write)
    agent._selector.close()
