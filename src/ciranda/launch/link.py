"""The launcher's end of one agent: its process (a child, or an ssh to it), and its messages."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence

from ciranda.launch import protocol
from ciranda.launch.hosts import Slot
from ciranda.launch.outbox import Outbox, widen
from ciranda.launch.protocol import Message

_STDERR_BYTES = 16 << 10
_LEAVE_SECONDS = 1.0  # from the end of its output to the end of the process


class AgentLink:
    """Owns the child process and its three pipes. Never blocks, but for wait().

    Attributes:
        host, slots: those of the agent.
        greeted, done_reason: whether it has sent ``hello``; the reason of its end, once reported.
        running: ranks it has started and not yet reported dead.
    """

    def __init__(self, host: str, slots: Sequence[Slot], command: Sequence[str]) -> None:
        """Start the agent in a session of its own, where the terminal's Ctrl-C does not reach it."""
        self.host = host
        self.slots = list(slots)
        self.greeted = False
        self.done_reason: str | None = None
        self.running: set[int] = set()
        self.stderr = bytearray()
        self._reader = protocol.MessageReader(on_noise=lambda line: self._complain(line + b"\n"))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._pipes = [pipe for pipe in (self._process.stdin, self._process.stdout, self._process.stderr) if pipe]
        self.in_fd, self.out_fd, self.err_fd = (pipe.fileno() for pipe in self._pipes)
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        widen(self.in_fd)
        widen(self.out_fd)
        self._outbox = Outbox(self.in_fd)
        self._in_turn: Iterator[Message] = iter(())
        self.open_fds = {self.out_fd, self.err_fd}

    @property
    def pid(self) -> int:
        """The process id of the agent, or of the ssh that leads to it."""
        return self._process.pid

    @property
    def has_outgoing(self) -> bool:
        """Whether messages wait for the pipe."""
        return bool(self._outbox)

    def send(self, message: Message) -> None:
        """Queue a message and write what the pipe takes. After close() it is dropped."""
        if self._pipes[0].closed:
            return
        self._outbox.send(message)
        self.flush()

    def send_in_turn(self, messages: Iterator[Message]) -> None:
        """Send messages that may be large, each when the pipe has taken the one before.

        Raises:
            ProtocolError: the first cannot be sent.
        """
        self._in_turn = messages
        self.flush()

    def send_end(self, grace_seconds: float) -> None:
        """Have the agent end its ranks, instead of what is still to be sent in turn."""
        self._in_turn = iter(())
        self.send({"t": "end", "grace": grace_seconds})

    def flush(self) -> None:
        """Write what the pipe takes now; nothing once the agent is gone."""
        self._outbox.flush()
        while not self._outbox and (message := next(self._in_turn, None)) is not None:
            self._outbox.send(message)
            self._outbox.flush()

    def read_messages(self) -> list[Message]:
        """What the agent says; at its end, out_fd leaves open_fds. Lines before its hello that are not messages are
        kept as part of its complaints (a login script may print some).

        Raises:
            ProtocolError: the messages are not of this protocol.
        """
        return self._reader.feed(self._read(self.out_fd))

    def read_stderr(self) -> bytes:
        """What ssh or the agent itself complains of; the end of it is kept."""
        data = self._read(self.err_fd)
        self._complain(data)
        return data

    def _complain(self, data: bytes) -> None:
        self.stderr += data
        del self.stderr[:-_STDERR_BYTES]

    def _read(self, fd: int) -> bytes:
        try:
            data = os.read(fd, protocol.CHUNK_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            self.open_fds.discard(fd)
        return data

    def kill(self) -> None:
        """At once; the agent's own guard and the kernel end the ranks of a local one, the end of file those of ssh."""
        if self._process.poll() is None:
            self._process.kill()

    def close(self) -> int:
        """Wait for the process, which is about to end or was killed, and close the pipes; its exit code. Idempotent."""
        try:
            exit_code = self._process.wait(timeout=_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            exit_code = self._process.wait()
        if self.err_fd in self.open_fds:
            while self.read_stderr():
                pass
        self.open_fds.clear()
        self._in_turn = iter(())
        self._outbox.discard()
        for pipe in self._pipes:
            pipe.close()
        return exit_code
