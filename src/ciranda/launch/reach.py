"""How the launcher reaches hosts: by the user's ssh, by srun within an allocation of Slurm, or by what has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ciranda.engines.slurm import srun_for
from ciranda.launch.hosts import Slot
from ciranda.launch.link import Link
from ciranda.launch.ssh import SshOptions


class Reach(Protocol):
    """Starts agents on hosts."""

    @property
    def label(self) -> str:
        """The program that does, in a word."""

    def is_here(self, host: str) -> bool:
        """Whether an agent on ``host`` is a child of the launcher."""

    def link(self, host: str, slots: Sequence[Slot], python: str, python_path: str) -> Link:
        """The agent on ``host``, started by this call if it does not run yet; LaunchError if it cannot be."""

    def resolved_name(self, host: str) -> tuple[str, bool]:
        """The name or address of ``host``, and whether packets from this machine go there directly."""

    def explain(self, host: str, exit_code: int, stderr: str) -> str:
        """One clear error for an agent on ``host`` that did not start: meaning, remedy, and the original message."""


def reach_for(hosts: Sequence[str], options: SshOptions) -> Reach:
    """srun, if all ``hosts`` are nodes of this allocation and no option of ssh is given; else ssh."""
    return srun_for(hosts, options) or options
