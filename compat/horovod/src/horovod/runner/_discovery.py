"""Hosts that a script finds: asked once, when the job starts."""

from __future__ import annotations

from ciranda.launch.errors import HostsError
from horovod.runner.elastic.discovery import HostDiscoveryScript

REMARK = "hosts that come or go later: the discovery script is asked once, when the job starts"


def discover(
    script: str, slots: int | None, num_proc: int | None, min_num_proc: int | None, max_num_proc: int | None
) -> tuple[str, int]:
    """Return the hosts, as `hostA:2,hostB:2`, and how many ranks to start on them.

    That is `num_proc`, or else every slot up to `max_num_proc`; and with `min_num_proc` as many as there are, from that
    number on.

    Raises:
        HostsError: the script cannot be used, or there are too few slots.
    """
    found = HostDiscoveryScript(script, slots).find_available_hosts_and_slots()
    n_slots = sum(found.values())
    fewest = min_num_proc or num_proc or 1
    if n_slots < fewest:
        raise HostsError(f"the discovery script {script!r} found {n_slots} slots, but {fewest} are needed")
    hosts = ",".join(f"[{name}]:{n}" if ":" in name else f"{name}:{n}" for name, n in found.items())
    return hosts, min(num_proc or max_num_proc or n_slots, n_slots)
