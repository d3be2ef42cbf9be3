"""The errors of launching, by what the caller can do."""

from __future__ import annotations

from ciranda.launch.failure import RankFailure


class HostsError(ValueError):
    """The requested hosts, slots or number of processes cannot be used; the text has the reason and the remedy."""


class ProtocolError(ValueError):
    """A message between launcher and agent is malformed, too long or of another version."""


class LaunchError(RuntimeError):
    """The job could not be started, or did not end well.

    Attributes:
        exit_code: the exit code of ``ciranda run``: that of the first failing rank, ``128 + n`` for signal ``n``.
        failure: the rank that failed first, if any.
    """

    def __init__(self, text: str, exit_code: int = 1, failure: RankFailure | None = None) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.failure = failure
