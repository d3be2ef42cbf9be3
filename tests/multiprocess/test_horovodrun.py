"""`horovodrun` and `horovod.run`: flags, files, the environment of ranks, results, test suites under it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("horovod._names", reason="the package in compat/horovod is not installed")
pytest.importorskip("yaml")

import horovod
from ciranda.launch import LaunchError
from horovod.runner import _tunables
from horovod.runner.launch import is_gloo_used, make_plan, parse_args

pytestmark = pytest.mark.multiprocess

TWO_HUNDRED = Path(__file__).parent / "horovod_two_hundred.py"

# Every flag there is, with a value. Those that ask for another way of choosing hosts stand in tests of their own.
EVERY_FLAG = """
    -np 2 --disable-cache --start-timeout 20 --network-interfaces lo,eth7 --verbose -prefix-timestamp
    -p 22 -i key --ssh-port 22 --ssh-identity-file key
    --fusion-threshold-mb 32 --cycle-time-ms 3.5 --cache-capacity 2048
    --hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather --no-hierarchical-allgather
    --torus-allreduce --no-torus-allreduce
    --autotune --no-autotune --autotune-log-file a --autotune-warmup-samples 1 --autotune-steps-per-sample 5
    --autotune-bayes-opt-max-samples 7 --autotune-gaussian-process-noise 0.5
    --min-np 2 --min-num-proc 2 --max-np 2 --max-num-proc 2 --slots-per-host 2 --elastic-timeout 10 --reset-limit 1
    --blacklist-cooldown-range 1 2
    --timeline-filename t.json --timeline-mark-cycles --no-timeline-mark-cycles
    --stall-check --no-stall-check --stall-check-warning-time-seconds 30 --stall-check-shutdown-time-seconds 90
    --mpi-threads-disable --mpi-args=-x --tcp --binding-args=-b --num-nccl-streams 2 --thread-affinity 0,1
    --gloo-timeout-seconds 40
    --log-level debug --log-hide-timestamp --no-log-hide-timestamp --log-without-timestamp --log-with-timestamp
    --prefix-output-with-timestamp
    -H localhost:2 --gloo
