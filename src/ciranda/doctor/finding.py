"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: what was looked at.
        status: ``warn`` works but could be better, ``fail`` keeps jobs from running.
        found: what is there.
        advice: what to do; empty when there is nothing to do.
    """

    name: str
    status: Status
    found: str
    advice: str = ""
