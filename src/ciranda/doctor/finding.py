"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: the checked thing.
        status: ``warn`` works but could be better, ``fail`` keeps jobs from running.
        found: the result.
        advice: the remedy; empty if none is needed.
    """

    name: str
    status: Status
    found: str
    advice: str = ""