"""


def horovodrun(
    *arguments: str, env: dict[str, str] | None = None, seconds: float = 200
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "horovod.runner", *arguments]
    environment = {**os.environ, **(env or {})}
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=seconds)


def plan_of(*arguments: str) -> dict[str, str]:
    return make_plan(parse_args([*arguments, "true"])).env


# -- flags -----------------------------------------------------------------------------------------------------------


def test_every_flag_is_taken_and_what_does_nothing_is_said_in_one_line() -> None:
    done = horovodrun(*EVERY_FLAG.split(), "echo", "hi", "--gloo")
    assert done.returncode == 0, done.stderr
    assert [line.partition("<stdout>:")[2] for line in done.stdout.splitlines()] == ["hi --gloo"] * 2
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("horovodrun:"))
    for flag in ("--disable-cache", "--cycle-time-ms", "--num-nccl-streams", "--slots-per-host", "--mpi-args", "eth7"):
        assert flag in line
    for flag in (
        "--fusion-threshold-mb",
        "--cache-capacity",
        "--log-level",
        "--no-torus-allreduce",
        "--gloo (",
        "--min-np",
        "--reset-limit",
        "--blacklist-cooldown-range",
    ):
        assert flag not in line


def test_remarks_that_nobody_can_see_are_no_obstacle(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "horovod.runner", "-np", "1", "--disable-cache", "touch", str(tmp_path / "made")]
    subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], check=True, timeout=200)
    assert (tmp_path / "made").exists()


def test_what_has_an_effect_is_not_remarked_upon() -> None:
    done = horovodrun("-np", "1", "--gloo", "--fusion-threshold-mb", "1", "--no-stall-check", "--no-autotune", "true")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--fusion-threshold-mb", "32"], {f"{who}_FUSION_THRESHOLD": "33554432" for who in ("CIRANDA", "HOROVOD")}),
        (["--cache-capacity", "7"], {"CIRANDA_CACHE_CAPACITY": "7"}),
        (["--log-level", "DEBUG"], {"CIRANDA_LOG_LEVEL": "DEBUG"}),
        (["--stall-check-warning-time-seconds", "5"],
         {"CIRANDA_STALL_WARNING_SECONDS": "5", "HOROVOD_STALL_CHECK_TIME_SECONDS": "5"}),
        (["--stall-check-shutdown-time-seconds", "9"],
         {"CIRANDA_STALL_SHUTDOWN_SECONDS": "9", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "9"}),
        (["--no-stall-check"], {"CIRANDA_STALL_WARNING_SECONDS": "0", "HOROVOD_STALL_CHECK_DISABLE": "1"}),
        (["--cycle-time-ms", "2"], {"HOROVOD_CYCLE_TIME": "2.0"}),
        (["--no-hierarchical-allreduce"], {"HOROVOD_HIERARCHICAL_ALLREDUCE": "0"}),
        (["--stall-check-warning-time-seconds", "2.5"], {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2.5"}),
        (["--log-hide-timestamp"], {"HOROVOD_LOG_HIDE_TIME": "1"}),
        (["--no-log-hide-timestamp"], {"HOROVOD_LOG_HIDE_TIME": "0"}),
        (["--no-timeline-mark-cycles"], {f"{who}_TIMELINE_MARK_CYCLES": "0" for who in ("CIRANDA", "HOROVOD")}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_flags_become_settings_under_both_names(arguments: list[str], expected: dict[str, str]) -> None:
    assert expected.items() <= plan_of(*arguments).items()


def test_a_setting_that_the_engine_gets_is_set_without_a_change_here() -> None:
    row = {
        "name": "CIRANDA_TIMELINE",
        "horovod_name": "HOROVOD_TIMELINE",
        "default": "",
        "lowest": None,
        "highest": None,
    }
    rows = {"HOROVOD_TIMELINE": {**row, "meaning": ""}}
    chosen: dict[str, _tunables.Value] = {"timeline_filename": "t.json"}
    env, remarks = _tunables.environment_of(chosen, pytest.fail, rows)  # type: ignore[arg-type]
    assert env == {"HOROVOD_TIMELINE": "t.json", "CIRANDA_TIMELINE": "t.json"}
    assert remarks == []


def test_every_tunable_that_the_engine_lacks_says_why() -> None:
    rows = _tunables.engine_settings()
    for tunable in _tunables.TUNABLES:
        assert f"HOROVOD_{tunable.variable}" in rows or tunable.instead, tunable.flag


@pytest.mark.parametrize(
    ("arguments", "exit_code", "complaint"),
    [
        (["-np", "2", "--fusion-threshold-mb", "-1", "true"], 2, "--fusion-threshold-mb -1: must be from 0 to"),
        (["-np", "2", "--log-level", "LOUD", "true"], 2, "invalid choice: 'LOUD'"),
        (["-np", "2", "--gloo", "--mpi", "true"], 2, "not allowed with"),
        (["-np", "2", "-H", "a:1", "--hostfile", "f", "true"], 2, "not allowed with"),
        (["-np", "3", "-H", "localhost:2", "true"], 2, "-np 3 is more than the 2 slots"),
        (["-np", "2"], 2, "no command to run"),
        (["true"], 1, "say how many processes"),
        (["-np", "2", "--host-discovery-script", "/nonexistent", "true"], 2, "failed with exit code 127"),
        (["-np", "2", "--host-discovery-script", "echo localhost", "true"], 2, "print host:slots, or give --slots"),
        (
            ["-np", "3", "--elastic-timeout", "0", "--host-discovery-script", "echo localhost:2", "true"],
            2,
            "found 2 slots, but 3 are needed",
        ),
        (
            ["--min-np", "3", "--max-np", "2", "--host-discovery-script", "echo localhost:9", "true"],
            2,
            "--max-np 2 is less than --min-np 3",
        ),
        (["-np", "3", "--min-np", "0", "true"], 2, "--min-np 0: the number of processes must be 1 or more"),
        (["-np", "-1", "--min-np", "1", "true"], 2, "-np -1: the number of processes must be 1 or more"),
        (["-np", "3", "--min-np", "2", "-H", "localhost:2", "true"], 2, "-np 3 is more than"),
        (["-np", "2", "--min-np", "2", "--blacklist-cooldown-range", "2", "1", "true"], 2, "the lesser first"),
        (["-np", "2", "--host-discovery-script", "true", "-H", "a:2", "true"], 2, "not both"),
        (["-np", "2", "--start-timeout", "0", "true"], 2, "--start-timeout 0: must be more than 0"),
        (["-np", "2", "--config-file", "/nonexistent.yaml", "true"], 2, "cannot read --config-file /nonexistent.yaml"),
        (["-np", "2", "--no-such-flag", "true"], 2, "--no-such-flag"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(arguments: list[str], exit_code: int, complaint: str) -> None:
    done = horovodrun(*arguments)
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_version_and_help() -> None:
    assert horovodrun("--version").stdout.strip() == horovodrun("-v").stdout.strip() == horovod.__version__
    text = horovodrun("-h").stdout
    old = {"--network-interface", "--log-hide-timestamp", "--no-log-hide-timestamp"}  # other names of others
    flags = {word.partition("=")[0] for word in EVERY_FLAG.split() if word.startswith("-")} - old
    assert [flag for flag in flags if flag not in text] == []


def test_check_build_tells_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRANDA_NCCL", "/nowhere/libnccl.so.2")
    done = horovodrun("--check-build")
    assert (done.returncode, done.stderr) == (0, "")
    has_torch = "X" if subprocess.run([sys.executable, "-c", "import torch"], check=False).returncode == 0 else " "
    for line in (f"[{has_torch}] PyTorch", "[ ] MXNet", "[ ] MPI", "[ ] NCCL", "[X] Ciranda (shared memory, TCP)"):
        assert line in done.stdout
    assert horovodrun("-cb").stdout == done.stdout


def test_the_controller_is_always_ours() -> None:
    assert is_gloo_used()


# -- the configuration file ------------------------------------------------------------------------------------------

CONFIG = """
verbose: true
controller: gloo
params: {fusion_threshold_mb: 8, cycle_time_ms: 2.5, cache_capacity: 0, hierarchical_allreduce: true}
autotune: {enabled: true, warmup_samples: 3}
timeline: {filename: t.json}
stall_check: {enabled: true, warning_time_seconds: 11, shutdown_time_seconds: 22}
library_options: {gloo_timeout_seconds: 5}
logging: {level: INFO, with_timestamp: true}
colours: {red: 1}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return str(path)


