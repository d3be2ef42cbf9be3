"""ciranda bench: sizes, arithmetic, right answers, and the table; without processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from ciranda import _core
from ciranda.bench import plot, stages, table, tune, ways
from ciranda.bench.cli import _load_of_others_percent, make_plan
from ciranda.bench.plan import (
    COLLECTIVES,
    DTYPES,
    OPS,
    Candidate,
    Case,
    Measurement,
    Plan,
    Results,
    Row,
    bus_factor,
    call_times_us,
    cases,
    count_wrong,
    expected,
    format_size,
    pattern,
    summarise,
)
from ciranda.bench.tune import Line

#: What a rank tells of its GPU, where nothing is in the way.
TOLD = ways.Told("GPU 0", "", {"CIRANDA_GPU_WAY": "auto", "CIRANDA_GPU_REDUCE": "nccl", "CIRANDA_SHARED_MEMORY": True})

#: Two systems, and how long each takes for a byte.
BOTH = (("ciranda", 1.0), ("gloo", 20.0))

DEFAULTS = {
    "collective": "allreduce",
    "np": 2,
    "minimum": "4",
    "maximum": "1K",
    "factor": 4,
    "dtype": "float32",
    "op": "sum",
    "peers": "",
    "seconds": 0.1,
    "iterations": 10,
    "warm_up": 1,
    "pin": False,
}


@pytest.mark.parametrize(("n_bytes", "text"), [(4, "4 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (64 << 20, "64 MiB")])
def test_format_size(n_bytes: int, text: str) -> None:
    assert format_size(n_bytes) == text


def test_cases_rise_by_the_factor() -> None:
    found = list(cases(Plan(min_bytes=4, max_bytes=1024, factor=4)))
    assert [case.n_bytes for case in found] == [4, 16, 64, 256, 1024]
    assert [case.count for case in found] == [1, 4, 16, 64, 256]


def test_an_allgather_shares_its_size_among_the_ranks() -> None:
    found = list(cases(Plan(collective="allgather", np=4, min_bytes=4, max_bytes=64, factor=4)))
    assert [(case.count, case.n_bytes) for case in found] == [(1, 16), (4, 64)]


def test_call_times_count_from_the_last_to_come_to_the_last_to_leave() -> None:
    starts = np.array([[0, 5000], [1000, 4000]])
    ends = np.array([[3000, 6000], [2000, 7000]])
    assert call_times_us(starts, ends) == [2.0, 2.0]


def test_bandwidths_are_those_of_nccl_tests() -> None:
    case = Case("allreduce", "float32", "sum", 4, 250_000)
    result = summarise(case, [100.0, 200.0, 300.0], 0)
    assert (result.median_us, result.min_us, result.iterations) == (200.0, 100.0, 3)
    assert result.algbw == pytest.approx(5.0)
    assert result.busbw == pytest.approx(7.5)
    assert bus_factor(Case("broadcast", "float32", "sum", 4, 1)) == 1
    assert bus_factor(Case("allgather", "float32", "sum", 4, 1)) == 0.75


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("count", [1, 4, 13])
def test_right_answers_have_no_wrong_element_and_a_changed_one_has(
    collective: str, dtype: str, op: str, count: int
) -> None:
    case = Case(collective, dtype, op, 3, count)
    right = expected(case)
    assert right.dtype == np.dtype(dtype)
    assert right.size * right.itemsize == case.n_bytes
    assert count_wrong(case, right) == 0
    changed = right.copy()
    changed[-1] += 1
    assert count_wrong(case, changed) == 1
    assert count_wrong(case, right[:-1]) == right.size


@pytest.mark.parametrize(("op", "value"), [("sum", 0 + 1 + 2), ("min", 0), ("max", 2), ("average", 1)])
def test_expected_by_hand(op: str, value: float) -> None:
    assert expected(Case("allreduce", "float64", op, 3, 1))[0] == value


def test_patterns_differ_by_rank_and_place() -> None:
    case = Case("allreduce", "float32", "sum", 2, 10)
    assert len(set(pattern(case, 0)[:5].tolist())) == 5
    assert not np.array_equal(pattern(case, 0), pattern(case, 1))


def test_the_table_lines_up() -> None:
    measurement = Measurement(12.34, 10.0, 3.2, 3.2, 0, 100)
    slow = Measurement(123456.7, 99999.0, 0.001, 0.001, 7, 100)
    plan = Plan(peers=("gloo",))
    row = Row(65536, 16384, "float32", "sum", {"ciranda": measurement, "gloo": slow})
    meta = {"cpu": "a processor", "cores": 2, "ciranda": "0.1.0", "torch": "2", "other_load_percent": 3.2}
    lines = table.header(plan, meta).splitlines()
    assert "64 KiB" in table.line(row)
    assert len(table.line(row)) == len(lines[-2])
    assert "10004.6x" in table.line(row)
    assert (
        table.footer(Results(meta, [row]))
        == "# 7 ELEMENTS WERE WRONG; other processes used 3 % of the machine meanwhile"
    )


def test_a_warning_stands_above_what_was_measured_on_a_busy_machine() -> None:
    assert table.warning(10.0) == ""
    assert table.warning(10.6).startswith("# WARNING: other processes use 11 % of this machine")


def test_the_load_of_others_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            seen = max(_load_of_others_percent() for _ in range(3))
        finally:
            busy.kill()
    assert seen > 50 / (os.cpu_count() or 1)


def test_results_become_json() -> None:
    measurement = Measurement(10.0, 8.0, 1.0, 1.0, 0, 5)
    row = Row(4, 1, "float32", "sum", {"ciranda": measurement, "gloo": Measurement(50.0, 40.0, 1.0, 1.0, 0, 5)})
    data = json.loads(json.dumps(Results({"np": 2}, [row]).to_dict()))
    assert data["rows"][0]["ratios"] == {"gloo": 5.0}
    assert data["rows"][0]["systems"]["ciranda"]["median_us"] == 10.0


def test_the_legend_of_a_plot_lies_beside_the_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot as plt

    kept: list[Any] = []
    monkeypatch.setattr(plt, "close", kept.append)
    rows = [
        Row(
            size,
            size // 4,
            "float32",
            "sum",
            {name: Measurement(size * at, size / 2, 1, at, 0, 5) for name, at in BOTH},
        )
        for size in (4, 1024, 1 << 20)
    ]
    meta = {"systems": [name for name, _ in BOTH], "collective": "allreduce", "dtype": "float32", "np": 2}
    meta["limit_gb_per_s"] = 7.0
    plot.save(Results({**meta, "cpu": "a processor", "cores": 2}, rows), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    (figure,) = kept
    renderer = figure.canvas.get_renderer()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][::2] == [
        *(f"{name}, median" for name, _ in BOTH), "limit of large calls (ciranda tune)"
    ]  # fmt: skip
    assert [*figure.axes[1].lines[-1].get_ydata()] == [7.0, 7.0]
    for axes in figure.axes:
        assert not legend.get_window_extent(renderer).overlaps(axes.get_window_extent(renderer))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"collective": "alltoall"}, "choose from allreduce"),
        ({"dtype": "float31"}, "float16"),
        ({"op": "mean"}, "average"),
        ({"peers": "nccl"}, "gloo"),
        ({"peers": "gloo", "op": "average"}, "no average"),
        ({"minimum": "2K"}, "larger than the largest"),
        ({"maximum": "lots"}, "is not a size"),
    ],
)
def test_make_plan_says_what_is_possible(change: dict[str, str], says: str) -> None:
    with pytest.raises(typer.BadParameter, match=says):
        make_plan(**{**DEFAULTS, **change})


def test_make_plan() -> None:
    plan = make_plan(**{**DEFAULTS, "peers": "gloo"})
    assert (plan.min_bytes, plan.max_bytes, plan.systems) == (4, 1024, ("ciranda", "gloo"))


def test_an_explanation_says_what_was_measured_at_init() -> None:
    pair: _core.PairRow = {
        "line_ns": 219,
        "distance": "far",
        "hand_over_gb_per_s": {"cached": 4.2, "past-caches": 9.3},
        "read_gb_per_s": 13.8,
    }
    rates = "GB/s of writing and reading: 4 cached, 9 past-caches; of reading alone: 14"
    assert table.memory({0: None, 1: pair}, "past-caches").splitlines() == [
        f"# to rank 1: a cache line takes 219 ns (far); {rates}",
        "# written over what others have read: past-caches",
    ]
    assert table.memory({0: None, 1: None}, "cached") == (
        "# written over what others have read: cached; nothing was measured at init()"
    )


def test_explanations_name_what_is_chosen_and_what_is_fastest() -> None:
    slow, fast = Measurement(12.34, 10.0, 3.2, 3.2, 0, 100), Measurement(11.0, 9.0, 3.2, 3.2, 0, 100)
    one = Candidate("shm one-shot", 0, 8.0, None, True)
    two = Candidate("shm two-shot", 32768, 9.0, 10.5, False)
    in_place = Candidate("shm two-shot", 32768, 4.0, None, False, is_in_place=True)
    faster = Measurement(5.0, 4.0, 3.2, 3.2, 0, 100)
    measured = {one.title: slow, two.title: fast, in_place.title: faster}
    row = Row(65536, 16384, "float32", "sum", measured, (one, two, in_place), agreement="the log")
    columns = table.explain_header(Plan(), {"cpu": "a processor", "cores": 2, "ciranda": "0.1.0"}).splitlines()[-2]
    agreement, first, second, third = table.explanation(row).splitlines()
    assert " ".join(agreement.split()) == "64 KiB agreed on by the log"
    assert first.split() == ["64", "KiB", "shm", "one-shot", "8.0", "-", "12.3", "10.0", "0", "chosen"]
    assert " ".join(second.split()) == "64 KiB shm two-shot, 32 KiB 9.0 10.5 11.0 9.0 0 fastest"
    assert " ".join(third.split()) == "64 KiB shm two-shot, in place 4.0 - 5.0 4.0 0", "not a choice"
    assert len(first.split("chosen")[0]) == len(second.split("fastest")[0]) == len(columns) + 2
    assert json.loads(json.dumps(Results({}, [row]).to_dict()))["rows"][0]["candidates"][0]["name"] == "shm one-shot"


def test_stages_are_those_of_the_rank_that_called_last() -> None:
    first = [[100, 9000], [110, 9010], [120, 9020], [130, 9030], [700, 9040], [710, 9150], [900, 9370]]
    second = [[500, 8000], [501, 8001], [503, 8002], [510, 8003], [600, 9045], [650, 9100], [660, 9999]]
    durations = stages.durations_ns(np.array([first, second]))
    assert {name: each.tolist() for name, each in durations.items()} == {
        "python": [1, 10],
        "enqueue": [2, 10],
        "ready": [7, 10],
        "agree": [90, 10],
        "execute": [50, 110],
        "return": [10, 220],
        "others": [240, 9999 - 9370],
    }
    assert sum(durations.values()).tolist() == [900 - 500, 9999 - 9000]
    assert stages.medians_us(durations)["others"] == (240 + 629) / 2 / 1e3


def test_a_stage_that_a_call_has_skipped_took_no_time() -> None:
    assert stages.of_blocking_call((100, 0, 0, 130, 0, 140)) == [100, 100, 100, 130, 140]
    assert stages.of_blocking_call((100, 110, 120, 130, 135, 140)) == [100, 110, 120, 130, 140]


def test_the_table_of_stages_lines_up() -> None:
    shown = {name: 0.1 * number for number, name in enumerate(stages.STAGES)}
    row = Row(65536, 16384, "float32", "sum", {"ciranda": Measurement(12.34, 10.0, 3.2, 3.2, 0, 100)}, stages=shown)
    head = table.profile_header(Plan(profile=True), {"cpu": "a processor", "cores": 2, "ciranda": "0.1.0"})
    columns = head.splitlines()[-2]
    assert columns.split()[:4] == ["#", "size", "time", "python"]
    assert len(table.profile(row)) == len(columns)
    assert " ".join(table.profile(row).split()) == "64 KiB 12.34 0.00 0.10 0.20 0.30 0.40 0.50 0.60 0"
    assert json.loads(json.dumps(Results({}, [row]).to_dict()))["rows"][0]["stages"] == shown


def test_costs_are_found_again_in_the_times_that_they_make() -> None:
    call, of_round, copy, reduce, link = 5.0, 0.4, 60e-6, 50e-6, 800e-6  # us, us a byte
    one = Line(call + of_round, copy + 2 * reduce)
    two = Line(call + 2 * of_round, 1.5 * copy + reduce)
    found = tune.in_shared_memory(one, two)
    assert found == {"call_ns": 5000, "shared_round_ns": 400, "copy_fs": 60_000, "reduce_fs": 50_000}
    known = {**tune.defaults(), "message_ns": 100, "reduce_fs": 50_000}
    one = Line(call + of_round, link + 2 * reduce)
    two = Line(call + 2 * of_round, link + reduce)
    assert tune.of_the_link(one, two, known) == {"link_round_ns": 300, "link_fs": 800_000}
    assert Line.through(one.fixed_us, one.fixed_us - 1).us_per_byte == 0


def test_costs_that_no_machine_has_are_measured_again_and_never_kept() -> None:
    good = {"copy_fs": 60_000, "reduce_fs": 50_000}
    results = [{**good, "reduce_fs": 0}, {**good, "copy_fs": 999}, good]
    assert tune.likely(lambda: results.pop(0), lambda mine: [mine, {}]) == good
    results = [good, {**good, "copy_fs": 70_000}]
    others = [{"link_fs": 1}, {}]
    assert tune.likely(lambda: results.pop(0), lambda mine: [others.pop(0), mine])["copy_fs"] == 70_000, "of the other"
    with pytest.raises(tune.TooBusyError, match="reduce_fs as 0: this machine is too busy"):
        tune.likely(lambda: {**good, "reduce_fs": 0}, lambda mine: [mine])
    with pytest.raises(tune.TooBusyError, match="call_ns as 30000000: this machine is too busy"):
        tune.likely(lambda: {**good, "call_ns": 30_000_000}, lambda mine: [mine])
    usual = {name: cost for name, cost in tune.defaults().items() if name in tune.BOUNDS}
    assert not tune.unlikely(usual | {"shared_round_ns": 80, "link_fs": 20_000}), "400 Gbit/s"
    assert not tune.unlikely(usual | {"link_round_ns": 300_000_000, "link_fs": 8_000_000}), "around the world"
    for name, (_, most) in tune.BOUNDS.items():
        assert tune.unlikely({name: most + 1})


_TIME_US = st.floats(0.1, 1e6)


@given(st.tuples(_TIME_US, _TIME_US), st.tuples(_TIME_US, _TIME_US))
def test_what_a_busy_machine_measures_can_be_kept(one: tuple[float, float], two: tuple[float, float]) -> None:
    """Two rounds may take less time than one there, and more bytes less than few."""
    lines = Line.through(*one), Line.through(*two)
    found = {**tune.in_shared_memory(*lines), **tune.of_the_link(*lines, tune.defaults())}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("CIRANDA_COSTS_FOLDER", folder)
        _core.save_measured_costs({**tune.defaults(), **found})
        assert _core.measured_costs() is not None


def _with(**settings: object) -> ways.Told:
    return replace(TOLD, settings={**TOLD.settings, **settings})


@pytest.mark.parametrize(
    ("algorithm", "told", "title", "why"),
    [
        ("peer", [TOLD] * 2, "peer", "all ranks share a host's memory, and have kernels"),
        ("peer", [TOLD], "peer", "one rank needs no other's memory"),
        ("peer", [_with(CIRANDA_GPU_WAY="nccl")] * 2, "peer", "NCCL cannot be used, as the warning says; all ranks"),
        ("nccl", [_with(CIRANDA_GPU_WAY="nccl")] * 2, "nccl", "of its own; NCCL does all of it"),
        ("nccl-ciranda", [_with(CIRANDA_GPU_WAY="nccl")] * 2, "nccl, nccl-ciranda", "since NCCL does not do that"),
        ("nccl-ciranda", [_with(CIRANDA_GPU_REDUCE="ciranda")], "nccl, nccl-ciranda", "CIRANDA_GPU_REDUCE is ciranda"),
        ("shm one-shot", [_with(CIRANDA_GPU_WAY="staged")] * 2, "staged, shm one-shot", "CIRANDA_GPU_WAY is staged"),
        ("", [_with(CIRANDA_GPU_WAY="staged")], "staged", "CIRANDA_GPU_WAY is staged"),
        (
            "ring",
            [TOLD, replace(TOLD, no_kernels="too old")],
            "staged, ring",
            "rank 1 has no kernels on GPU 0: too",
        ),
        (
            "ring",
            [_with(CIRANDA_SHARED_MEMORY=False)] * 2,
            "staged, ring",
            "the ranks share no memory, since CIRANDA_",
        ),
        ("ring", [TOLD] * 65, "staged, ring", "there are more than 64 ranks"),
        ("ring", [TOLD] * 2, "staged, ring", "the ranks cannot use each other's memory on GPUs, as the warning says"),
    ],
)
def test_the_way_of_tensors_on_gpus_has_a_reason(algorithm: str, told: list[ways.Told], title: str, why: str) -> None:
    assert ways.title_of(algorithm) == title
    assert why in ways.why(algorithm, told)


def test_the_algorithm_of_a_call_is_the_one_that_was_counted() -> None:
    assert ways.algorithm_of({"peer": 2, "ring": 7}, {"peer": 3, "ring": 7}) == "peer"
    assert ways.algorithm_of({"ring": 7}, {"ring": 7, "peer": 1}) == "peer"
    assert ways.algorithm_of({"ring": 7}, {"ring": 7}) == ""
