"""A rank of a Pool: runs one function after another, as the pool sends them over a connection of its own.

The main thread runs the functions. Another reads: an interruption is a SIGINT to the main thread, while that runs a
function, and the end of the connection is the end of this process. After a function that did not return, the rank
leaves the world, so that ranks which wait for it fail too.
"""

from __future__ import annotations

import errno
import io
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle

import ciranda
from ciranda import _afresh
from ciranda.launch import protocol
from ciranda.launch.channel import Channel
from ciranda.launch.dialling import dial
from ciranda.launch.failure import traceback_text
from ciranda.launch.handshake import Terms
from ciranda.launch.kept_globals import KeptGlobals
from ciranda.launch.protocol import Message
from ciranda.launch.sent_function import unpacked

#: Addresses and ports of the pool, with a space between; several by comma.
ADDRESS = "CIRANDA_POOL"

_CONNECT_SECONDS = 60.0


class _Rank:
    """Owns the connection."""

    def __init__(self, channel: Channel) -> None:
        channel.socket.settimeout(None)
        self._channel = channel
        self._calls: queue.SimpleQueue[tuple[Message, bytes]] = queue.SimpleQueue()
        self._globals = KeptGlobals()
        self._running = 0  # the number of the call whose function runs

    def serve(self) -> None:
        """Run what comes, until the process ends."""
        signal.signal(signal.SIGINT, self._on_interruption)
        threading.Thread(target=self._read, daemon=True, name="ciranda pool").start()
        while True:
            self._answer(*self._calls.get())

    def _on_interruption(self, _number: int, _frame: object) -> None:
        if self._running:
            raise KeyboardInterrupt

    def _read(self) -> None:
        """Take what the pool sends; when that ends, also in an error, so does this process."""
        try:
            self._take_messages()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _take_messages(self) -> None:
        reader, pieces = protocol.MessageReader(), bytearray()
        while data := self._receive():
            for message in reader.feed(self._channel.opener.open(data)):
                if message["t"] == "piece":
                    pieces += protocol.raw_of(message)
                elif message["t"] == "call":
                    self._calls.put((message, bytes(pieces)))
                    pieces.clear()
                elif message["t"] == "interrupt" and message["number"] == self._running:
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _receive(self) -> bytes:
        try:
            return self._channel.socket.recv(protocol.CHUNK_BYTES)
        except OSError:
            return b""

    def _answer(self, call: Message, payload: bytes) -> None:
        number = protocol.int_of(call, "number", 1, 1 << 60)
        if call.get("anew") is True:
            _afresh.leave_for(protocol.int_of(call, "epoch", 0, 1 << 60))
        try:
            state, data = "returned", self._result(number, payload)
        except KeyboardInterrupt:
            state, data = "interrupted", b""
        except BaseException as error:  # also SystemExit: the rank stays
            state, data = "raised", traceback_text(error, __file__).encode("utf-8", "replace")
        if state != "returned":
            ciranda.shutdown()
        self._mark(protocol.text_of(call, "mark"))
        for start in range(0, len(data), protocol.CHUNK_BYTES):
            self._send({"t": "piece", "raw": data[start : start + protocol.CHUNK_BYTES]})
        self._send({"t": "result", "number": number, "state": state, "epoch": _afresh.next_epoch()})

    def _result(self, number: int, payload: bytes) -> bytes:
        function, args, kwargs = unpacked(io.BytesIO(payload), self._globals.load)
        try:
            self._running = number
            value: Any = function(*args, **kwargs)
        finally:
            self._running = 0
        return bytes(cloudpickle.dumps(value))

    def _send(self, message: Message) -> None:
        self._channel.socket.sendall(self._channel.sealer.seal(protocol.encode(message)))

    def _mark(self, mark: str) -> None:
        """Say in the output that all of this call's precedes."""
        for stream, fd in ((sys.stdout, 1), (sys.stderr, 2)):
            with suppress(OSError, ValueError):  # the function has closed it
                stream.flush()
                os.write(fd, f"{mark}\n".encode())


def _end_if_refused(n_addresses: int) -> Callable[[str], None]:
    """For `dial`. The pool listens before its ranks start: where nobody does, it has been closed, or interrupted."""
    refused: set[str] = set()  # by the addresses in what is said

    def hear(reason: str) -> None:
        if reason.endswith(os.strerror(errno.ECONNREFUSED)):
            refused.add(reason)
        if len(refused) == n_addresses:
            sys.exit(1)

    return hear


def main() -> None:
    """Run in a rank."""
    ends = [each.split(" ") for each in os.environ[ADDRESS].split(",")]
    secret = bytes.fromhex(Path(os.environ["CIRANDA_SECRET_FILE"]).read_text(encoding="ascii"))
    rank, size = (int(os.environ[f"CIRANDA_{name}"]) for name in ("RANK", "SIZE"))
    terms = Terms(secret, os.environ["CIRANDA_JOB"], size + 1)
    addresses = [(host, int(port)) for host, port in ends]
    channel = dial(addresses, terms, rank + 1, _CONNECT_SECONDS, _end_if_refused(len(addresses)))
    _Rank(channel).serve()


if __name__ == "__main__":
    main()
