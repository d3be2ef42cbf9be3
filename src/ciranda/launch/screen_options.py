"""``--ranks`` and ``--output-max-bytes``: what they say. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ciranda._sizes import parse_size
from ciranda.launch.errors import LaunchError

_LEAST_BYTES = 4 << 10


def parse_ranks(text: str, n_ranks: int | None) -> frozenset[int]:
    """The ranks of a list like "0,3" or "0-3,8".

    Raises:
        LaunchError: it is of another form, or has a rank that is not below ``n_ranks``; None: ranks may yet come.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,7})(?:-(\d{1,7}))?\s*", part, re.ASCII)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first:
            raise LaunchError(f"--ranks {text!r}: must be as 0,3 or 0-3,8", exit_code=2)
        if n_ranks is not None and last >= n_ranks:
            raise LaunchError(f"--ranks {text!r}: there is no rank {last}, of {n_ranks}", exit_code=2)
        ranks.update(range(first, last + 1))
    return frozenset(ranks)


def all_there(wanted: frozenset[int] | None, found: Iterable[int]) -> None:
    """Check that all of the wanted ranks are among those of a job that were found; None: all.

    Raises:
        LaunchError: one is not.
    """
    there = sorted(found)
    missing = sorted((wanted or frozenset()).difference(there))
    if missing:
        have = f"those that run are {', '.join(map(str, there))}" if there else "none runs"
        raise LaunchError(f"--ranks: there is no rank {missing[0]}; {have}", exit_code=2)


def parse_max_bytes(text: str) -> int:
    """The number of bytes of a text like "1000000", "512K", "100M" or "2G".

    Raises:
        LaunchError: it is of another form, or too small for a file of lines.
    """
    try:
        n_bytes = parse_size(text)
    except ValueError as error:
        raise LaunchError(f"--output-max-bytes: {error}", exit_code=2) from None
    if n_bytes < _LEAST_BYTES:
        raise LaunchError(f"--output-max-bytes {text!r}: must be {_LEAST_BYTES} at least", exit_code=2)
    return n_bytes
