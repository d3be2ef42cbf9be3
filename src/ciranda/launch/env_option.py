"""The option --env of commands that start ranks."""

from __future__ import annotations

from collections.abc import Iterable

from ciranda.launch.errors import LaunchError


def pairs(entries: Iterable[str]) -> dict[str, str]:
    """Return the variables of its values, ``NAME=VALUE`` each; LaunchError for what is none."""
    found = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not name or not equals:
            raise LaunchError(f"--env {entry!r}: write NAME=VALUE", exit_code=2)
        found[name] = value
    return found
