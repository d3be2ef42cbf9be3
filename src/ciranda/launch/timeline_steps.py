"""``--timeline-steps``: between which steps of the training ranks record their calls. Pure."""

from __future__ import annotations

import re

from ciranda.launch.errors import LaunchError


def parse_steps(text: str) -> tuple[int, int]:
    """How many steps end before the first record, and before the last; for the latter 0: there is no last.

    Raises:
        LaunchError: not of the form "10:20", ":20" or "10:", or no steps.
    """
    found = re.fullmatch(r"(\d{0,12}):(\d{0,12})", text, re.ASCII)
    begin, end = (int(number or 0) for number in found.groups()) if found else (1, 1)
    if found is None or (found[2] and end <= begin):
        raise LaunchError(f"--timeline-steps {text!r}: must be as 10:20, the ten steps after the tenth", exit_code=2)
    return begin, end
