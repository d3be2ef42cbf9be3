"""`horovod.runner.elastic.discovery`: ways to find out which hosts there are."""

from __future__ import annotations

import subprocess

from ciranda.launch.errors import HostsError
from ciranda.launch.hosts import parse_hosts

__all__ = ["FixedHosts", "HostDiscovery", "HostDiscoveryScript"]


class HostDiscovery:
    """Finds hosts."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """The slots of each host that there is now."""
        raise NotImplementedError


class HostDiscoveryScript(HostDiscovery):
    """Asks a program, which prints a line `host` or `host:slots` for each host."""

    def __init__(self, discovery_script: str, slots: int | None) -> None:
        self._discovery_script = discovery_script
        self._default_slots = slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Run the program once, in a shell.

        Raises:
            HostsError: (a ValueError) it failed, or printed what is no host; or a host without slots, and there is no
                number of slots for such hosts.
        """
        command = self._discovery_script
        done = subprocess.run(command, shell=True, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            said = done.stderr.strip() or "it wrote nothing to stderr"
            raise HostsError(f"the discovery script {command!r} failed with exit code {done.returncode}: {said}")
        found: dict[str, int] = {}
        for line in filter(None, map(str.strip, done.stdout.splitlines())):
            (host,) = parse_hosts(line)
            has_slots = ":" in line.rpartition("]")[2]
            if not has_slots and self._default_slots is None:
                raise HostsError(
                    f"the discovery script {command!r} printed {line!r}: print host:slots, or give --slots"
                )
            found[host.name] = host.slots if has_slots else int(self._default_slots or 0)
        return found


class FixedHosts(HostDiscovery):
    """Hosts that are known; `set` changes them."""

    def __init__(self, host_slots: dict[str, int]) -> None:
        self._host_slots = host_slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """As given."""
        return self._host_slots

    def set(self, host_slots: dict[str, int]) -> None:
        """Other hosts, from now on."""
        self._host_slots = host_slots
