"""What the user asks of an elastic job: numbers in, limits out, errors that say what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ciranda.launch.discovery import Finder, wait_for
from ciranda.launch.errors import HostsError
from ciranda.launch.hosts import MAX_SIZE, Host, Slot, assign, checked_size
from ciranda.launch.offers import Cooldown
from ciranda.launch.supervisor import Limits

WAIT_SECONDS = 600.0


@dataclass(frozen=True)
class ElasticJob:
    """An elastic job's numbers of ranks, and how long they wait for one another.

    Attributes:
        start: ranks of the first world.
        least, most: of any world.
        limits: for the supervisor.
        finder: asked for the hosts that there are while the job runs; None: they stay the same.
        hosts: its first answer.
    """

    start: int
    least: int
    most: int
    limits: Limits
    finder: Finder | None = None
    hosts: tuple[Host, ...] = ()

    def first_slots(self) -> list[Slot]:
        """Where ranks are started at first, if hosts are discovered."""
        return assign(self.hosts, min(self.most, sum(host.slots for host in self.hosts)))


def elastic_job(
    num_proc: int,
    least: int | None = None,
    most: int | None = None,
    resets: int | None = None,
    wait_seconds: float = WAIT_SECONDS,
    stall_seconds: float | None = None,
    cooldown: Cooldown | None = None,
) -> ElasticJob:
    """Return the job with ``num_proc`` ranks at the start, ``least`` of which go on and that may become ``most``.

    ``stall_seconds``: how long the ranks wait for one that stays silent, if that is set.

    Raises:
        HostsError: the numbers contradict each other.
    """
    fewest = num_proc if least is None else least
    many = num_proc if most is None else most
    checked_size(num_proc)
    if fewest < 1:
        raise HostsError(f"--min-np {fewest}: the number of processes must be 1 or more")
    if most is not None and most < fewest:
        raise HostsError(f"--max-np {most} is less than --min-np {fewest}: no number of ranks is allowed")
    if num_proc < fewest:
        raise HostsError(f"-np {num_proc} is less than --min-np {fewest}: the job could not start")
    if num_proc > many:
        raise HostsError(f"-np {num_proc} is more than --max-np {many}: raise --max-np, or lower -np")
    if resets is not None and resets < 0:
        raise HostsError(f"--reset-limit {resets}: must be 0 or more")
    patience = stall_seconds or wait_seconds
    limits = Limits(num_proc, fewest, wait_seconds, patience, resets, many, cooldown)
    return ElasticJob(num_proc, fewest, many, limits)


@dataclass(frozen=True)
class Wishes:
    """An elastic job whose hosts are to be discovered, as the user asks for it; the fields are elastic_job()'s.

    Attributes:
        is_bounded: whether a job without ``most`` stays as large as it was at the start.
    """

    num_proc: int | None = None
    least: int | None = None
    most: int | None = None
    resets: int | None = None
    wait_seconds: float = WAIT_SECONDS
    stall_seconds: float | None = None
    cooldown: Cooldown | None = None
    is_bounded: bool = True

    def job(self, num_proc: int, most: int | None) -> ElasticJob:
        """Return the job with so many ranks."""
        rest = (self.resets, self.wait_seconds, self.stall_seconds, self.cooldown)
        return elastic_job(num_proc, self.least, most, *rest)


def discovered_job(finder: Finder, wishes: Wishes, say: Callable[[str], None]) -> ElasticJob:
    """Return the job on the hosts that are found; waits until there are enough.

    Without a number of ranks, it starts with every slot that the first answer with enough of them has.

    Raises:
        HostsError: the numbers contradict each other, there is no first answer, or there are too few slots in time.
    """
    least = 1 if wishes.num_proc is None else wishes.num_proc
    least = least if wishes.least is None else wishes.least
    wanted = wishes.num_proc or least
    wishes.job(wanted, wishes.most)  # refuses contradictions before anything is asked
    hosts = wait_for(finder, wanted, least, wishes.wait_seconds, say)
    n_slots = sum(host.slots for host in hosts)
    start = min(n_slots, wishes.num_proc or wishes.most or MAX_SIZE)
    most = wishes.most or (start if wishes.is_bounded else MAX_SIZE)
    job = replace(wishes, least=least).job(start, max(most, wishes.num_proc or 0))
    return replace(job, finder=finder, hosts=tuple(hosts))


def cooldown_of(seconds: Sequence[float] | None) -> Cooldown | None:
    """Return the cooldown with these bounds; HostsError if they are none."""
    if seconds is None:
        return None
    low, high = seconds
    if not 0 < low <= high:
        raise HostsError(f"a cooldown of {low:g} to {high:g} s: write two numbers of seconds, the lesser first")
    return Cooldown(low, high)