def test_the_file_sets_what_it_names(config: str) -> None:
    plan = make_plan(parse_args(["--config-file", config, "true"]))
    assert plan.verbose
    expected = {
        "CIRANDA_FUSION_THRESHOLD": str(8 << 20), "CIRANDA_CACHE_CAPACITY": "0", "HOROVOD_AUTOTUNE": "1",
        "CIRANDA_STALL_WARNING_SECONDS": "11", "CIRANDA_STALL_SHUTDOWN_SECONDS": "22", "CIRANDA_LOG_LEVEL": "INFO",
        "HOROVOD_TIMELINE": "t.json", "HOROVOD_GLOO_TIMEOUT_SECONDS": "5", "HOROVOD_LOG_HIDE_TIME": "0",
    }  # fmt: skip
    assert expected.items() <= plan.env.items()
    assert f"colours.red in {config} (not a setting)" in plan.remarks


@pytest.mark.parametrize("before", [True, False])
def test_flags_count_more_than_the_file(config: str, before: bool) -> None:
    flags, file = ["--fusion-threshold-mb", "3", "--no-stall-check"], ["--config-file", config]
    env = plan_of(*(flags + file if before else file + flags))
    assert env["CIRANDA_FUSION_THRESHOLD"] == str(3 << 20)
    assert env["CIRANDA_STALL_WARNING_SECONDS"] == "0"
    assert env["CIRANDA_STALL_SHUTDOWN_SECONDS"] == "22"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("params: {fusion_threshold_mb: many}", r"params\.fusion_threshold_mb: 'many' is not a whole number"),
        ("params: {cache_capacity: 1.5}", r"params\.cache_capacity: 1\.5 is not a whole number"),
        ("params: {hierarchical_allreduce: 3}", r"hierarchical_allreduce: 3 is not true or false"),
        ("params: {fusion_threshold_mb: -4}", r"--fusion-threshold-mb -4: must be from"),
        ("controller: tcp", "controller: tcp is neither gloo nor mpi"),
        ("- a list", "must consist of sections"),
        ("a: b: c", "cannot read --config-file"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LaunchError, match=complaint) as caught:
        plan_of("--config-file", str(path))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "flags", "chosen"),
    [
        ("controller: gloo", [], "gloo"),
        ("controller: MPI", [], "mpi"),
        ("controller: mpi", ["--gloo"], "gloo"),
        ("controller: gloo", ["--jsrun"], "jsrun"),
    ],
)
def test_the_file_may_name_the_controller(text: str, flags: list[str], chosen: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    args = parse_args(["--config-file", str(path), *flags, "true"])
    assert [name for name in ("gloo", "mpi", "jsrun") if getattr(args, f"use_{name}")] == [chosen]
    assert bool([remark for remark in make_plan(args).remarks if "mpi" in remark]) == (chosen == "mpi")


def test_a_setting_out_of_range_is_refused_when_it_is_parsed() -> None:
    for flags in (["--fusion-threshold-mb", "-1"], ["--cache-capacity", "-2"]):
        with pytest.raises(ValueError, match=f"{' '.join(flags)}: must be from 0 to"):
            parse_args(["-np", "2", *flags, "true"])


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").touch()
    assert plan_of("--config-file", str(tmp_path / "empty.yaml")) == {}


# -- running ---------------------------------------------------------------------------------------------------------

WHO = """
import os
import {module} as hvd
hvd.init()
told = [os.environ["HOROVOD_" + n] for n in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")]
asked = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
assert [int(text) for text in told] == asked
assert (os.environ["HOROVOD_CONTROLLER"], os.environ["HOROVOD_CPU_OPERATIONS"]) == ("gloo", "gloo")
assert os.environ["HOROVOD_HOSTNAME"]
print(*asked)
"""


def test_ranks_are_told_who_they_are_in_horovods_words(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2 # this one\n", encoding="utf-8")
    script = tmp_path / "who.py"
    expected = ["[0]<stdout>:0 2 0 2 0 1", "[1]<stdout>:1 2 1 2 0 1"]
    module = "horovod.torch"
    for where in (["-H", "localhost:2"], ["-hostfile", str(hosts)], ["--hostfile", str(hosts)], []):
        script.write_text(WHO.format(module=module), encoding="utf-8")
        done = horovodrun("-np", "2", *where, sys.executable, str(script))
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == expected
        module = "ciranda"  # which says the same, and is imported in a tenth of the time


@pytest.mark.netns
@pytest.mark.ssh
def test_ranks_on_other_hosts_are_reached_by_the_port_and_key_given(tmp_path: Path) -> None:
    """Nothing but the flags tells ssh the port and the key."""
    pytest.importorskip("torch")
    import netns

    reason = netns.why_not()
    if reason is not None:
        pytest.skip(f"SSH BETWEEN HOSTS IS NOT TESTED: {reason}")
    with netns.hosts("hostA", "hostB") as hosts:
        told = hosts.ssh_config.read_text(encoding="utf-8").splitlines()
        config = tmp_path / "config"
        config.write_text(
            "\n".join(line for line in told if line.split()[:1] not in (["Port"], ["IdentityFile"])) + "\n"
        )
        (tmp_path / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
        (tmp_path / "ssh").chmod(0o755)
        flags = ["-np", "2", "-H", "hostA:1,hostB:1", "-p", str(netns.SSH_PORT), "-i", str(hosts.folder / "user_key")]
        who = WHO.format(module="horovod.torch")
        command = [*hosts[0].enter, sys.executable, "-m", "horovod.runner", *flags, sys.executable, "-c", who]
        env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:0 2 0 1 0 2", "[1]<stdout>:1 2 0 1 1 2"]


def test_the_timeline_is_written(tmp_path: Path) -> None:
    """By the flag and by Horovod's variable; DYNAMIC leaves it to the script."""
    code = "import ciranda; ciranda.init(); ciranda.allreduce(1.0, name='grain'); ciranda.join(); ciranda.shutdown()"
    by_flag, by_variable = tmp_path / "flag.json", tmp_path / "variable.json"
    flags = ["--timeline-filename", str(by_flag), "--timeline-mark-cycles"]
    for arguments, value in ([flags, ""], [[], str(by_variable)], [[], "DYNAMIC"]):
        done = horovodrun("-np", "2", *arguments, sys.executable, "-c", code, env={"HOROVOD_TIMELINE": value})
        assert (done.returncode, done.stderr) == (0, "")
    for path in (by_flag, by_variable):
        events = {event["name"] for event in json.loads(path.read_text(encoding="utf-8"))}
        assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} <= events
        assert ("CYCLE_START" in events) == (path == by_flag)
    assert sorted(tmp_path.iterdir()) == [by_flag, by_variable]


def test_output_goes_to_files_too(tmp_path: Path) -> None:
    done = horovodrun("-np", "2", "--output-filename", str(tmp_path / "logs"), "sh", "-c", "echo $HOROVOD_RANK")
    assert sorted(done.stdout.splitlines()) == ["[0]<stdout>:0", "[1]<stdout>:1"]
    assert [(tmp_path / "logs" / f"rank.{rank}" / "stdout").read_text() for rank in range(2)] == ["0\n", "1\n"]


def test_the_exit_code_is_the_failed_ranks() -> None:
    done = horovodrun("-np", "2", "sh", "-c", "[ $HOROVOD_RANK = 0 ] && sleep 60; echo no >&2; exit 7")
    assert done.returncode == 7
    assert "rank 1 on localhost failed first: exit code 7" in done.stderr
    assert "Horovod detected that one or more processes exited with non-zero status" in done.stderr
    assert "Process name: 1\nExit code: 7\n" in done.stderr


def test_the_start_timeout_comes_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "77")
    assert make_plan(parse_args(["true"])).start_timeout == 77
    assert make_plan(parse_args(["--start-timeout", "5", "true"])).start_timeout == 5
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "soon")
    with pytest.raises(LaunchError, match="HOROVOD_START_TIMEOUT='soon' is not a number"):
        make_plan(parse_args(["true"]))


