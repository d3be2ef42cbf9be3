"""Sizes as options give them."""

from __future__ import annotations

import pytest

from ciranda._sizes import parse_size


@pytest.mark.parametrize(("text", "n_bytes"), [
    ("4", 4), ("16K", 16 << 10), ("1MiB", 1 << 20), (" 2g ", 2 << 30), ("3 B", 3), ("100MB", 100 << 20),
    ("1 kb", 1 << 10), ("1T", 1 << 40),
])  # fmt: skip
def test_a_size(text: str, n_bytes: int) -> None:
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "0", "0M", "-4", "1.5M", "4X", "K", "4KX", "4 iB", "\u0664"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write 4, 16K, 100M or 2G"):
        parse_size(text)
