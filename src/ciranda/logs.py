"""The engine's log in Python's `logging`."""

from __future__ import annotations

import atexit
import json
import logging
from datetime import datetime

from ciranda import _core
from ciranda._init import ending

#: The level of single calls, below logging.DEBUG.
TRACE = 5
_LEVELS = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}


class _Forwarding:
    def __init__(self) -> None:
        self.watch: _core.LogWatch | None = None


_forwarding = _Forwarding()


def to_logging(logger: str | logging.Logger = "ciranda") -> None:
    """Give the engine's messages of this process to a logger of Python's `logging`, from now on.

    Which messages there are CIRANDA_LOG_LEVEL says, when the process joins a world; so this may be called before
    `init()`. Each record has the attributes `rank`, `host` and `step`. Warnings and errors are written to standard
    error as well, where `ciranda run` reads them; other messages are not, unless the handlers cannot keep up.

    No call waits for the handlers: they run on a thread of the engine, which is in Python for a message only, and must
    make no calls themselves. At the end of the process, and in `stop()`, the messages of until then are delivered. A
    child of `os.fork()` has to call this itself.

    Args:
        logger: the logger, or its name.

    Raises:
        InvalidArgumentError: the messages go to a logger already; call `stop()` first.
    """
    target = logging.getLogger(logger) if isinstance(logger, str) else logger
    if logging.getLevelName(TRACE) == f"Level {TRACE}":
        logging.addLevelName(TRACE, "TRACE")
    _forwarding.watch = _core.LogWatch(lambda line: _give(target, line))
    atexit.register(stop)
    ending.leave_first()  # so that the last messages are delivered, too


def stop() -> None:
    """Deliver the messages of until now; later ones go to standard error or the file again."""
    watch, _forwarding.watch = _forwarding.watch, None
    if watch is not None:
        watch.close()
    atexit.unregister(stop)


def _give(logger: logging.Logger, line: bytes) -> None:
    told = json.loads(line)
    level = _LEVELS[told["level"]]
    if not logger.isEnabledFor(level):
        return
    where = {name: told[name] for name in ("rank", "host", "step")}
    record = logger.makeRecord(logger.name, level, "ciranda", 0, told["message"], (), None, extra=where)
    _set_time(record, told["time"])
    logger.handle(record)


def _set_time(record: logging.LogRecord, text: str) -> None:
    """Let the record have the time of the message."""
    created = datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    record.relativeCreated += (created - record.created) * 1000
    record.created = created
    record.msecs = int(created * 1000) % 1000
