"""What can go wrong while launching, by what the caller can do about it."""

from __future__ import annotations

from ciranda.launch.failure import RankFailure


class HostsError(ValueError):
    """The hosts, slots or number of processes asked for cannot be used; the text says why and what to write instead."""


class ProtocolError(ValueError):
    """A message between launcher and agent is malformed, too long or of another version."""


class LaunchError(RuntimeError):
    """The job could not be started, or did not end well.

    Attributes:
        exit_code: what ``ciranda run`` exits with: the first failing rank's own code, ``128 + n`` for signal ``n``.
        failure: the rank to blame, if one is.
    """

    def __init__(self, text: str, exit_code: int = 1, failure: RankFailure | None = None) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.failure = failure
