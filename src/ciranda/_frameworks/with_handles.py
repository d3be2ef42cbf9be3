"""The names that packages have beside the common ones if their calls can return handles."""

from ciranda._ops import (
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    Handle,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    poll,
    synchronize,
)
from ciranda.process_sets import get_process_set_ids_and_ranks

__all__ = [
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Handle",
    "LogicalAnd",
    "LogicalOr",
    "LogicalXor",
    "get_process_set_ids_and_ranks",
    "poll",
    "synchronize",
]
