"""Horovod's estimators are not served: who imports their modules is told so, and what to use."""

from __future__ import annotations

from typing import NoReturn


def refuse(module: str) -> NoReturn:
    """Raise ImportError for `module`."""
    raise ImportError(
        f"{module} is not available: this module `horovod` is Ciranda's, which has no estimators. Write the DataFrame "
        "to Parquet, and train in a function that reads this rank's share of it, by horovod.spark.run or Spark's "
        "TorchDistributor",
        name=module,
    )
