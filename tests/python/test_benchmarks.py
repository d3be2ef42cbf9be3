"""The benchmarks' arithmetic: what compare.py calls lost, won, or noise, and the table of peers.py."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import compare  # noqa: E402
import distances  # noqa: E402
import guard  # noqa: E402
import peers  # noqa: E402
import peers_rank  # noqa: E402

from ciranda.bench.ranks import Timed  # noqa: E402


def _found(median: float, spread: float = 0.02) -> dict[str, float]:
    half = median * spread
    return {
        "median_us": median,
        "low_us": median - half,
        "high_us": median + half,
        "min_us": median - half,
        "n_wrong": 0,
    }


def _results(ours: float, theirs: float, spread: float = 0.02) -> dict[str, Any]:
    row = {
        "collective": "allreduce",
        "n_bytes": 1 << 20,
        "systems": {"ciranda": _found(ours, spread), "gloo": _found(theirs, spread)},
        "floor_us": 10.0,
    }
    run = {"mpi": "no MPI", "versions": {"ciranda": "1"}, "rows": [row], "other_load_percent": 1.0}
    run["rewrite_gb_per_s"] = {"1048576": 200.0}
    return {"meta": {"cpu": "a", "cores": 2, "np": 2, "pin": False, "dtype": "float32"}, "runs": [run]}


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (100, 400, ""),  # as before
        (200, 800, ""),  # a slower day for both
        (108, 400, ""),  # less than what counts as news
        (150, 400, "lost"),
        (60, 400, "won"),
    ],
)
def test_only_the_ratio_counts(ours: float, theirs: float, verdict: str) -> None:
    (change,) = compare.changes(_results(100, 400), _results(ours, theirs))
    assert change.name == "allreduce 1 MiB, gloo (run with no MPI)"
    assert change.verdict == verdict
    assert change.loss == pytest.approx((ours / theirs) / (100 / 400))


def test_noise_widens_the_bounds() -> None:
    quiet, noisy = (compare.changes(_results(100, 400, s), _results(150, 400, s))[0] for s in (0.02, 0.4))
    assert (quiet.verdict, noisy.verdict) == ("lost", "")


def _run(tmp_path: Path, new: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    for path, results in zip(paths, (_results(100, 400), new), strict=True):
        path.write_text(json.dumps(results))
    command = [sys.executable, str(ROOT / "benchmarks" / "compare.py"), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_guard_fails_on_a_great_loss_alone(tmp_path: Path) -> None:
    slower = _run(tmp_path, _results(150, 400))
    assert slower.returncode == 0
    assert "lost" in slower.stdout
    much_slower = _run(tmp_path, _results(210, 400))
    assert much_slower.returncode == 1
    assert "2.1 times as slow beside the same peer as before" in much_slower.stdout


def test_the_guard_says_what_cannot_be_compared(tmp_path: Path) -> None:
    elsewhere = _results(100, 400)
    elsewhere["meta"]["cpu"] = "b"
    assert "cpu was a, is b" in _run(tmp_path, elsewhere).stdout
    strange = copy.deepcopy(elsewhere)
    strange["runs"][0]["mpi"] = "another"
    nothing = _run(tmp_path, strange)
    assert nothing.returncode == 1
    assert "nothing in common" in nothing.stdout


def _near(**ratios: float) -> guard.Ratios:
    """Of sizes: KiB behind a letter."""
    return {("near", int(size[1:]) << 10): ratio for size, ratio in ratios.items()}


def test_a_ratio_is_lost_below_half_of_the_baselines_alone() -> None:
    held = guard.hold(_near(k1=4.9, k4=5.1, k16=1.0), _near(k1=10.0, k4=10.0))
    assert [each.is_lost for each in held] == [True, False, False]
    assert [str(each).split() for each in held] == [
        ["allreduce", "1", "KiB,", "near", "4.9x", "10.0x", "LOST"],
        ["allreduce", "4", "KiB,", "near", "5.1x", "10.0x"],
        ["allreduce", "16", "KiB,", "near", "1.0x", "none", "yet"],
    ]


def test_a_ratio_is_held_against_one_of_the_same_distance_alone() -> None:
    far = {("far", 1024): 1.0}
    assert [each.baseline for each in guard.hold(far, _near(k1=10.0))] == [None]
    assert [each.is_lost for each in guard.hold(far, {**_near(k1=10.0), ("far", 1024): 3.0})] == [True]
    assert guard.never_met(far) == ["near"]
    assert guard.never_met({("unknown", 1024): 1.0}) == ["near", "far"]


def test_the_ratios_of_a_run_are_by_distance() -> None:
    (run,) = _near_and_far()["runs"]
    assert guard.ratios(run) == {("near", 1 << 20): 4.0, ("far", 1 << 20): 2.0, ("near", 4 << 20): 2.0}
    (before,) = _results(100, 400)["runs"]
    assert guard.ratios(before) == {("unknown", 1 << 20): 4.0}


def test_a_baseline_is_of_a_kind_of_machine_and_read_back(tmp_path: Path) -> None:
    path = guard.baseline_file(tmp_path / "new", "AMD EPYC (TM) 9", 4)
    assert path.name == "amd-epyc-tm-9-4-cores.json"
    assert guard.read_baseline(path) == {}
    guard.write_baseline(path, {"cpu": "AMD"}, _near(k1=12.34, k4=5.0))
    assert guard.read_baseline(path) == _near(k1=12.3, k4=5.0)


def test_a_baseline_keeps_the_distances_that_are_not_met_again(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    guard.write_baseline(path, {}, _near(k1=12.0, k4=5.0))
    guard.write_baseline(path, {}, {("far", 1024): 3.0})
    assert guard.read_baseline(path) == {**_near(k1=12.0, k4=5.0), ("far", 1024): 3.0}
    guard.write_baseline(path, {}, _near(k1=11.0))
    assert guard.read_baseline(path) == {**_near(k1=11.0), ("far", 1024): 3.0}


def test_a_baseline_from_before_distances_were_told_is_of_an_unknown_one(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"cpu": "AMD", "ratios": {"1024": 29.8, "262144": 8.6}}))
    assert guard.read_baseline(path) == {("unknown", 1024): 29.8, ("unknown", 262144): 8.6}


# Measured twice, and only a loss both times counts; where the cores have moved meanwhile it was measured once.
@pytest.mark.parametrize(
    ("second", "code"), [(_near(k1=9.0), 0), (_near(k1=3.0), 1), ({("far", 1024): 3.0}, 0)], ids=str
)
def test_the_guard_measures_a_loss_once_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, second: guard.Ratios, code: int
) -> None:
    found = iter([_near(k1=10.0), _near(k1=4.0), second])
    monkeypatch.setattr(guard, "measure", lambda _seconds: next(found))
    monkeypatch.setattr(guard, "ratio_by", lambda _script: 1.0)
    monkeypatch.setattr(guard, "ratios_beside_work", lambda: {"64 B": 2.0})
    monkeypatch.setattr(sys, "argv", ["guard.py", "--write", "--baselines", str(tmp_path / "b")])
    assert guard.main() == 0
    monkeypatch.setattr(sys, "argv", ["guard.py", "--baselines", str(tmp_path / "b")])
    assert guard.main() == code
    assert next(found, None) is None


def test_the_limit_is_the_nearest_buffers_rate_and_a_cache_line() -> None:
    limits = [
        {"limit": "cache_line", "one_way_ns": 30.0},
        *({"limit": "memory", "threads": 1, "bytes": n, "copy_gb_per_s": 1.0} for n in (1 << 10, 1 << 20)),
        {"limit": "memory", "threads": 2, "bytes": 1 << 10, "copy_gb_per_s": 100.0},
        {"limit": "memory", "threads": 2, "bytes": 1 << 20, "copy_gb_per_s": 40.0},
    ]
    assert peers.limit_us(limits, 2, 0) == pytest.approx(0.03)
    assert peers.limit_us(limits, 2, 1000) == pytest.approx(0.03 + 4000 / 100e3)
    assert peers.limit_us(limits, 2, 1_000_000) == pytest.approx(0.03 + 4_000_000 / 40e3)


def test_the_table_shows_ratios_and_the_floor() -> None:
    text = peers.table(_results(100, 400))
    last = text.splitlines()[-2].split()
    assert text.startswith("# float32, 2 ranks on a, 2 cores;")
    assert last == ["allreduce", "1", "MiB", "unknown", "100.0", "400.0", "4.00x", "10.0", "10.0x"]


def _near_and_far() -> dict[str, Any]:
    """Near 1 MiB takes 100 us, far 300; the peer 400 and 600. 4 MiB were measured near alone."""
    near, far, large = (_results(*pair)["runs"][0]["rows"][0] for pair in ((100, 400), (300, 600), (500, 1000)))
    results = _results(100, 400)
    results["runs"][0]["rows"] = [
        {**near, "distance": "near"},
        {**far, "distance": "far"},
        {**large, "distance": "near", "n_bytes": 4 << 20},
    ]
    return results


def test_times_taken_near_and_far_are_kept_apart() -> None:
    results = _near_and_far()
    assert [line.split()[3] for line in peers.table(results).splitlines()[3:-1]] == ["near", "far", "near"]
    assert peers.missing(results) == "# run with no MPI: cores were never far for allreduce 4 MiB"
    assert peers.ours_of(results, "allreduce", "near") == {1 << 20: [100], 4 << 20: [500]}
    assert peers.ratios_of(results, "allreduce", "far") == {"gloo": ([1 << 20], [2.0])}
    near_alone = copy.deepcopy(results)
    near_alone["runs"][0]["rows"][1]["distance"] = "near"
    assert {change.name for change in compare.changes(results, near_alone)} == {
        "allreduce 1 MiB, near cores, gloo (run with no MPI)",
        "allreduce 4 MiB, near cores, gloo (run with no MPI)",
    }


@pytest.mark.parametrize(
    ("before_ns", "after_ns", "distance"),
    [(55, 27, "near"), (240, 121, "far"), (55, 240, "unknown"), (240, 55, "unknown"), (None, 55, "unknown")],
)
def test_what_is_timed_between_two_looks_has_their_distance(
    before_ns: float | None, after_ns: float | None, distance: str
) -> None:
    assert distances.of_window(before_ns, after_ns) == distance


def test_a_rank_sorts_its_times_by_distance() -> None:
    timed = {
        "ciranda": Timed([1.0, 9.0, 2.0, 3.0], 0, ["near", "unknown", "near", "far"]),
        "gloo": Timed([5.0, 6.0], 1, ["near", "far"]),
    }
    found = peers_rank.by_distance(timed)
    assert {distance: {name: each["median_us"] for name, each in of.items()} for distance, of in found.items()} == {
        "near": {"ciranda": 1.5, "gloo": 5.0},
        "far": {"ciranda": 3.0, "gloo": 6.0},
    }
    assert [of["gloo"]["n_wrong"] for of in found.values()] == [1, 1]
    assert not peers_rank.are_both_met(timed)


def test_a_distance_that_not_all_systems_were_timed_at_is_left_out() -> None:
    near = Timed([1.0, 2.0], 0, ["near", "near"])
    both = peers_rank.by_distance({"ciranda": near, "gloo": Timed([5.0, 6.0], 0, ["near", "far"])})
    assert list(both) == ["near"]
    none = peers_rank.by_distance({"ciranda": near, "gloo": Timed([5.0, 6.0], 0, ["far", "unknown"])})
    assert {distance: of["gloo"]["median_us"] for distance, of in none.items()} == {"unknown": 5.5}


def test_both_distances_are_met_once_all_systems_have_ten_times_of_each() -> None:
    ten = Timed([1.0] * 20, 0, ["near"] * 10 + ["far"] * 10)
    nine = Timed([1.0] * 20, 0, ["near"] * 11 + ["far"] * 9)
    assert peers_rank.are_both_met({"ciranda": ten})
    assert not peers_rank.are_both_met({"ciranda": ten, "gloo": nine})


# Twice as long as it may be, once or both times.
@pytest.mark.parametrize(("again", "exceeds"), [(1.0, False), (3.0, True)])
def test_the_guard_runs_a_script_once_more_before_it_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], again: float, exceeds: bool
) -> None:
    found = iter([4.0, again])
    monkeypatch.setattr(guard, "ratio_by", lambda _script: next(found))
    assert guard.exceeds("a.py", "a call, beside another", 2.0) == exceeds
    assert ("guard: a call, beside another: more than 2 times as long" in capsys.readouterr().out) == exceeds
    assert next(found, None) is None


def _beside_work(small: float, large: float) -> list[str]:
    """What beside_work.py says of these ratios."""
    of = {"64 B": small, "1 MiB": large}
    return [
        f"{size:>8}: ciranda {100.0:8.1f} us, gloo {ratio * 100:8.1f} us, ratio {ratio:.2f}"
        for size, ratio in of.items()
    ]


# Too slow with 1 MiB, once or both times.
@pytest.mark.parametrize(("again", "is_behind"), [(2.5, False), (1.9, True)])
def test_the_guard_measures_beside_work_once_more_before_it_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], again: float, is_behind: bool
) -> None:
    found = iter([_beside_work(3.0, 1.8), _beside_work(1.0, again)])
    monkeypatch.setattr(guard, "said_by", lambda _script: next(found))
    assert guard.falls_behind_beside_work() == is_behind
    said = capsys.readouterr().out
    assert ("guard: allreduce 1 MiB, beside other work: less than 2 times as fast as gloo" in said) == is_behind
    assert "guard: allreduce 64 B" not in said
    assert next(found, None) is None


def test_calls_beside_other_work_are_timed_and_the_work_ends(tmp_path: Path) -> None:
    launcher, script = str(Path(sys.executable).with_name("ciranda")), str(ROOT / "benchmarks" / "beside_work.py")
    command = [launcher, "run", "--no-prefix", "-np", "2", sys.executable, script]
    few = ["--sizes", "64,1K", "--processes", "1", "--turns", "1", "--seconds", "0.05"]
    done = subprocess.run([*command, *few], check=True, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert [line.split(":")[0].strip() for line in done.stdout.splitlines()] == ["64 B", "1 KiB"]
    assert all(float(line.split()[-1]) > 0 for line in done.stdout.splitlines())
    here = [process for process in psutil.process_iter() if _folder_of(process) == tmp_path]
    assert here == []


def _folder_of(process: psutil.Process) -> Path | None:
    try:
        return Path(process.cwd())
    except psutil.Error:
        return None


def test_callbacks_are_timed_beside_waits() -> None:
    assert guard.ratio_by("called_back.py") > 0


def test_all_peers_are_those_whose_mpi_is_installed(tmp_path: Path) -> None:
    for name in ("openmpi", "mpich"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "mpiexec").touch()
    (tmp_path / "openmpi" / "lib" / "python3" / "site-packages" / "mpi4py").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    openmpi, mpich = {"openmpi": str(tmp_path / "openmpi")}, {"mpich": str(tmp_path / "mpich")}
    assert peers.environments_in(tmp_path, need_mpi4py=False) == {**mpich, **openmpi}
    assert peers.environments_in(tmp_path, need_mpi4py=True) == openmpi
    assert peers.environments_in(tmp_path / "none", need_mpi4py=False) == {}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_without_peers(tmp_path: Path, dtype: str) -> None:
    """Two processes measure themselves and the floor, and find nothing wrong."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    out = tmp_path / "out.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "peers.py"), "--peers", "", "--sizes", "4,4K"]
    command += ["--collectives", "allreduce,allgather", "--dtype", dtype]
    command += ["--iterations", "20", "--seconds", "0.02", "--json", str(out)]
    subprocess.run(command, check=True, timeout=200, stdout=subprocess.DEVNULL)
    (run,) = json.loads(out.read_text())["runs"]
    # Twice where the cores have moved meanwhile.
    assert list(dict.fromkeys((row["collective"], row["n_bytes"]) for row in run["rows"])) == [
        ("allreduce", 4),
        ("allreduce", 4096),
        ("allgather", 8 if dtype == "float32" else 4),
        ("allgather", 4096),
    ]
    assert all(row["floor_us"] > 0 and row["systems"]["ciranda"]["n_wrong"] == 0 for row in run["rows"])
    assert {row["distance"] for row in run["rows"]} <= {"near", "far", "unknown"}


def test_an_mpi_has_no_sixteen_bits_from_python(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "peers.py"), "--peers", "", "--dtype", "bfloat16"]
    run = subprocess.run([*command, "--mpi", f"openmpi={tmp_path}"], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "MPIs have no bfloat16 from Python: take --cpp, or leave out --mpi" in run.stderr


def test_gradients_are_as_many_as_the_models_have() -> None:
    pytest.importorskip("torch")
    import gradients

    counts = {what.name: (len(what.shapes), what.count) for what in gradients.ALL}
    assert counts["ResNet-50, float32"] == (161, 25_557_032)
    assert counts["GPT-2 small"] == (148, 124_439_808)
