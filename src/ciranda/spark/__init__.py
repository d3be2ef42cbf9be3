"""``run``: a function on many ranks, in the barrier tasks of a Spark job.

    import ciranda.spark

    results = ciranda.spark.run(train, np=4)

Spark's own TorchDistributor needs it not: call ``init()`` in its training function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ciranda.spark.driver import run

__all__ = ["run"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from ciranda.spark import driver  # Spark is optional

        return getattr(driver, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
