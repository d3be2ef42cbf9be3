"""`horovod.runner.elastic.discovery`: ways to find out which hosts there are."""

from __future__ import annotations

from ciranda.launch.discovery import HostScript

__all__ = ["FixedHosts", "HostDiscovery", "HostDiscoveryScript"]


class HostDiscovery:
    """Finds hosts."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """The slots of each host that there is now."""
        raise NotImplementedError


class HostDiscoveryScript(HostDiscovery):
    """Asks a program, which prints a line `host` or `host:slots` for each host."""

    def __init__(self, discovery_script: str, slots: int | None) -> None:
        self._script = HostScript(discovery_script, slots)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Run the program once, in a shell.

        Raises:
            HostsError: (a ValueError) it failed, or printed what is no host; or a host without slots, and there is no
                number of slots for such hosts.
        """
        return {host.name: host.slots for host in self._script.find()}


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
