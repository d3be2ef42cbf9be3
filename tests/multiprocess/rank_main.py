"""A rank of a test: runs the functions that the parent sends, one after the other, and answers with what came out.

Started as `python rank_main.py FD`, where FD is one end of a socket pair. Messages are a length (8 bytes) and a pickle.
Having received a function, and with it imported what it needs, a rank says so; it begins at once, or when it is told.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
from typing import Any

import cloudpickle

_LENGTH = struct.Struct("<Q")


def send(connection: socket.socket, message: Any) -> None:
    data = cloudpickle.dumps(message)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """Return the next message; raise EOFError when the other side has closed."""
    (n_bytes,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    return pickle.loads(_receive_exactly(connection, n_bytes))


def _receive_exactly(connection: socket.socket, n_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < n_bytes:
        piece = connection.recv(min(n_bytes - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def _answer(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None, str]:
    try:
        return function(*arguments), None, ""
    except (Exception, KeyboardInterrupt) as error:
        text = traceback.format_exc()
        error.__traceback__ = None
        error.__context__ = None
        return None, error, text


def main() -> None:
    # The parent asks for this when a rank has not answered in time.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        while True:
            try:
                function, arguments, waits = receive(connection)
                send(connection, "loaded")
                if waits:
                    receive(connection)
            except EOFError:
                return
            send(connection, _answer(function, arguments))


def _leave() -> None:
    """End as Python would, but without taking torch or TensorFlow apart, which takes a second."""
    if "torch" in sys.modules or "tensorflow" in sys.modules:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
    _leave()
