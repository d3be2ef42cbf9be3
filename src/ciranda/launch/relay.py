"""An agent that has connected to its launcher: passes messages on, and shows the ranks' output on this host.

The agent is a child, as a launcher's own. It is given the ranks' secret here, since that is not sent. When its ranks
have ended, the connection stays until the launcher says how the job ended: by its exit code all hosts end, so that
whoever starts them knows the same of each.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from contextlib import suppress

from ciranda.launch import protocol, ssh
from ciranda.launch.channel import Channel
from ciranda.launch.errors import ProtocolError
from ciranda.launch.handshake import ranks_secret
from ciranda.launch.link import AgentLink
from ciranda.launch.outbox import Outbox, received
from ciranda.launch.output import Screen, ScreenStyle
from ciranda.launch.processes import PASSED_ON
from ciranda.launch.protocol import Message
from ciranda.launch.signals import empty, signals_to
from ciranda.launch.silence import BEAT, Silence, cut_off, limit_of, of_socket
from ciranda.launch.writer import Writer

_MOST_QUEUED_BYTES = 4 << 20
_LAST_OUTPUT_SECONDS = 5.0


class Relay:
    """Owns the agent's process. The connection is the caller's."""

    def __init__(self, name: str, channel: Channel, secret: bytes, style: ScreenStyle, launcher: str) -> None:
        """``name``, ``launcher``: the hosts'. ``secret``: by which launcher and agent know each other."""
        self._launcher = launcher
        self._secret = secret
        self._channel = channel
        self._screen = Screen(style)
        self._writer = Writer()
        self._reader = protocol.MessageReader()
        channel.socket.setblocking(False)
        self._to_launcher = channel.socket.fileno()
        self._sending = os.dup(self._to_launcher)
        self._outbox = Outbox(self._sending, channel.sealer.seal)
        self._agent = AgentLink(name, [], ssh.local_command(sys.executable))
        # Twice what the launcher waits, so that it is the one to give up if both are there.
        self._silence = Silence(of_socket(channel.socket), 2 * limit_of(os.environ))
        self._is_connected = True
        self._is_done = False
        self._verdict: int | None = None
        self._signals: list[int] = []
        self._ended_by: int | None = None

    def run(self) -> int | None:
        """Serve until the agent has ended and the launcher has said how the job ended; its exit code.

        It is None if the launcher or the agent went without a word, and 128 + n if signal n has ended this host.
        """
        try:
            with signals_to(self._signals) as wake_fd:
                while self._is_agent_there or (self._is_done and self._is_connected and self._verdict is None):
                    self._turn(wake_fd)
            if not self._is_done:
                self._say("the agent of this host is gone")
        finally:
            self._agent.kill()
            self._agent.close()
            os.close(self._sending)
        self._writer.flush(_LAST_OUTPUT_SECONDS)
        return self._verdict if self._ended_by is None else 128 + self._ended_by

    @property
    def _is_agent_there(self) -> bool:
        return self._agent.out_fd in self._agent.open_fds

    def _turn(self, wake_fd: int) -> None:
        with selectors.PollSelector() as selector:
            selector.register(wake_fd, selectors.EVENT_READ, lambda: empty(wake_fd))
            self._watch(selector)
            timeout = max(0.0, self._silence.deadline - time.monotonic()) if self._is_connected else None
            for key, _ in selector.select(timeout):
                key.data()
        if self._is_connected and time.monotonic() >= self._silence.deadline:
            self._look()
        while self._signals:
            self._on_signal(self._signals.pop(0))

    def _watch(self, selector: selectors.BaseSelector) -> None:
        agent = self._agent
        if agent.has_outgoing:
            selector.register(agent.in_fd, selectors.EVENT_WRITE, agent.flush)
        if agent.err_fd in agent.open_fds:
            selector.register(agent.err_fd, selectors.EVENT_READ, self._on_complaint)
        is_full = len(self._outbox) > _MOST_QUEUED_BYTES or self._writer.n_queued_bytes > _MOST_QUEUED_BYTES
        if self._is_agent_there and not is_full:
            selector.register(agent.out_fd, selectors.EVENT_READ, self._on_agent)
        if self._is_connected:
            selector.register(self._to_launcher, selectors.EVENT_READ, self._on_launcher)
            if self._outbox:
                selector.register(self._sending, selectors.EVENT_WRITE, self._outbox.flush)
        if (fd := self._writer.waiting_for) is not None:
            selector.register(fd, selectors.EVENT_WRITE, self._writer.flush)

    def _on_complaint(self) -> None:
        for line in self._agent.read_stderr().decode("utf-8", "replace").splitlines():
            self._say(line)

    def _on_agent(self) -> None:
        for message in self._agent.read_messages():
            if message["t"] == "data":
                self._show(message)
            elif message["t"] == "done":
                self._is_done = True
            elif message["t"] == "exit":
                self._writer.put(self._screen.finish(protocol.int_of(message, "rank", 0, 1 << 24)))
            if message["t"] != "data" or message.get("stream") == "stderr":  # what the launcher tells of a failure
                self._outbox.send(message)
        self._outbox.flush()

    def _show(self, message: Message) -> None:
        rank = protocol.int_of(message, "rank", 0, 1 << 24)
        data = protocol.unpack(protocol.text_of(message, "data"))
        self._writer.put(self._screen.feed(rank, protocol.text_of(message, "stream"), data))

    def _on_launcher(self) -> None:
        data = received(self._to_launcher)
        if data is None:
            return
        try:
            for message in self._reader.feed(self._channel.opener.open(data)):
                self._on_order(message)
        except ProtocolError as error:
            self._say(str(error))
            data = b""
        if not data:
            self._lose_launcher("is gone")

    def _lose_launcher(self, how: str) -> None:
        if self._verdict is None:
            self._say(f"{self._launcher}, which holds the launcher, {how}")
        self._is_connected = False
        self._agent.end_input()

    def _look(self) -> None:
        if self._silence.is_too_long():
            self._lose_launcher(cut_off(self._silence.limit_seconds))
        elif not self._outbox:
            self._outbox.send(BEAT)
            self._outbox.flush()

    def _on_order(self, message: Message) -> None:
        if message["t"] == "beat":
            return
        if message["t"] == "verdict":
            self._verdict = protocol.int_of(message, "code", 0, 255)
            if reason := message.get("reason"):
                self._say(f"{self._launcher}, which holds the launcher, has ended the job: {reason}")
            return
        if message["t"] == "spec":
            env = message.get("env")
            job_id = env.get("CIRANDA_JOB", "") if isinstance(env, dict) else ""
            message = {**message, "secret": ranks_secret(self._secret, str(job_id))}
        self._agent.send(message)

    def _on_signal(self, number: int) -> None:
        if number not in PASSED_ON:  # the launcher passes those on
            self._ended_by = self._ended_by or number
            with suppress(ProcessLookupError):
                os.kill(self._agent.pid, signal.SIGTERM)

    def _say(self, text: str) -> None:
        self._writer.put(self._screen.say(f"ciranda: {text}"))
