"""`horovod.runner.util.cache`: results that are kept in a file for a while."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

__all__ = ["Cache", "use_cache"]


class Cache:
    """Values by key, in `cache_folder`/cache.bin. They are lost when they are old, or were kept for other parameters.

    Args:
        cache_folder: made if it is not there.
        cache_staleness_threshold_in_minutes: how long values count.
        parameters_hash: what they depend on.
    """

    def __init__(self, cache_folder: str, cache_staleness_threshold_in_minutes: float, parameters_hash: str) -> None:
        self._path = Path(cache_folder) / "cache.bin"
        self._seconds = 60 * cache_staleness_threshold_in_minutes
        self._parameters_hash = parameters_hash
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._values = self._load()

    def _load(self) -> dict[Any, tuple[Any, float]]:
        try:
            kept = pickle.loads(self._path.read_bytes())
            values: dict[Any, tuple[Any, float]] = kept["values"]
            return values if kept["parameters_hash"] == self._parameters_hash else {}
        except (OSError, EOFError, KeyError, TypeError, pickle.UnpicklingError):  # none yet, or of another program
            return {}

    def get(self, key: Any) -> Any:
        """The value of `key`; None without one that counts."""
        value, since = self._values.get(key, (None, 0.0))
        return value if time.time() - since < self._seconds else None

    def put(self, key: Any, val: Any) -> None:
        """Keep `val`, from now on."""
        self._values[key] = (val, time.time())
        kept = {"parameters_hash": self._parameters_hash, "values": self._values}
        self._path.write_bytes(pickle.dumps(kept))

    def parameters_hash(self) -> str:
        """What the values depend on."""
        return self._parameters_hash


def use_cache() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function takes `fn_cache`, a Cache, which then has its results (but None) by its arguments."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(func)
        def call(*args: Any, fn_cache: Cache | None = None, **kwargs: Any) -> Any:
            if fn_cache is None:
                return func(*args, **kwargs)
            key = (func.__name__, str(args), str(sorted(kwargs.items())))
            result = fn_cache.get(key)
            if result is None:
                result = func(*args, **kwargs)
                if result is not None:
                    fn_cache.put(key, result)
            return result

        return call

    return decorate
