"""ciranda bench with real ranks: each way that a call could go is measured for itself."""

from __future__ import annotations

import pytest

from ciranda.bench.cli import run
from ciranda.bench.plan import Plan

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("shared_memory", ["1", "0"])
@pytest.mark.parametrize("collective", ["allreduce", "broadcast"])
def test_every_way_is_measured(collective: str, shared_memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRANDA_SHARED_MEMORY", shared_memory)
    needed = 1024 if shared_memory == "1" else 2 * 1024  # by messages the limit is of all ranks together
    monkeypatch.setenv("CIRANDA_DIRECT_BYTES", str(needed if collective == "allreduce" else needed - 1))
    plan = Plan(collective, min_bytes=1024, max_bytes=1024, seconds=0.01, iterations=5, warm_up=1, explain=True)
    (row,) = run(plan).rows
    assert set(row.systems) == {each.title for each in row.candidates}
    assert [name for name, found in row.systems.items() if found.n_wrong] == []
    has_choice = collective == "allreduce" or shared_memory == "0"
    assert (len(row.candidates) > 1) == has_choice
    assert all(each.is_a_choice == has_choice for each in row.candidates)
    direct = "a direct round " + ("in shared memory" if shared_memory == "1" else "by messages")
    assert row.agreement == (direct if collective == "allreduce" else "the log")
