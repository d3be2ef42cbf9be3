"""The protocol of launcher and agent: one JSON object a line, over the agent's stdin and stdout, or sealed by TCP.

To the agent:    ``reserve`` (rank 0's host only), ``spec``, ``blob`` (a piece of a file for the ranks), ``start``,
                 ``signal`` (for the ranks), ``stacks`` (take them), ``counters`` (read them), ``totals`` (the same
                 without those of each collective), ``clock`` (tell yours), ``record`` and ``record_end`` (have the
                 ranks record their calls), ``end`` (stop the ranks), ``collected`` (all records have come); of an
                 elastic job also ``restart`` and ``kill`` (one rank), ``word`` (for one rank).
From the agent:  ``hello``, ``reserved`` (the answer), ``started``, ``data`` (a piece of a rank's output), ``result`` (a
                 piece of what its function returned), ``stacks`` (one rank's), ``stacks_end`` (there are no more),
                 likewise ``totals`` and ``counters``, the latter also before ``done``, ``clock`` (the answer),
                 ``records`` (a piece of one rank's, after the last rank's end) and ``records_end``, ``exit``, ``note``,
                 ``fatal``, ``done``; of an elastic job also ``word`` (of one rank).

Either side sends ``beat`` where the other is on another host: it means nothing, but is to be acknowledged (silence.py).
An agent that has connected by TCP also hears ``admitted``, before all else, and at the end ``verdict``, the job's exit
code, and the reason if that is not a rank's (gathering.py, relay.py). Of a rank that has ended with 0, and has left no
process, its agent also says ``absent``.

Arguments, environment and paths are bytes to the system; here they are text in UTF-8 with surrogate escapes, which JSON
carries as ``\\udcXX``, so that every byte survives. Output travels as base64; arguments and results of functions, which
may be large, as they are, behind the line of their message. Nothing is trusted: lines and what follows them are bounded
and every field is checked. Imports only the standard library, and little of it: an agent must start at once.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable

from ciranda.launch.errors import ProtocolError

VERSION = 9
MAX_LINE_BYTES = 16 << 20
CHUNK_BYTES = 256 << 10
BINDINGS = ("none", "numa", "core")
Message = dict[str, object]

_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def encode(message: Message) -> bytes:
    """One message as one line, and behind it the bytes of its field ``raw``, if it has one.

    Raises:
        ProtocolError: the line would be longer than the other side accepts.
    """
    if "raw" in message:
        raw = raw_of(message)
        return encode({**{key: message[key] for key in message if key != "raw"}, "n_bytes": len(raw)}) + raw
    line = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError(f"a message of {len(line)} bytes is longer than {MAX_LINE_BYTES}")
    return line


def decode(line: bytes) -> Message:
    """The message in one line, an object with a text field ``t``.

    Raises:
        ProtocolError: not that.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a message: {line[:80]!r} ({error})") from None
    if not isinstance(message, dict) or not isinstance(message.get("t"), str):
        raise ProtocolError(f"not a message: {line[:80]!r}")
    return message


class LineReader:
    """Cuts a byte stream into lines of bounded length, and bytes of a known number. Not for sharing between threads."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, without their newline; ProtocolError when one is too long."""
        self.add(data)
        return list(iter(self.line, None))

    def add(self, data: bytes) -> None:
        """Append to what is to be cut."""
        self._buffer += data

    def line(self) -> bytes | None:
        """The next line without its newline; None if it is not complete. ProtocolError when it is too long."""
        end = self._buffer.find(b"\n", self._searched)
        n_bytes = len(self._buffer) if end < 0 else end
        if n_bytes > self._max:
            raise ProtocolError(f"a line is longer than {self._max} bytes")
        if end < 0:
            self._searched = n_bytes
            return None
        line = self.take(end)
        del self._buffer[:1]
        return line

    def take(self, n_bytes: int) -> bytes | None:
        """The next ``n_bytes``; None if they are not complete."""
        if len(self._buffer) < n_bytes:
            return None
        with memoryview(self._buffer) as view:
            taken = bytes(view[:n_bytes])
        del self._buffer[:n_bytes]
        self._searched = 0
        return taken


