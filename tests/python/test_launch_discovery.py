"""Host discovery: what a script may print, and asking it again and again."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ciranda.launch import discovery
from ciranda.launch.discovery import Discovery, HostScript, wait_for
from ciranda.launch.errors import HostsError
from ciranda.launch.hosts import Host


def test_what_a_script_prints() -> None:
    assert HostScript("echo a:2; echo; echo ' b ' ; echo '[fd00::1]:4'", 3).find() == [
        Host("a", 2),
        Host("b", 3),
        Host("fd00::1", 4),
    ]
    assert HostScript("echo a:2; echo b:1; echo a:3").find() == [Host("a", 3), Host("b", 1)], "the last line counts"
    assert HostScript("true").find() == []
    assert HostScript("printf '# all\r\nA:2 # two\r\n\r\nb:1\r\nc:0\nb:00\n'").find() == [Host("A", 2)], "0 are none"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo no >&2; exit 3", "failed with exit code 3: no"),
        ("kill -9 $$", r"was killed by SIGKILL \(signal 9\): it wrote nothing"),
        ("/nonexistent", "failed with exit code 127"),
        ("echo a", "print host:slots, or give --slots"),
        ("echo -- -a:1", "is not a host name"),
        ("echo a:-1", "the slots must be a number"),
        ("echo :0", "is not a host name"),
        ("echo a:1,b:1", "print one host a line"),
        ("printf '\\377\\000'", "is not a host name"),
        ("yes a:1", "has written more than"),
        ("sleep 100", "has not ended within 0.5 s"),
        ("exec >&- 2>&-; sleep 100", "has not ended within 0.5 s"),
    ],
)
def test_what_is_no_answer(command: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "ANSWER_SECONDS", 0.5 if "sleep" in command else 30.0)
    with pytest.raises(HostsError, match=words):
        HostScript(command).find()


@pytest.mark.parametrize("slots", [0, -1])
def test_hosts_without_slots_are_refused(slots: int) -> None:
    with pytest.raises(HostsError, match=f"--slots-per-host {slots}: must be 1 or more"):
        HostScript("echo a", slots)


def test_what_a_script_leaves_behind_is_killed(tmp_path: Path) -> None:
    left = tmp_path / "left"
    HostScript(f"sleep 100 >/dev/null 2>&1 & echo $! > {left}").find()
    pid = int(left.read_text())
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline, "it lives on"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] not in "ZX"
    except OSError:
        return False


def test_waiting_for_hosts() -> None:
    class Growing:
        n_asked = 0

        def find(self) -> Sequence[Host]:
            self.n_asked += 1
            if self.n_asked == 2:
                raise HostsError("no answer")
            return [Host("a", self.n_asked)]

        def stop(self) -> None:
            pass

    said: list[str] = []
    assert wait_for(Growing(), 3, 3, 600, said.append) == [Host("a", 3)]
    assert said == ["waiting for hosts: 1 slot there, 3 are needed"]
    assert wait_for(Growing(), 3, 1, 0, said.append) == [Host("a", 1)]
    with pytest.raises(HostsError, match="within 0 s the discovery script found 1 slot, but 2 are needed"):
        wait_for(Growing(), 3, 2, 0, said.append)


def test_only_other_answers_are_news_and_an_outage_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "PAUSE_SECONDS", 0.01)
    one, two, other = Host("a", 1), Host("a", 2), Host("b", 1)
    answers: list[list[Host] | str] = [[one, other], "first", "second", [other, one], [two], "third"]

    class Answers:
        def find(self) -> Sequence[Host]:
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, str):
                raise HostsError(answer)
            return answer

        def stop(self) -> None:
            pass

    asking = Discovery(Answers(), [one, other])
    try:
        news, warnings = [], []
        while len(warnings) < 2 or not news:
            assert select.select([asking.fd], [], [], 30)[0], "nothing comes any more"
            hosts, warning = asking.take()
            news += [hosts] if hosts is not None else []
            warnings += [warning] if warning else []
        assert news == [[two]], "another order is no news"
        assert warnings == [f"{which}; the hosts of its last answer are kept" for which in ("first", "third")]
    finally:
        asking.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(asking.fd)
