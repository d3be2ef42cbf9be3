"""What the user asks of an elastic job, and the line of an agent to one rank."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ciranda._line import Line
from ciranda.errors import AbortedError
from ciranda.launch.elastic import elastic_job
from ciranda.launch.errors import HostsError
from ciranda.launch.rank_line import MAX_WORD_BYTES, RankLine


def test_numbers_of_ranks_by_default() -> None:
    job = elastic_job(4)
    assert (job.start, job.least, job.most) == (4, 4, 4)
    assert (job.limits.wait_seconds, job.limits.patience_seconds, job.limits.resets) == (600, 600, None)
    assert elastic_job(4, 2, 8, stall_seconds=5).limits.patience_seconds == 5


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((3, 5, 3), "--max-np 3 is less than --min-np 5"),
        ((3, 5), "-np 3 is less than --min-np 5"),
        ((3, 0), "--min-np 0"),
        ((3, -1), "--min-np -1"),
        ((4, 2, 3), "-np 4 is more than --max-np 3"),
        ((4, 2, 4, -1), "--reset-limit -1"),
        ((0,), "-np 0: the number of processes must be 1 or more"),
        ((-1, 1), "-np -1: the number of processes must be 1 or more"),
        ((0, 0, 0), "-np 0"),
    ],
)
def test_numbers_that_contradict_each_other(numbers: tuple[int, ...], words: str) -> None:
    with pytest.raises(HostsError, match=words):
        elastic_job(*numbers)


@pytest.fixture
def agents() -> Iterator[RankLine]:
    line = RankLine()
    yield line
    line.theirs.close()
    line.close()


@pytest.fixture
def lines(agents: RankLine) -> Iterator[tuple[RankLine, Line]]:
    ranks = Line(agents.theirs.detach())
    yield agents, ranks
    ranks.close()


ROSTER = {"t": "roster", "epoch": 3, "members": [[0, 1], [2, 4]], "newcomers": [[2, 4]], "commits": 7, "sync": True}


def test_words_go_both_ways(lines: tuple[RankLine, Line]) -> None:
    agents, ranks = lines
    ranks.say(t="ready", commits=5, waited=False)
    assert agents.read() == [{"t": "ready", "commits": 5, "waited": False}]
    agents.send({"t": "invite", "on": True})
    agents.send({"t": "invite", "on": False})
    ranks.look()
    assert not ranks.is_invited
    agents.send({"t": "invite", "on": True})
    ranks.look()
    assert ranks.is_invited
    agents.send({**ROSTER, "told": {"CIRANDA_RANK": "1"}})
    roster = ranks.wait()
    assert roster is not None
    assert (roster.epoch, roster.members, roster.newcomers) == (3, [(0, 1), (2, 4)], [(2, 4)])
    assert (roster.commits, roster.needs_sync, roster.told) == (7, True, {"CIRANDA_RANK": "1"})
    assert not ranks.is_invited, "those that wanted to join have joined"
    agents.send({"t": "lost", "epoch": 3})
    assert ranks.is_lost(3)
    assert not ranks.is_lost(4)
    agents.send({"t": "release"})
    assert ranks.wait() is None


def test_a_dismissed_process_ends(lines: tuple[RankLine, Line]) -> None:
    agents, ranks = lines
    agents.send({"t": "dismiss"})
    with pytest.raises(SystemExit) as ended:
        ranks.wait()
    assert ended.value.code == 0


def test_a_rank_whose_agent_is_gone_says_so(lines: tuple[RankLine, Line]) -> None:
    agents, ranks = lines
    agents.close()
    with pytest.raises(AbortedError, match="agent"):
        ranks.wait()
    assert ranks.is_lost(0)


@pytest.mark.parametrize("garbage", [b"no word\n", b"[1]\n", b"x" * (MAX_WORD_BYTES + 1)])
def test_a_rank_that_says_no_words_is_heard_no_more(agents: RankLine, garbage: bytes) -> None:
    agents.theirs.send(garbage)
    assert agents.read() == []
    assert agents.is_over
    agents.close()
    agents.send({"t": "invite"})
    assert not agents.has_outgoing


def test_an_agent_never_waits_for_a_rank_to_read(agents: RankLine) -> None:
    while not agents.has_outgoing:
        agents.send({"t": "invite"})
    n_bytes = 0
    while agents.has_outgoing:
        n_bytes += len(os.read(agents.theirs.fileno(), 1 << 20))
        agents.flush()
    assert n_bytes > 0


def test_a_closed_line_is_an_error() -> None:
    code = "import ciranda\ntry: ciranda.init()\nexcept ValueError as error: print(error)\n"
    for number in ("0", "99"):
        env = {**os.environ, "CIRANDA_AGENT_FD": number}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        )
        assert "has closed its socket to the agent" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--elastic", "-np", "3", "--max-np", "4", "-H", "localhost:3"], "-np 4 is more than the 3 slots"),
        (["--elastic", "-np", "3", "--min-np", "5"], "-np 3 is less than --min-np 5"),
        (["--elastic", "-np", "3", "--jax-native"], "--jax-native does not go with --elastic"),
        (["-np", "3", "--min-np", "2"], "are for --elastic: add it"),
        (["-np", "3", "--host-discovery-script", "true"], "are for --elastic: add it"),
        (["-np", "3", "--stopped-seconds", "5"], "are for --elastic: add it"),
        (["--elastic", "-np", "0"], "-np 0: the number of processes must be 1 or more"),
        (["--elastic", "-np", "1", "--max-np", "3", "--min-np", "5"], "--max-np 3 is less than --min-np 5"),
        (["--elastic", "--host-discovery-script", "true", "-H", "a:1"], "finds the hosts: leave out -H"),
        (["--elastic", "--host-discovery-script", "true", "-np", "-1"], "-np -1: the number"),
        (["--elastic", "-np", "2", "--cooldown", "3", "2"], "a cooldown of 3 to 2 s"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together(arguments: list[str], words: str) -> None:
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", *arguments, "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
