"""A rank of a test: runs the functions that the parent sends, one after the other, and answers with what came out.

Started as `python rank_main.py FD`, where FD is one end of a socket pair. Messages are a length (8 bytes) and a pickle.
Having received a function, and with it imported what it needs, a rank says so; it begins at once, or when it is told.

Started as `python rank_main.py FD MODULE...`: imports the modules and forks ranks, as forked.py asks for.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import os
import pickle
import random
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


def serve(descriptor: int) -> None:
    """Run the functions that come, until the other side closes."""
    # The parent asks for this when a rank has not answered in time.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with socket.socket(fileno=descriptor) as connection:
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


def fork_ranks(descriptor: int) -> None:
    """Fork a rank whenever the other side asks for one, and tell how they ended, until it closes."""
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for ranks, and for who started this process
    with socket.socket(fileno=descriptor) as connection:
        while True:
            try:
                what, value = receive(connection)
            except EOFError:
                return
            if what == "reap":
                send(connection, os.waitstatus_to_exitcode(os.waitpid(value, 0)[1]))
                continue
            _, (theirs, *outputs), _, _ = socket.recv_fds(connection, 1, 3)
            pid = os.fork()
            if pid == 0:
                connection.close()
                signal.signal(signal.SIGINT, interrupt)
                _become_rank(*value, outputs)
                _run_forked(theirs)
            for inherited in (theirs, *outputs):
                os.close(inherited)
            send(connection, pid)


def _become_rank(env: dict[str, str], folder: str, outputs: list[int]) -> None:
    """Take on what a process is started with, and draw anew what it draws as it starts."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    for standard, output in enumerate(outputs, start=1):
        os.dup2(output, standard)
        os.close(output)
    random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].seed()


def _run_forked(descriptor: int) -> None:
    """Serve, and end the process in any case: it must not return to what its parent does."""
    code = 1
    try:
        serve(descriptor)
        _leave()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    descriptor, modules = int(sys.argv[1]), sys.argv[2:]
    if not modules:
        serve(descriptor)
        return
    for module in modules:
        importlib.import_module(module)
    n_threads = len(os.listdir("/proc/self/task"))
    assert n_threads == 1, f"{modules} started {n_threads - 1} threads, which a forked rank would not have"
    fork_ranks(descriptor)


if __name__ == "__main__":
    main()
    _leave()
