"""The mark of optimizers that DistributedOptimizer returned."""

from __future__ import annotations

from typing import Any

#: An attribute of their classes.
MARK = "_ciranda_added"


def is_distributed(optimizer: Any) -> bool:
    """Whether this is what DistributedOptimizer returned."""
    return hasattr(type(optimizer), MARK)
