"""The launcher's end of one agent: its process (a child, or an ssh to it) or its connection, and its messages."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from ciranda.launch import protocol
from ciranda.launch.channel import Channel
from ciranda.launch.errors import LaunchError
from ciranda.launch.hosts import Slot
from ciranda.launch.outbox import Outbox, received, widen
from ciranda.launch.processes import why_not_started
from ciranda.launch.protocol import Message
from ciranda.launch.silence import BEAT, Silence, cut_off, of_socket

_STDERR_BYTES = 16 << 10
_LEAVE_SECONDS = 1.0  # from the end of its output to the end of the process


class Link:
    """The messages of one agent. Never blocks, but for close().

    Attributes:
        host, slots: those of the agent.
        greeted, done_reason: whether it has sent ``hello``; the reason of its end, once reported.
        running: ranks it has started and not yet reported dead.
        silence: of the connection, where look() sees whether the agent's host is cut off.
        shows_output: whether the ranks' output is shown where they are, and not by the launcher.
        knows_secret: whether the agent has the ranks' secret already, so that it is not sent.
        in_fd, out_fd, err_fd: where it reads messages, sends its own, and complains; -1: it does not complain here.
        open_fds: those of out_fd and err_fd that have not ended.
    """

    shows_output = False
    knows_secret = False
    silence: Silence | None = None

    def __init__(
        self,
        host: str,
        slots: Sequence[Slot],
        fds: tuple[int, int, int],
        seal: Callable[[bytes], bytes] = bytes,
        opened: Callable[[bytes], bytes] = bytes,
    ) -> None:
        """``seal`` makes what is sent of a message, ``opened`` undoes that."""
        self.host = host
        self.slots = list(slots)
        self.greeted = False
        self.done_reason: str | None = None
        self.running: set[int] = set()
        self.stderr = bytearray()
        self.in_fd, self.out_fd, self.err_fd = fds
        self.open_fds = {fd for fd in fds[1:] if fd >= 0}
        self._opened = opened
        self._reader = protocol.MessageReader(on_noise=lambda line: self._complain(line + b"\n"))
        self._outbox = Outbox(self.in_fd, seal)
        self._in_turn: deque[Iterator[Message]] = deque()
        self._is_closed = False

    @property
    def has_outgoing(self) -> bool:
        """Whether messages wait for the pipe."""
        return bool(self._outbox)

    def send(self, message: Message) -> None:
        """Queue a message and write what the pipe takes. After close() it is dropped."""
        if self._is_closed:
            return
        self._outbox.send(message)
        self.flush()

    def send_in_turn(self, messages: Iterator[Message]) -> None:
        """Send messages that may be large, each when the pipe has taken the one before.

        Raises:
            ProtocolError: the first cannot be sent.
        """
        self._in_turn.append(messages)
        self.flush()

    def send_next(self, message: Message) -> None:
        """Send a message behind those that are sent in turn."""
        if self._in_turn:
            self._in_turn.append(iter((message,)))
        else:
            self.send(message)

    def send_end(self, grace_seconds: float) -> None:
        """Have the agent end its ranks, instead of what is still to be sent in turn."""
        self._in_turn.clear()
        self.send({"t": "end", "grace": grace_seconds})

    def flush(self) -> None:
        """Write what the pipe takes now; nothing once the agent is gone."""
        self._outbox.flush()
        while not self._outbox and self._in_turn:
            message = next(self._in_turn[0], None)
            if message is None:
                self._in_turn.popleft()
            else:
                self._outbox.send(message)
                self._outbox.flush()

    def read_messages(self) -> list[Message]:
        """What the agent says; at its end, out_fd leaves open_fds. Lines before its hello that are not messages are
        kept as part of its complaints (a login script may print some).

        Raises:
            ProtocolError: the messages are not of this protocol.
        """
        return self._reader.feed(self._opened(self._read(self.out_fd)))

    def look(self) -> None:
        """At the silence's deadline: see whether the host is cut off, which ends the connection."""
        silence = self.silence
        if silence is None or self._is_closed or time.monotonic() < silence.deadline:
            return
        if silence.is_too_long():
            self._complain(f"{self.host} {cut_off(silence.limit_seconds)}\n".encode())
            self.kill()
        elif not self._outbox:
            self.send(BEAT)

    def read_stderr(self) -> bytes:
        """What ssh or the agent itself complains of; the end of it is kept."""
        data = self._read(self.err_fd)
        self._complain(data)
        return data

    def _complain(self, data: bytes) -> None:
        self.stderr += data
        del self.stderr[:-_STDERR_BYTES]

    def _read(self, fd: int) -> bytes:
        data = received(fd)
        if data == b"":
            self.open_fds.discard(fd)
        return data or b""

    def kill(self) -> None:
        """At once. Idempotent."""
        raise NotImplementedError

    def connections(self) -> list[str]:
        """The connections of the agent's host that carry the messages, as of_connections() takes them.

        None are told to an agent that knows of them itself.
        """
        return []

    def refuse(self, _code: int, _reason: str | None) -> None:
        """End it before it has taken part; the job's exit code, and why it does not go on."""
        self.kill()

    def close(self) -> int:
        """Close it, and return the exit code of the agent's process, or 0. Idempotent."""
        self.open_fds.clear()
        self._in_turn.clear()
        self._outbox.discard()
        self._is_closed = True
        return 0


