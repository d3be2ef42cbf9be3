"""Messages between launcher and agent: every byte survives, and nothing malformed is taken."""

from __future__ import annotations

import json
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda.launch import protocol
from ciranda.launch.errors import ProtocolError
from ciranda.launch.protocol import (
    LineReader,
    Message,
    MessageReader,
    Spec,
    decode,
    encode,
    pack,
    to_bytes,
    to_text,
    unpack,
)

system_bytes = st.binary(max_size=200).map(lambda raw: raw.replace(b"\0", b""))
names = system_bytes.map(lambda raw: raw.replace(b"=", b"")).filter(bool)


def spec(**changes: object) -> Message:
    message: Message = {
        "t": "spec",
        "version": protocol.VERSION,
        "argv": ["true"],
        "env": {},
        "cwd": "/",
        "ranks": [{"rank": 0, "env": {}}],
        "secret": "0" * 64,
        "grace": 1.0,
        "blobs": [],
        "results": False,
        "bind_to": "core",
        "job": "0a",
        "host": "here",
        "connections": [],
        "metrics": "",
        "metrics_dir": "",
    }
    message.update(changes)
    return message


@given(st.lists(system_bytes, min_size=1, max_size=5), st.dictionaries(names, system_bytes, max_size=5), system_bytes)
def test_arguments_and_environment_survive_exactly(argv: list[bytes], env: dict[bytes, bytes], cwd: bytes) -> None:
    message = spec(
        argv=[to_text(argument) for argument in argv],
        env={to_text(name): to_text(value) for name, value in env.items()},
        cwd=to_text(cwd),
    )
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    received = Spec(decode(line[:-1]))
    assert received.argv == argv
    assert received.env == env
    assert received.cwd == cwd


@given(st.binary(max_size=2000))
def test_output_survives_exactly(data: bytes) -> None:
    assert unpack(pack(data)) == data


@given(st.lists(st.binary(max_size=50).map(lambda raw: raw.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_found_however_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    reader = LineReader()
    found = []
    while stream:
        n_bytes = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:n_bytes])
        stream = stream[n_bytes:]
    assert found == lines


@given(st.lists(st.none() | st.binary(max_size=50), max_size=8), st.data())
def test_messages_and_the_bytes_behind_them_are_found_however_the_stream_is_cut(
    pieces: list[bytes | None], data: st.DataObject
) -> None:
    messages: list[Message] = [{"t": "note"} if raw is None else {"t": "result", "raw": raw} for raw in pieces]
    stream = b"a line of a login script\n" + b"".join(map(encode, messages))
    noise: list[bytes] = []
    reader = MessageReader(noise.append)
    found: list[Message] = []
    while stream:
        n_bytes = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:n_bytes])
        stream = stream[n_bytes:]
    assert [(message["t"], message.get("raw")) for message in found] == [(m["t"], m.get("raw")) for m in messages]
    assert noise == [b"a line of a login script"]


@pytest.mark.parametrize(
    "stream",
    [
        b'{"t":"result","n_bytes":-1}\n',
        b'{"t":"result","n_bytes":"3"}\nabc',
        b'{"t":"result","n_bytes":16777217}\n',
        b'{"t":"result","n_bytes":1}\nxnoise\n',
        b'{"t":"note"}\nnoise\n',
    ],
)
def test_bytes_that_are_not_announced_as_they_must_be_are_refused(stream: bytes) -> None:
    with pytest.raises(ProtocolError):
        MessageReader(lambda line: None).feed(stream)


def test_bytes_are_those_behind_the_message_and_nothing_else() -> None:
    with pytest.raises(ProtocolError, match="result: there are no bytes behind it"):
        protocol.raw_of(decode(b'{"t":"result","raw":"text"}'))


@pytest.mark.parametrize("data", [b"x" * 11, b"ok\n" + b"x" * 11, b"x" * 11 + b"\n"])
def test_a_line_that_is_too_long_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="longer than 10"):
        LineReader(10).feed(data)


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="longer than"):
        encode({"t": "data", "data": "x" * protocol.MAX_LINE_BYTES})


@pytest.mark.parametrize("line", [b"", b"hello", b"[]", b"{}", b'{"t":1}', b'{"t":"x"', b"\xff\xfe", b"[" * 100_000])
def test_what_is_not_a_message_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a message"):
        decode(line)


_ODD_VALUES: list[object] = [
    None, True, 0, -1, 1 << 70, 1e308, float("nan"), "", "x", "a\0b", "\ud800", "core", [], [1], ["a"], [["a"]], {},
    {"a": "b"}, {"a=b": "c"}, {"a": 1}, [{}], [{"rank": 1, "env": {}}], [{"rank": 1 << 30, "env": {}}],
]  # fmt: skip
_DAMAGED_SPECS = st.fixed_dictionaries(
    {}, optional={name: st.just(value) | st.sampled_from(_ODD_VALUES) for name, value in spec().items()}
).map(lambda message: json.dumps(message).encode())


@given(st.binary(max_size=300) | _DAMAGED_SPECS)
def test_garbage_is_refused_and_nothing_else_happens(line: bytes) -> None:
    """What is taken nevertheless is a whole spec; nothing else is raised, opened or changed."""
    before = os.getcwd(), dict(os.environ), sorted(os.listdir("/proc/self/fd")), threading.active_count()
    try:
        taken: Spec | None = Spec(decode(line))
    except ProtocolError:
        taken = None
    assert (os.getcwd(), dict(os.environ), sorted(os.listdir("/proc/self/fd")), threading.active_count()) == before
    if taken is not None:
        message = json.loads(line)
        assert (message["t"], message["version"]) == ("spec", protocol.VERSION)
        assert [to_text(argument) for argument in taken.argv] == message["argv"]
        assert {to_text(name): to_text(value) for name, value in taken.env.items()} == message["env"]
        assert [rank for rank, _ in taken.rank_env] == [each["rank"] for each in message["ranks"]]
        assert (taken.secret, taken.grace_seconds, taken.blobs) == tuple(
            message[name] for name in ("secret", "grace", "blobs")
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"t": "start"},
        {"version": 99},
        {"argv": []},
        {"argv": "true"},
        {"argv": [1]},
        {"argv": ["nul\0"]},
        {"argv": ["\ud800"]},
        {"env": {"A=B": "x"}},
        {"env": {"": "x"}},
        {"env": {"A": 1}},
        {"env": []},
        {"cwd": None},
        {"ranks": []},
        {"ranks": [3]},
        {"ranks": [{"rank": -1, "env": {}}]},
        {"ranks": [{"rank": True, "env": {}}]},
        {"ranks": [{"rank": 0, "env": {}}, {"rank": 0, "env": {}}]},
        {"secret": "0" * 63},
        {"secret": "G" * 64},
        {"grace": -1},
        {"grace": float("nan")},
        {"grace": "1"},
        {"grace": True},
        {"blobs": None},
        {"bind_to": "socket"},
    ],
)
def test_a_spec_with_a_wrong_field_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        Spec(spec(**changes))


def test_a_spec_without_a_field_is_refused() -> None:
    for key in set(spec()) - {"results", "t"}:
        message = spec()
        del message[key]
        with pytest.raises(ProtocolError):
            Spec(message)


@pytest.mark.parametrize("text", ["a", "!!!!", "YQ", "YQ=", "é"])
def test_what_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        unpack(text)


def test_undecodable_names_of_the_system_are_text_on_the_way() -> None:
    raw = b"caf\xe9 \xff\n'\" \xf0\x9f\x92\x83"
    assert to_bytes(to_text(raw)) == raw == os.fsencode(os.fsdecode(raw))
