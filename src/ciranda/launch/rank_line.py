"""The agent's end of its line to one rank of an elastic job: a socket pair, one JSON object a line. Stdlib only."""

from __future__ import annotations

import os
import socket

from ciranda.launch import protocol
from ciranda.launch.errors import ProtocolError
from ciranda.launch.outbox import Outbox, received
from ciranda.launch.protocol import Message

VARIABLE = "CIRANDA_AGENT_FD"
MAX_WORD_BYTES = 4 << 10  # of a rank


class RankLine:
    """Owns both ends until the rank has been started, then one. Never blocks.

    Attributes:
        fd: this end; -1 once it is closed.
        theirs: the rank's end.
        is_over: whether the rank has closed its end, or has sent what is no word: this one is to be closed.
    """

    def __init__(self) -> None:
        """OSError if there is no file left."""
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.fd = ours.detach()
        self.is_over = False
        self._lines = protocol.LineReader(MAX_WORD_BYTES)
        self._outbox = Outbox(self.fd)

    @property
    def has_outgoing(self) -> bool:
        """Whether words wait for the rank to read."""
        return bool(self._outbox)

    def send(self, word: Message) -> None:
        """Send a word, or queue it."""
        self._outbox.send(word)
        self.flush()

    def flush(self) -> None:
        """Write what the socket takes now."""
        self._outbox.flush()

    def read(self) -> list[Message]:
        """What the rank has said."""
        data = received(self.fd)
        if data is None:
            return []
        try:
            words = [protocol.decode(line) for line in self._lines.feed(data)]
        except ProtocolError:
            words, data = [], b""
        self.is_over = not data
        return words

    def close(self) -> None:
        """Close this end. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1
        self._outbox.broken = True
        self._outbox.discard()
