"""Ranks on a cluster of Ray: ``run`` for one function, ``Executor`` for ranks that stay between functions.

    import ray
    import ciranda.ray

    ray.init()
    results = ciranda.ray.run(train, np=4)

Ray's own TorchTrainer needs neither: call ``init()`` in its training function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ciranda.ray.executor import Executor, run

__all__ = ["Executor", "run"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from ciranda.ray import executor  # Ray is optional

        return getattr(executor, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