class MessageReader:
    """Cuts a byte stream into messages; one with ``n_bytes`` has so many behind its line, which become its ``raw``.

    ``on_noise`` gets lines before the first message that are none; without it, and later, they are errors.
    """

    def __init__(self, on_noise: Callable[[bytes], None] | None = None) -> None:
        self._lines = LineReader()
        self._on_noise = on_noise
        self._incomplete: Message | None = None

    def feed(self, data: bytes) -> list[Message]:
        """The messages that ``data`` completes; ProtocolError when one is malformed or too long."""
        self._lines.add(data)
        return list(iter(self._next, None))

    def _next(self) -> Message | None:
        message = self._incomplete or self._begin()
        if message is None or "n_bytes" not in message:
            return message
        raw = self._lines.take(int_of(message, "n_bytes", 0, MAX_LINE_BYTES))
        self._incomplete = message if raw is None else None
        return None if raw is None else {**message, "raw": raw}

    def _begin(self) -> Message | None:
        while (line := self._lines.line()) is not None:
            try:
                message = decode(line)
            except ProtocolError:
                if self._on_noise is None:
                    raise
                self._on_noise(line)
            else:
                self._on_noise = None
                return message
        return None


def to_text(raw: bytes) -> str:
    """Bytes of the system as text that JSON can carry."""
    return raw.decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    """The inverse of to_text; ProtocolError for text that no bytes decode to, or with a NUL."""
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ProtocolError(f"{text[:80]!r} is not text of the system") from None
    if b"\0" in raw:
        raise ProtocolError(f"{text[:80]!r} contains a NUL byte")
    return raw


