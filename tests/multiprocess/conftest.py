"""Worlds of ranks that the tests of this folder share: made when first asked for, made anew if a test broke one."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import netns
import slurm_cluster

try:
    from ranks import Ranks
except ImportError:  # the engine is not built: only the tests of the launcher can run
    Ranks = None  # type: ignore[assignment, misc]


# A shell that starts pytest in the background has it ignore Ctrl-C and SIGQUIT, nohup has it ignore hang-ups, and
# everything that the tests start inherits that; but not what pytest itself handles.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


class Worlds:
    """One world of each size. How its calls go does not depend on how many of them other tests have made."""

    def __init__(self) -> None:
        self._worlds: dict[int, Ranks] = {}

    def of(self, n_ranks: int) -> Ranks:
        world = self._worlds.get(n_ranks)
        if world is not None and world.is_broken:
            world.close(expect_clean=False)
            world = None
        if world is None:
            has_torch = importlib.util.find_spec("torch") is not None
            world = self._worlds[n_ranks] = Ranks(n_ranks, env={"CIRANDA_AUTOTUNE": "0"}, with_torch=has_torch)
        return world

    def close(self) -> None:
        for world in self._worlds.values():
            world.close(expect_clean=not world.is_broken)


@pytest.fixture(scope="session")
def worlds() -> Iterator[Worlds]:
    shared = Worlds()
    yield shared
    shared.close()


@pytest.fixture(params=[1, 2, 3, 4], ids=lambda n: f"{n}ranks")
def world(worlds: Worlds, request: pytest.FixtureRequest) -> Ranks:
    """A world of every size in turn."""
    return worlds.of(request.param)


@pytest.fixture(scope="module")
def hosts() -> Iterator[netns.Hosts]:
    """Three hosts that ssh reaches; the launcher may run on any."""
    reason = netns.why_not()
    if reason is not None:
        pytest.skip(f"SSH BETWEEN HOSTS IS NOT TESTED: {reason}")
    with netns.hosts("hostA", "hostB", "hostC") as made:
        yield made


@pytest.fixture(scope="module")
def cluster() -> Iterator[slurm_cluster.Cluster]:
    """A Slurm of three nodes."""
    if (why := slurm_cluster.why_not()) is not None:
        pytest.skip(f"NOT TESTED, Slurm: {why}")
    with slurm_cluster.cluster(3) as made:
        yield made
