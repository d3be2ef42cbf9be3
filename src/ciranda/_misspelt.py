"""Names in the environment that look like settings of Ciranda's, but are none. Pure, but for `warn()`."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Iterable
from functools import cache

#: Names that `ciranda run` has told of, for ranks, which need not tell again.
TOLD = "CIRANDA_TOLD_NAMES"
#: What ranks get for ends of Ciranda's own.
INTERNAL = (
    "CIRANDA_AGENT_FD",
    "CIRANDA_CALL_FILE",
    "CIRANDA_RESULT_FD",
    "CIRANDA_TAKEN_BY",
    "CIRANDA_TORCH_STORE",
    TOLD,
)
#: What Python reads itself.
BINDINGS_OWN = ("CIRANDA_HANDOVER_FOLDER", "CIRANDA_PADDLE_OPS", "CIRANDA_TRUST_TORCH_STORE")

_PREFIX = "CIRANDA_"
_LIKENESS = 0.7  # of 1: a letter or word too many or too few, or two exchanged
_RANKS = ("CIRANDA_RANK", "HOROVOD_RANK", "RANK", "PADDLE_TRAINER_ID")


def unknown(given: Iterable[str], settings: Iterable[str]) -> dict[str, str | None]:
    """Return the names of `given` that begin as settings do and are none, each with the one that is most like it.

    Args:
        given: names of variables.
        settings: the names of all settings.
    """
    known = {*settings, *BINDINGS_OWN}
    endings = [name.removeprefix(_PREFIX) for name in known]
    found: dict[str, str | None] = {}
    for name in sorted(given):
        if name.startswith(_PREFIX) and name not in known and name not in INTERNAL:
            close = difflib.get_close_matches(name.removeprefix(_PREFIX), endings, n=1, cutoff=_LIKENESS)
            found[name] = _PREFIX + close[0] if close else None
    return found


def misspelt(given: Iterable[str], settings: Iterable[str]) -> dict[str, str]:
    """Return the names of `given` that are like a setting and are none, each with a sentence about it."""
    return {
        name: f"{name} is set, but there is no such setting: is {close} meant?"
        for name, close in unknown(given, settings).items()
        if close is not None
    }


@cache
def warn() -> None:
    """Warn of names in the environment of this process, once, on rank 0."""
    from ciranda import _core  # the launcher needs the rest of this module, and not the engine

    if next((os.environ[name] for name in _RANKS if os.environ.get(name)), "0") == "0":
        new = set(os.environ).difference(os.environ.get(TOLD, "").split(","))
        for sentence in misspelt(new, [row["name"] for row in _core.settings()]).values():
            warnings.warn(sentence, RuntimeWarning, stacklevel=3)