def pack(data: bytes) -> str:
    """Any bytes as base64 text."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def unpack(text: str) -> bytes:
    """The inverse of pack; ProtocolError when it is not base64."""
    if len(text) % 4 or not _BASE64.fullmatch(text):
        raise ProtocolError(f"not base64: {text[:40]!r}")
    return binascii.a2b_base64(text)


def verdict(code: int, reason: str | None) -> Message:
    """Return what an agent that has connected hears last: how the job has ended, and why if not by a rank."""
    return {"t": "verdict", "code": code} | ({} if reason is None else {"reason": reason})


def text_of(message: Message, key: str) -> str:
    """A text field, or ProtocolError."""
    value = message.get(key)
    if not isinstance(value, str):
        raise ProtocolError(f"{message.get('t')}: {key} must be text, not {value!r:.80}")
    return value


def raw_of(message: Message) -> bytes:
    """The bytes behind the line of a message, or ProtocolError."""
    raw = message.get("raw")
    if not isinstance(raw, bytes):
        raise ProtocolError(f"{message.get('t')}: there are no bytes behind it")
    return raw


def int_of(message: Message, key: str, low: int, high: int) -> int:
    """A whole number field within [low, high], or ProtocolError."""
    value = message.get(key)
    if type(value) is not int or not low <= value <= high:
        raise ProtocolError(f"{message.get('t')}: {key} must be a number from {low} to {high}, not {value!r:.80}")
    return value


def seconds_of(message: Message, key: str) -> float:
    """A non-negative, finite number field, or ProtocolError."""
    value = message.get(key)
    if type(value) not in (int, float) or not 0 <= float(value) < 1e9:  # type: ignore[arg-type]
        raise ProtocolError(f"{message.get('t')}: {key} must be seconds, not {value!r:.80}")
    return float(value)  # type: ignore[arg-type]


class Spec:
    """The parameters by which an agent runs its host's ranks. Built from a ``spec`` message; every field is checked.

    Attributes:
        argv: the command, bytes as the system takes them.
        env: variables to set.
        inherit: whether they are added to the agent's own, as a remote host has some of its own.
        cwd: where the ranks run.
        rank_env: for each of this host's ranks, in order, its rank and the variables that are its alone.
        secret: 64 hex digits.
        grace_seconds: from SIGTERM to SIGKILL.
        blobs: names of variables, each to hold the path of a file whose content follows in ``blob`` messages.
        want_results: give each rank a pipe for its result.
        bind_to: "core", "numa" or "none": which cores of its host each rank is bound to.
        is_elastic: whether ranks are started again, and told of worlds by a socket.
        job, host: how the job and this host are called.
        connections: those of this host that carry the messages, where the agent would not know (silence.py).
        metrics: where to serve metrics, ``ADDR:PORT``; empty for nowhere.
        metrics_dir: the folder for files with metrics; empty for none.
        records: whether each rank records its calls for a timeline, and the agent sends that at the end.
        jax_native: whether to point jaxlib at the library of this host's ciranda for its collectives.
    """

    def __init__(self, message: Message) -> None:
        if message["t"] != "spec":
            raise ProtocolError(f"the first message must be a spec, not {message['t']!r}")
        if message.get("version") != VERSION:
            raise ProtocolError(f"launcher speaks version {message.get('version')!r}, this agent {VERSION}")
        self.argv = [to_bytes(argument) for argument in _texts(message, "argv")]
        self.env = environment_of(message, "env")
        self.inherit = message.get("inherit") is True
        self.cwd = to_bytes(text_of(message, "cwd"))
        self.rank_env = _ranks(message)
        self.secret = text_of(message, "secret")
        self.grace_seconds = seconds_of(message, "grace")
        self.blobs = _texts(message, "blobs")
        self.want_results = message.get("results") is True
        self.bind_to = text_of(message, "bind_to")
        self.is_elastic = message.get("elastic") is True
        self.job = text_of(message, "job")
        self.host = text_of(message, "host")
        self.connections = _texts(message, "connections")
        self.metrics = text_of(message, "metrics")
        self.metrics_dir = text_of(message, "metrics_dir")
        self.records = message.get("records") is True
        self.jax_native = message.get("jax_native") is True
        if self.bind_to not in BINDINGS:
            raise ProtocolError(f"spec: bind_to must be one of {', '.join(BINDINGS)}, not {self.bind_to[:80]!r}")
        if not self.argv:
            raise ProtocolError("spec: argv is empty")
        if len(self.secret) != 64 or not set(self.secret) <= set("0123456789abcdef"):
            raise ProtocolError("spec: the secret must be 64 hex digits")


def word_of(message: Message) -> Message:
    """The word in a ``word`` message, an object with a text field ``t``, or ProtocolError."""
    word = message.get("word")
    if not isinstance(word, dict) or not isinstance(word.get("t"), str):
        raise ProtocolError(f"word: not a word: {word!r:.80}")
    return word


def _texts(message: Message, key: str) -> list[str]:
    values = message.get(key)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ProtocolError(f"{message.get('t')}: {key} must be a list of texts")
    return values


def environment_of(message: Message, key: str) -> dict[bytes, bytes]:
    """A field of variables, or ProtocolError."""
    values = message.get(key)
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise ProtocolError(f"{message.get('t')}: {key} must be names and texts")
    env = {to_bytes(name): to_bytes(value) for name, value in values.items()}
    for name in env:
        if not name or b"=" in name:
            raise ProtocolError(f"{message.get('t')}: {name!r} is not a name for a variable")
    return env


def _ranks(message: Message) -> list[tuple[int, dict[bytes, bytes]]]:
    entries = message.get("ranks")
    if not isinstance(entries, list) or not entries:
        raise ProtocolError("spec: ranks must be a list")
    ranks = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise ProtocolError("spec: each rank must be an object")
        fields: Message = {**entry, "t": "spec"}
        ranks.append((int_of(fields, "rank", 0, 1 << 24), environment_of(fields, "env")))
    if len({rank for rank, _ in ranks}) != len(ranks):
        raise ProtocolError("spec: a rank is in it twice")
    return ranks
