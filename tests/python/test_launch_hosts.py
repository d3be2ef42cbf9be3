"""Hosts, host files and which rank goes where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciranda.launch.errors import HostsError
from ciranda.launch.hosts import Host, assign, by_host, checked_size, parse_hostfile, parse_hosts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hostA:2,hostB:2", [Host("hostA", 2), Host("hostB", 2)]),
        ("hostA", [Host("hostA", 1)]),
        (" hostA:1 , 10.0.0.2:3 ", [Host("hostA", 1), Host("10.0.0.2", 3)]),
        ("[fd00::1]:2,[::1]", [Host("fd00::1", 2), Host("::1", 1)]),
        ("me@node-1.example.org:4", [Host("me@node-1.example.org", 4)]),
        ("me@[fd00::1]:4", [Host("me@fd00::1", 4)]),
    ],
)
def test_hosts_are_read(text: str, expected: list[Host]) -> None:
    assert parse_hosts(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no host"),
        (",", "names no host"),
        ("a:1,,b:1", "extra comma"),
        ("a:1,", "extra comma"),
        ("a:0", "1 or more"),
        ("a:-1", "1 or more"),
        ("a:two", "'two'"),
        ("a:", "must be a number"),
        (":2", "not a host name"),
        ("a b:2", "not a host name"),
        ("-oProxyCommand=true:1", "not a host name"),
        ("fd00::1:2", "brackets"),
        ("[fd00::zz]:2", "not a host name"),
        ("a:1,b:1,a:2", "names a twice"),
        ("a:99999999", "at most 65536"),
        ("a:2\n", None),
    ],
)
def test_malformed_hosts_are_refused_with_a_reason(text: str, complaint: str | None) -> None:
    if complaint is None:
        assert parse_hosts(text) == [Host("a", 2)]  # surrounding white space is no mistake
        return
    with pytest.raises(HostsError, match=complaint):
        parse_hosts(text)


def test_a_hostfile_is_read() -> None:
    text = "# the cluster\nhostA slots=2\n\nhostB slots=4 max_slots=8  # big one\nhostC\nhostD:3\n"
    assert parse_hostfile(text) == [Host("hostA", 2), Host("hostB", 4), Host("hostC", 1), Host("hostD", 3)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no host"),
        ("# nothing\n", "names no host"),
        ("a slots=2\nb slots=x\n", "line 2.*'x'"),
        ("a slots=\n", "line 1.*'slots=' is not understood"),
        ("a 4\n", "line 1.*'4' is not understood"),
        ("a slots=0\n", "1 or more"),
        ("a\na\n", "names a twice"),
    ],
)
def test_a_malformed_hostfile_is_refused_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(HostsError, match=complaint) as caught:
        parse_hostfile(text, "hosts.txt")
    assert "hosts.txt" in str(caught.value)


@pytest.mark.parametrize(("np", "complaint"), [(0, "1 or more"), (-1, "1 or more"), (1 << 20, "at most")])
def test_an_impossible_size_is_refused(np: int, complaint: str) -> None:
    with pytest.raises(HostsError, match=complaint):
        checked_size(np)


def test_more_ranks_than_slots_are_refused_with_both_numbers() -> None:
    with pytest.raises(HostsError, match=r"-np 5 is more than the 4 slots of a:2, b:2"):
        assign([Host("a", 2), Host("b", 2)], 5)


def test_ranks_fill_the_slots_in_order() -> None:
    slots = assign([Host("a", 2), Host("b", 1), Host("c", 3)])
    table = [(s.rank, s.host, s.local_rank, s.local_size, s.cross_rank, s.cross_size) for s in slots]
    assert table == [
        (0, "a", 0, 2, 0, 3),
        (1, "a", 1, 2, 0, 2),
        (2, "b", 0, 1, 1, 3),
        (3, "c", 0, 3, 2, 3),
        (4, "c", 1, 3, 1, 2),
        (5, "c", 2, 3, 0, 1),
    ]


def test_hosts_beyond_the_last_rank_stay_unused() -> None:
    assert list(by_host(assign([Host("a", 2), Host("b", 2), Host("c", 2)], 3))) == ["a", "b"]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.data())
def test_assignment_is_consistent(counts: list[int], data: st.DataObject) -> None:
    hosts = [Host(f"h{i}", count) for i, count in enumerate(counts)]
    np = data.draw(st.integers(1, sum(counts)))
    slots = assign(hosts, np)
    assert [slot.rank for slot in slots] == list(range(np))
    assert all(slot.size == np for slot in slots)
    for host, own in by_host(slots).items():
        assert [slot.local_rank for slot in own] == list(range(len(own)))
        assert {slot.local_size for slot in own} == {len(own)}
        assert len(own) <= next(h.slots for h in hosts if h.name == host)
    for local_rank in {slot.local_rank for slot in slots}:
        across = [slot for slot in slots if slot.local_rank == local_rank]
        assert [slot.cross_rank for slot in across] == list(range(len(across)))
        assert {slot.cross_size for slot in across} == {len(across)}
