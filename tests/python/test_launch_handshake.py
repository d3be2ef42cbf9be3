"""How agents and a launcher that meet by TCP know each other: the handshake, and the sealed records behind it."""

from __future__ import annotations

import dataclasses

import pytest

from ciranda.launch.errors import ProtocolError
from ciranda.launch.handshake import AcceptingHandshake, ConnectingHandshake, State, Terms, ranks_secret
from ciranda.launch.sealing import MOST_BYTES, Opener, Sealer

TERMS = Terms(bytes(range(32)), "j-0.j", 3)
ONE, OTHER = b"1" * 32, b"2" * 32


def met(launcher: Terms, agent: Terms, index: int = 1, n_bytes: int = 1000) -> tuple[State, State]:
    """The states after all that both sides have said, in pieces of ``n_bytes``, has reached the other."""
    accepting, connecting = AcceptingHandshake(launcher, ONE), ConnectingHandshake(agent, index, OTHER)
    to_launcher, to_agent = connecting.begin(), b""
    while to_launcher or to_agent:
        if to_launcher and accepting.wants():
            size = min(n_bytes, accepting.wants())
            to_agent += accepting.receive(to_launcher[:size])
            to_launcher = to_launcher[size:]
        elif to_agent and connecting.wants():
            size = min(n_bytes, connecting.wants())
            to_launcher += connecting.receive(to_agent[:size])
            to_agent = to_agent[size:]
        else:
            break
    if accepting.state is connecting.state is State.PROVED:
        assert accepting.keys == connecting.keys
        assert accepting.index == index
    return accepting.state, connecting.state


@pytest.mark.parametrize("n_bytes", [1, 7, 1000])
def test_the_same_secret_lets_in(n_bytes: int) -> None:
    assert met(TERMS, TERMS, n_bytes=n_bytes) == (State.PROVED, State.PROVED)


def test_another_secret_is_seen_by_the_agent_which_then_proves_nothing() -> None:
    assert met(TERMS, dataclasses.replace(TERMS, secret=bytes(32))) == (State.PENDING, State.REFUSED)


@pytest.mark.parametrize("differs", [{"job": "k-0.k"}, {"n_hosts": 4}])
def test_another_job_is_refused(differs: dict[str, object]) -> None:
    assert met(TERMS, dataclasses.replace(TERMS, **differs)) == (State.REFUSED, State.PENDING)


@pytest.mark.parametrize("index", [0, 3, 2**32 - 1])
def test_an_index_that_is_no_agent_s_is_refused(index: int) -> None:
    assert met(TERMS, TERMS, index) == (State.REFUSED, State.PENDING)


def test_what_is_no_hello_is_refused_at_its_first_byte() -> None:
    accepting = AcceptingHandshake(TERMS, ONE)
    assert accepting.receive(b"G") == b""
    assert accepting.state is State.REFUSED
    assert accepting.wants() == 0


def test_a_recorded_exchange_proves_nothing_to_another_nonce() -> None:
    accepting, connecting = AcceptingHandshake(TERMS, ONE), ConnectingHandshake(TERMS, 1, OTHER)
    proof = connecting.receive(accepting.receive(connecting.begin()))
    again = AcceptingHandshake(TERMS, OTHER)
    again.receive(connecting.begin())
    again.receive(proof)
    assert again.state is State.REFUSED


def test_the_launcher_s_proof_is_none_of_an_agent() -> None:
    """It is sent first, and must not be good for sending it back."""
    accepting = AcceptingHandshake(TERMS, ONE)
    challenge = accepting.receive(ConnectingHandshake(TERMS, 1, OTHER).begin())
    accepting.receive(challenge[-32:])
    assert accepting.state is State.REFUSED


def test_ranks_have_another_secret_in_each_job() -> None:
    secrets = {ranks_secret(TERMS.secret, job) for job in ("a", "b")} | {ranks_secret(bytes(32), "a")}
    assert len(secrets) == 3
    assert all(len(bytes.fromhex(each)) == 32 for each in secrets)
    assert TERMS.secret.hex() not in secrets


@pytest.mark.parametrize("n_bytes", [1, 50, 1 << 20])
def test_records_carry_any_bytes_in_any_pieces(n_bytes: int) -> None:
    sealer, opener = Sealer(ONE), Opener(ONE)
    written = [b"", b"x", bytes(MOST_BYTES), bytes(range(256)) * 2048]
    records = b"".join(sealer.seal(each) for each in written)
    step = n_bytes if n_bytes > 1 else len(records) // 3
    read = b"".join(opener.open(records[at : at + step]) for at in range(0, len(records), step))
    assert read == b"".join(written)


def _changed(record: bytes, at: int) -> bytes:
    return record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]


_SEALER = Sealer(ONE)
_FIRST, _SECOND = _SEALER.seal(b"first"), _SEALER.seal(b"second")


def test_records_in_order_are_opened() -> None:
    assert Opener(ONE).open(_FIRST + _SECOND) == b"firstsecond"


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(_changed(_FIRST, len(_FIRST) - 1), id="changed"),
        pytest.param(_changed(_FIRST, 4), id="changed proof"),
        pytest.param(_SECOND, id="left out"),
        pytest.param(_FIRST + _FIRST, id="repeated"),
        pytest.param(Sealer(OTHER).seal(b"first"), id="of another key"),
        pytest.param(b"\4" + _FIRST[1:], id="shorter"),
        pytest.param(b"\xff" * len(_FIRST), id="too long"),
    ],
)
def test_records_that_are_not_the_next_of_the_other_side_are_errors(records: bytes) -> None:
    with pytest.raises(ProtocolError):
        Opener(ONE).open(records)
