"""Sizes as options give them. Standard library only; pure."""

from __future__ import annotations

import re

_UNITS = "KMGT"


def parse_size(text: str) -> int:
    """The number of bytes of "4", "16K", "100MB", "1 MiB" or "2g"; K, M, G and T are powers of 1024, in either case.

    Raises:
        ValueError: it is of another form, or not positive.
    """
    found = re.fullmatch(rf"\s*(\d{{1,18}})\s*(?:([{_UNITS}])(?:i?B)?|B)?\s*", text, re.ASCII | re.IGNORECASE)
    if found is None or int(found[1]) == 0:
        raise ValueError(f"{text!r} is not a size: write 4, 16K, 100M or 2G")
    return int(found[1]) << 10 * (_UNITS.index(found[2].upper()) + 1 if found[2] else 0)
