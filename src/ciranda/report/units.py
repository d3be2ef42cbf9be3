"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_DAY, _HOUR, _MINUTE = 86400, 3600, 60


def seconds(value: float) -> str:
    """``51.2 ms``; ``3 min 20 s`` from two minutes on."""
    if value >= 2 * _MINUTE:
        return _long(round(value))
    if value <= 0:
        return "0"
    scale, unit = next((each for each in _TIMES if value >= each[0]), _TIMES[-1])
    return f"{_three(value / scale)} {unit}"


def _long(value: int) -> str:
    if value >= _DAY:
        return f"{value // _DAY} d {value % _DAY // _HOUR} h"
    if value >= _HOUR:
        return f"{value // _HOUR} h {value % _HOUR // _MINUTE} min"
    return f"{value // _MINUTE} min {value % _MINUTE} s"


def n_bytes(value: float) -> str:
    """``1.05 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{_three(value) if unit != 'B' else round(value)} {unit}"
        value /= 1000
    raise AssertionError


def bandwidth(bytes_per_second: float) -> str:
    """``2.30 GB/s``; empty for nothing."""
    return f"{n_bytes(bytes_per_second)}/s" if bytes_per_second > 0 else ""


def share(value: float) -> str:
    """``12%``."""
    return f"{value:.0%}" if value >= 0.1 or value < 5e-4 else f"{value:.1%}"


def _three(value: float) -> str:
    """Three digits that count."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ranks(named: Sequence[int], n_more: int = 0) -> str:
    """``rank 2``; ``ranks 0, 2 and 3 more``; ``3 ranks`` if none of them is named."""
    if not named:
        return f"{n_more} ranks"
    more = f" and {n_more} more" if n_more else ""
    return f"rank{'s' if len(named) + n_more > 1 else ''} {', '.join(map(str, named))}{more}"
