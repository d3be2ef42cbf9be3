"""Elastic jobs: the flags of `horovodrun` that ask for one, and what Ciranda's launcher makes of them."""

from __future__ import annotations

import os
import sys
from typing import Any

from ciranda.launch.api import chosen_hosts
from ciranda.launch.discovery import HostScript
from ciranda.launch.elastic import WAIT_SECONDS, ElasticJob, Wishes, cooldown_of, discovered_job, elastic_job
from ciranda.launch.errors import LaunchError
from ciranda.launch.hosts import Slot, assign
from ciranda.launch.offers import NEVER


def is_elastic(args: Any) -> bool:
    """Whether an elastic job is asked for, as in Horovod: by the fewest or the most ranks, or a discovery script."""
    return any(each is not None for each in (args.host_discovery_script, args.min_num_proc, args.max_num_proc))


def job_and_slots(args: Any, stall_seconds: float | None) -> tuple[ElasticJob, list[Slot]]:
    """Return the job, and where its ranks are started. With a discovery script, waits until there are enough slots.

    Without a number of most ranks, as many run as there are slots. Without a cooldown, a host of which a rank has
    failed is not used again.

    Raises:
        HostsError, LaunchError: the numbers contradict each other, or there are too few slots.
    """
    cooldown = cooldown_of(args.cooldown_range) or NEVER
    rest = (args.reset_limit, wait_seconds(args.elastic_timeout), stall_seconds, cooldown)
    if args.host_discovery_script is not None:
        if args.hosts is not None or args.hostfile is not None:
            raise LaunchError("give either --host-discovery-script or hosts (-H, --hostfile), not both", exit_code=2)
        script = HostScript(args.host_discovery_script, args.slots)
        wishes = Wishes(args.num_proc, args.min_num_proc, args.max_num_proc, *rest, is_bounded=False)
        job = discovered_job(script, wishes, lambda text: print(f"horovodrun: {text}", file=sys.stderr))
        return job, job.first_slots()
    num_proc = args.num_proc or args.min_num_proc
    hosts = chosen_hosts(args.max_num_proc or num_proc, args.hosts, args.hostfile, args.per_host)
    n_slots = sum(host.slots for host in hosts)
    job = elastic_job(num_proc or n_slots, args.min_num_proc, args.max_num_proc or n_slots, *rest)
    return job, assign(hosts, job.most)


def wait_seconds(asked: float | None) -> float:
    """Return how long ranks wait for others: as asked, else HOROVOD_ELASTIC_TIMEOUT, else 600."""
    if asked is not None:
        return asked
    text = os.environ.get("HOROVOD_ELASTIC_TIMEOUT", str(WAIT_SECONDS))
    try:
        return float(text)
    except ValueError:
        raise LaunchError(f"HOROVOD_ELASTIC_TIMEOUT={text!r} is not a number of seconds", exit_code=2) from None
