"""What the user asks of an elastic job. Pure: numbers in, limits out, errors that say what to write instead."""

from __future__ import annotations

from dataclasses import dataclass

from ciranda.launch.errors import HostsError
from ciranda.launch.supervisor import Limits

WAIT_SECONDS = 600.0


@dataclass(frozen=True)
class ElasticJob:
    """An elastic job's numbers of ranks, and how long they wait for one another.

    Attributes:
        start: ranks of the first world.
        least, most: of any world.
        limits: for the supervisor.
    """

    start: int
    least: int
    most: int
    limits: Limits


def elastic_job(
    num_proc: int,
    least: int | None = None,
    most: int | None = None,
    resets: int | None = None,
    wait_seconds: float = WAIT_SECONDS,
    stall_seconds: float | None = None,
) -> ElasticJob:
    """Return the job with ``num_proc`` ranks at the start, ``least`` of which go on and that may become ``most``.

    ``stall_seconds``: how long the ranks wait for one that stays silent, if that is set.

    Raises:
        HostsError: the numbers contradict each other.
    """
    fewest = num_proc if least is None else least
    many = num_proc if most is None else most
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
    return ElasticJob(num_proc, fewest, many, Limits(num_proc, fewest, wait_seconds, patience, resets))
