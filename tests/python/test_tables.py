"""The engine's tables as Python sees them."""

from __future__ import annotations

import pytest

import ciranda as hvd
from ciranda import _core


def test_reduce_ops_have_horovods_numbers() -> None:
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)


def test_reduce_ops_of_bits_and_truth_follow() -> None:
    assert (hvd.BitwiseAnd, hvd.BitwiseOr, hvd.BitwiseXor) == (6, 7, 8)
    assert (hvd.LogicalAnd, hvd.LogicalOr, hvd.LogicalXor) == (9, 10, 11)


def test_settings_have_a_default_and_a_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _core.settings()
    assert {"CIRANDA_RANK", "CIRANDA_SIZE", "CIRANDA_STALL_WARNING_SECONDS"} <= {row["name"] for row in rows}
    for row in rows:
        assert row["meaning"], row
        if row["lowest"] is not None and row["highest"] is not None:
            assert row["lowest"] <= float(row["default"]) <= row["highest"], row
    monkeypatch.setenv("CIRANDA_STALL_WARNING_SECONDS", "2.5")
    assert _core.effective_settings()["CIRANDA_STALL_WARNING_SECONDS"] == 2.5


def test_horovods_variable_is_read_where_ours_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {row["name"]: row for row in _core.settings()}
    name = rows["CIRANDA_STALL_WARNING_SECONDS"]["horovod_name"]
    assert name.startswith("HOROVOD_")
    monkeypatch.setenv(name, "7")
    assert _core.effective_settings()["CIRANDA_STALL_WARNING_SECONDS"] == 7.0
    monkeypatch.setenv("CIRANDA_STALL_WARNING_SECONDS", "8")
    assert _core.effective_settings()["CIRANDA_STALL_WARNING_SECONDS"] == 8.0


def test_simd_level_can_be_lowered_and_not_raised_beyond_the_cpu() -> None:
    best = _core.best_simd_level()
    _core.set_simd_level("baseline")
    assert _core.simd_level() == "baseline"
    _core.set_simd_level("avx512")
    assert _core.simd_level() == best
    with pytest.raises(ValueError, match="mmx"):
        _core.set_simd_level("mmx")
    _core.set_simd_level(best)
