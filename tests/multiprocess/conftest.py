"""Circles of ranks that the tests of this folder share: made when first asked for, made anew if a test broke one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import netns

try:
    from ranks import Ranks
except ImportError:  # the engine is not built: only the tests of the launcher can run
    Ranks = None  # type: ignore[assignment, misc]


# A shell that starts pytest in the background has it ignore Ctrl-C, nohup has it ignore hang-ups, and everything that
# the tests start inherits that; but not what pytest itself handles.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


class Circles:
    """One circle of each size. How its calls go does not depend on how many of them other tests have made."""

    def __init__(self) -> None:
        self._circles: dict[int, Ranks] = {}

    def of(self, n_ranks: int) -> Ranks:
        circle = self._circles.get(n_ranks)
        if circle is not None and circle.is_broken:
            circle.close(expect_clean=False)
            circle = None
        if circle is None:
            circle = self._circles[n_ranks] = Ranks(n_ranks, env={"CIRANDA_AUTOTUNE": "0"})
        return circle

    def close(self) -> None:
        for circle in self._circles.values():
            circle.close(expect_clean=not circle.is_broken)


@pytest.fixture(scope="session")
def circles() -> Iterator[Circles]:
    shared = Circles()
    yield shared
    shared.close()


@pytest.fixture(params=[1, 2, 3, 4], ids=lambda n: f"{n}ranks")
def circle(circles: Circles, request: pytest.FixtureRequest) -> Ranks:
    """A circle of every size in turn."""
    return circles.of(request.param)


@pytest.fixture(scope="module")
def hosts() -> Iterator[netns.Hosts]:
    """Three hosts that ssh reaches; the launcher may run on any."""
    reason = netns.why_not()
    if reason is not None:
        pytest.skip(f"SSH BETWEEN HOSTS IS NOT TESTED: {reason}")
    with netns.hosts("hostA", "hostB", "hostC") as made:
        yield made