def test_arguments_have_the_names_that_programs_know() -> None:
    args = parse_args(["-np", "4", "-H", "a:4", "--gloo", "--", "python", "x.py", "-v"])
    assert isinstance(args, argparse.Namespace)
    assert (args.num_proc, args.hosts, args.use_gloo, args.command) == (4, "a:4", True, ["python", "x.py", "-v"])


def test_arguments_that_were_not_given_are_there_too(config: str) -> None:
    """For programs that look at them; also without a command, and where a file sets them."""
    args = parse_args(["-np", "2", "--network-interfaces", "lo,eth0", "--config-file", config, "--cycle-time-ms", "7"])
    assert (args.command, args.nics, args.timeline_filename, args.autotune) == ([], {"lo", "eth0"}, "t.json", True)
    assert (args.fusion_threshold_mb, args.cycle_time_ms, args.thread_affinity) == (8, 7.0, None)
    assert (args.log_with_timestamp, args.run_func, args.executable, args.hosts) == (True, None, None, None)


def test_the_autotuner_writes_what_it_measured(tmp_path: Path) -> None:
    calls = "[ciranda.allreduce_(numpy.ones(1 << 18), name='it') for _ in range(100)]"
    code = f"import ciranda, numpy; ciranda.init(); {calls}"
    log = tmp_path / "log.csv"
    done = horovodrun("-np", "2", "--autotune-log-file", str(log), sys.executable, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    header, *rows = log.read_text(encoding="utf-8").splitlines()
    assert header == "bytes,algorithm,segment_bytes,in_place,expected_us,taken_us,chosen"
    assert {row.split(",")[0] for row in rows} == {str(8 << 18)}
    assert sum(row.endswith(",1") for row in rows) == 1


# -- from Python, by its parts ---------------------------------------------------------------------------------------


def test_what_tools_ask_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from horovod.runner import _HorovodArgs
    from horovod.runner.launch import _run

    asked = _HorovodArgs()
    asked.num_proc, asked.hosts, asked.use_gloo = 2, "localhost:2", True
    asked.run_func = lambda: os.environ["HOROVOD_RANK"]
    assert _run(asked) == ["0", "1"]
    asked.run_func, asked.command = None, ["sh", "-c", "echo $HOROVOD_RANK > $FOLDER/$HOROVOD_RANK; exit $CODE"]
    os.environ.update(FOLDER=str(tmp_path), CODE="0")
    try:
        assert _run(asked) is None
        os.environ["CODE"] = "3"
        with pytest.raises(RuntimeError, match=r"Horovod detected that one or more.*\nProcess name: \d\nExit code: 3"):
            _run(asked)
    finally:
        del os.environ["FOLDER"], os.environ["CODE"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


@pytest.mark.parametrize("by", ["gloo_run", "mpi_run", "js_run"])
def test_a_command_on_every_rank_from_python(by: str, tmp_path: Path) -> None:
    from horovod.runner import gloo_run, js_run, mpi_run
    from horovod.runner.common.util.settings import Settings

    settings = Settings(num_proc=2, hosts="localhost:2", output_filename=str(tmp_path), verbose=0)
    env = {**os.environ, "GIVEN": "x y"}
    command = ["sh", "-c", "echo $GIVEN $HOROVOD_RANK; exit $((HOROVOD_RANK * $1))", "sh"]
    run = {
        "gloo_run": lambda *words: gloo_run.gloo_run(settings, {"lo"}, env, "127.0.0.1", [*command, *words]),
        "mpi_run": lambda *words: mpi_run.mpi_run(settings, None, env, [*command, *words]),
        "js_run": lambda *words: js_run.js_run(settings, None, env, [*command, *words]),
    }[by]
    run("0")
    assert [(tmp_path / f"rank.{rank}" / "stdout").read_text() for rank in range(2)] == ["x y 0\n", "x y 1\n"]
    with pytest.raises(RuntimeError, match=r"Process name: 1\nExit code: 5"):
        run("5")


# -- horovod.run -----------------------------------------------------------------------------------------------------


def test_run_returns_results_by_rank(capfd: pytest.CaptureFixture[str]) -> None:
    def work(base: int, *, factor: int) -> int:
        import ciranda

        ciranda.init()
        return base + factor * ciranda.rank() + 100 * ciranda.size()

    assert horovod.run(work, (1,), {"factor": 10}, np=2) == [201, 211]
    assert horovod.run(work, args=(1,), kwargs={"factor": 10}, num_proc=2, hosts="localhost:2") == [201, 211]
    assert capfd.readouterr().err == ""
    assert horovod.run(work, (0,), {"factor": 1}, use_mpi=True, disable_cache=True) == [100]
    assert capfd.readouterr().err.count("\n") == 1


def test_run_raises_what_scripts_catch() -> None:
    def fail() -> None:
        raise KeyError("missing thing")

    said = r"(?s)Horovod detected that one or more processes exited.*Process name: \d\nExit code: 1\n.*"
    with pytest.raises(RuntimeError, match=said + r"rank \d on localhost failed first.*KeyError: 'missing thing'"):
        horovod.run(fail, np=2)
    with pytest.raises(ValueError, match="np is the older name"):
        horovod.run(fail, num_proc=2, np=3)


def test_hosts_that_a_script_finds(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["--host-discovery-script", "echo localhost", "--slots", "3", "--min-np", "1", "--elastic-timeout", "0"]
    for more, size in ((["--max-np", "2"], 2), (["-np", "4"], 3), ([], 3)):
        done = horovodrun(*flags, *more, "sh", "-c", "echo of $HOROVOD_SIZE")
        assert (done.returncode, done.stdout.count(f"of {size}")) == (0, size), done.stdout + done.stderr
        assert done.stderr == ""
    assert horovod.run(len, ("ab",), num_proc=2, host_discovery_script="echo localhost:2") == [2, 2]
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("HOROVOD_ELASTIC_TIMEOUT", "0")
    with pytest.raises(ValueError, match="found 1 slot, but 2 are needed"):
        horovod.run(len, ("ab",), np=2, host_discovery_script="echo localhost", slots=1)


def test_the_results_of_a_function_are_those_of_the_ranks_at_the_end(tmp_path: Path) -> None:
    def train(folder: str) -> tuple[int, int]:
        import os
        import signal

        import numpy as np

        import ciranda as hvd
        from ciranda._frameworks.objects import broadcast_object
        from ciranda.elastic import ObjectState, run_fn

        hvd.init()

        def steps(state: ObjectState) -> tuple[int, int]:
            while state.step < 3:
                if state.step == 1 and hvd.rank() == 0 and not os.path.exists(f"{folder}/killed"):
                    open(f"{folder}/killed", "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)
                hvd.allreduce(np.ones(1), name="gradient")
                state.step += 1
                state.commit()
            return hvd.rank(), hvd.size()

        return run_fn(steps, lambda: None)(ObjectState(broadcast_object, hvd.rank, step=0))

    found = horovod.run(train, (str(tmp_path),), num_proc=3, min_num_proc=2)
    assert found == [(0, 2), (1, 2)]


def test_a_function_that_fails_on_all_ranks_of_an_elastic_job() -> None:
    def fail() -> None:
        raise KeyError("missing thing")

    with pytest.raises(RuntimeError, match="KeyError: 'missing thing'"):
        horovod.run(fail, num_proc=2, min_num_proc=1)


# -- test suites -----------------------------------------------------------------------------------------------------


def test_a_test_suite_runs_with_a_world_for_every_test() -> None:
    """As people test with Horovod: pytest in every rank, hundreds of worlds in one process."""
    pytest.importorskip("torch")
    suite = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TWO_HUNDRED)]
    done = horovodrun("-np", "2", "-H", "localhost:2", "--gloo", *suite)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum("200 passed" in line for line in done.stdout.splitlines()) == 2