class AgentLink(Link):
    """Owns the agent's process and its three pipes."""

    def __init__(self, host: str, slots: Sequence[Slot], command: Sequence[str]) -> None:
        """Start the agent in a session of its own, where the terminal's Ctrl-C does not reach it.

        Raises:
            LaunchError: it cannot be started.
        """
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(f"cannot start {command[0]}: {why_not_started(error)}") from None
        self._pipes = [pipe for pipe in (self._process.stdin, self._process.stdout, self._process.stderr) if pipe]
        in_fd, out_fd, err_fd = (pipe.fileno() for pipe in self._pipes)
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        widen(in_fd)
        widen(out_fd)
        super().__init__(host, slots, (in_fd, out_fd, err_fd))

    @property
    def pid(self) -> int:
        """The process id of the agent, or of the ssh that leads to it."""
        return self._process.pid

    def end_input(self) -> None:
        """Tell the agent that no more comes, upon which it ends its ranks."""
        self._is_closed = True
        self._outbox.discard()
        self._pipes[0].close()

    def kill(self) -> None:
        """At once; the agent's own guard and the kernel end the ranks of a local one, the end of file those of ssh."""
        if self._process.poll() is None:
            self._process.kill()

    def close(self) -> int:
        """Wait for the process, which is about to end or was killed, and close the pipes."""
        try:
            exit_code = self._process.wait(timeout=_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            exit_code = self._process.wait()
        if self.err_fd in self.open_fds:
            while self.read_stderr():
                pass
        super().close()
        for pipe in self._pipes:
            pipe.close()
        return exit_code


class DialledLink(Link):
    """An agent that has connected, and shows its ranks' output itself. The channel stays open when this is closed."""

    shows_output = True
    knows_secret = True

    def __init__(
        self, host: str, slots: Sequence[Slot], channel: Channel, link_timeout_seconds: float | None = None
    ) -> None:
        """``link_timeout_seconds``: where the agent is on another host."""
        self._channel = channel
        if link_timeout_seconds is not None:
            self.silence = Silence(of_socket(channel.socket), link_timeout_seconds)
        channel.socket.setblocking(False)
        in_fd, out_fd = (os.dup(channel.socket.fileno()) for _ in range(2))
        super().__init__(host, slots, (in_fd, out_fd, -1), channel.sealer.seal, channel.opener.open)

    def read_messages(self) -> list[Message]:
        """As of any agent; its last one is the end, for it waits for how the job ends."""
        messages = super().read_messages()
        if any(message["t"] == "done" for message in messages):
            self.open_fds.clear()
        return messages

    def refuse(self, code: int, reason: str | None) -> None:
        """As in the base; the agent's host is told."""
        self.send(protocol.verdict(code, reason))
        self.flush()
        self.kill()

    def kill(self) -> None:
        """End the connection, and thereby the agent."""
        with suppress(OSError):
            self._channel.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> int:
        """Close this end's descriptors."""
        if not self._is_closed:
            os.close(self.in_fd)
            os.close(self.out_fd)
        return super().close()
