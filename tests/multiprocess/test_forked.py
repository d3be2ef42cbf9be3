"""Ranks forked from a process that has imported torch are to a test as those that are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import ForkedProcess
from ranks import RankError, Ranks

pytest.importorskip("torch")


def _look() -> dict[str, Any]:
    import torch

    return {
        "had_ciranda": "ciranda" in sys.modules,
        "environment": (os.environ["CIRANDA_RANK"], os.environ["CIRANDA_STALL_WARNING"]),
        "folder": os.getcwd(),
        "group": os.getpgrp(),
        "n_threads": len(os.listdir("/proc/self/task")),
        "interrupts": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "drawn": (torch.rand(4).tolist(), hash("a word")),
    }


def _print_and_exit(code: int) -> None:
    sys.stderr.write("a line of this rank\n")
    sys.exit(code)


def test_they_are_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    common = {
        "had_ciranda": False,
        "folder": str(tmp_path),
        "group": os.getpgrp(),
        "n_threads": 1,
        "interrupts": True,
    }
    worlds = []
    for warning in ("50", "51"):
        with Ranks(2, env={"CIRANDA_STALL_WARNING": warning}, initialize=False, with_torch=True) as ranks:
            assert all(isinstance(process, ForkedProcess) for process in ranks.processes)
            worlds.append(ranks.run(_look))
        drawn = [rank.pop("drawn") for rank in worlds[-1]]
        assert drawn[0][1] != drawn[1][1], "ranks order their sets alike"
        assert worlds[-1] == [{**common, "environment": (str(rank), warning)} for rank in range(2)]
        worlds[-1].append(drawn)
    assert all(a[0] != b[0] for a in worlds[0][-1] for b in worlds[1][-1]), "worlds draw the same"


def test_their_ends_are_told() -> None:
    with Ranks(2, initialize=False, with_torch=True) as ranks:
        interrupted, exiting = ranks.processes
        assert interrupted.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            interrupted.wait(0.01)
        ranks.signal(0, signal.SIGKILL)
        assert interrupted.wait(60) == interrupted.returncode == -signal.SIGKILL
        ranks.signal(0, signal.SIGKILL)  # there is none any more
        ranks.start(1, _print_and_exit, 7)
        with pytest.raises(RankError, match=r"(?s)rank 1 ended with code 7:.*a line of this rank"):
            ranks.outcome(1)
        assert exiting.returncode == 7
        assert not any(Path(f"/proc/{process.pid}").exists() for process in ranks.processes)


def test_what_is_read_at_the_start_needs_one() -> None:
    with Ranks(1, env={"OMP_NUM_THREADS": "2"}, initialize=False, with_torch=True) as ranks:
        assert isinstance(ranks.processes[0], subprocess.Popen)
