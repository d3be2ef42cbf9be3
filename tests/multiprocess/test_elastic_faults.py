"""`ciranda run --elastic`: ranks are killed at every place, and the others go on with the same processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import elastic_jobs
import netns
import psutil
import pytest

pytestmark = pytest.mark.multiprocess

RANK = Path(__file__).with_name("elastic_rank.py")
OTHER_MODEL_RANK = Path(__file__).with_name("elastic_other_model_rank.py")
SETS_RANK = Path(__file__).with_name("elastic_sets_rank.py")
DDP_RANK = Path(__file__).with_name("elastic_ddp_rank.py")
HOROVOD_RANK = Path(__file__).with_name("elastic_horovod_rank.py")
STEPS = 10
GUARD_SECONDS = 240.0


@dataclass
class Account:
    """What the ranks of one job have written."""

    exit_code: int
    err: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def pids(self, what: str) -> list[int]:
        return sorted({row["pid"] for row in self.rows if row["what"] == what})

    def of(self, what: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["what"] == what]


def launch(
    arguments: Sequence[str], n_ranks: int, through: Sequence[str] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    command = [
        *through,
        sys.executable,
        "-m",
        "ciranda.launch.cli",
        "run",
        "--elastic",
        "-np",
        str(n_ranks),
        *arguments,
    ]
    process = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    sys.stderr.write(process.stderr)
    return process


def run(
    folder: Path,
    *faults: str,
    n_ranks: int = 3,
    options: tuple[str, ...] = (),
    through: Sequence[str] = (),
    **env: str,
) -> Account:
    arguments = [*options, sys.executable, str(RANK), str(folder), str(STEPS), *faults]
    process = launch(arguments, n_ranks, through, FULL_SIZE=str(n_ranks), **env)
    account = Account(process.returncode, process.stderr)
    for path in folder.iterdir():
        if path.name.isdigit():
            account.rows += [json.loads(line) for line in path.read_text().splitlines()]
    return account


def expected_total(steps: int) -> float:
    total = 0.0
    for step in range(steps):
        total = 0.75 * total + step + 1
    return total


def check(account: Account, n_ranks: int, n_killed: int, n_ended: int = 0) -> None:
    """The job has ended well, with all ranks; who was not lost has stayed; each committed step counts once."""
    n_lost = n_killed + n_ended
    assert account.exit_code == 0
    assert len(re.findall("has failed: killed by SIGKILL|is killed: it has not left", account.err)) == n_killed
    ended = account.of("end")
    assert sorted(row["rank"] for row in ended) == list(range(n_ranks))
    assert {(row["step"], row["total"]) for row in ended} == {(STEPS, expected_total(STEPS))}
    for row in account.rows:
        if row["what"] in ("train", "step", "commit"):
            assert row["total"] == expected_total(row["step"]), f"a step is lost, or was made twice: {row}"
    assert len(account.pids("start")) <= n_ranks + n_lost
    assert len(set(account.pids("start")) - set(account.pids("end"))) <= n_lost, "a survivor was started anew"


PLACES = ["idle:3", "allreduce:3", "commit:4", "sync", "forming", "forming_again"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("slot", [0, 2])
def test_one_is_killed(tmp_path: Path, slot: int, place: str) -> None:
    faults = [f"{slot}:{place}"] if place != "forming_again" else ["1:idle:3", f"{slot}:{place}"]
    account = run(tmp_path, *faults, options=("--min-np", "1"))
    check(account, 3, len(faults))


def test_two_are_killed_before_init(tmp_path: Path) -> None:
    check(run(tmp_path, "0:before_init", "1:before_init"), 3, 2)


def test_all_adapt_to_the_first_world_if_one_was_told_other_numbers(tmp_path: Path) -> None:
    account = run(tmp_path, TOLD_OTHERWISE="1")
    check(account, 3, 0)
    assert sorted(row["rank"] for row in account.of("adapt")) == [0, 1, 2]


@pytest.mark.parametrize(("size", "where"), [(1, ""), (1 << 20, ""), (1 << 20, "IN_PLACE")])
def test_one_is_killed_in_a_transfer(tmp_path: Path, size: int, where: str) -> None:
    """In place: in memory that the ranks share, which the survivors keep."""
    env = {"SIZE": str(size)} | ({where: "1"} if where else {})
    check(run(tmp_path, "1:allreduce:2", options=("--min-np", "2"), **env), 3, 1)


def test_all_that_is_pending_fails_by_one_error_with_the_lost_ranks(tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    account = run(tmp_path, "1:idle:3", options=("--min-np", "2"), PENDING="1", CIRANDA_TIMELINE=str(timeline))
    check(account, 3, 1)
    lost = account.of("lost")
    assert len(lost) == 4
    for row in lost:
        assert (row["ranks"], row["epoch"]) == ([1], 0)
        assert "rank 1 (host localhost, pid" in row["text"]
    for path in (timeline, tmp_path / "timeline.world-1.json"):
        assert json.loads(path.read_text()), "each world has its timeline"


def test_two_are_killed_at_once(tmp_path: Path) -> None:
    check(run(tmp_path, "0:idle:3", "2:idle:3", n_ranks=4, options=("--min-np", "2")), 4, 2)


def test_all_but_one_are_killed(tmp_path: Path) -> None:
    check(run(tmp_path, "0:commit:3", "1:idle:2", options=("--min-np", "1")), 3, 2)


def test_the_root_is_killed_while_it_sends_its_state(tmp_path: Path) -> None:
    """Rank 0 has the newest commit when slot 1's next process joins."""
    check(run(tmp_path, "1:idle:2", "0:later_sync", options=("--min-np", "1")), 3, 2)


def test_too_few_wait_for_the_next_process(tmp_path: Path) -> None:
    account = run(tmp_path, "1:idle:3", options=("--min-np", "3"))
    check(account, 3, 1)
    assert {row["size"] for row in account.of("commit")} == {3}


def test_too_few_that_have_waited_for_long_enough_save_their_states(tmp_path: Path) -> None:
    # The first world is awaited no longer either: on a busy machine the ranks may start seconds apart.
    options = ("--min-np", "3", "--elastic-timeout", "5", "--cooldown", "600", "600")
    account = run(tmp_path, "1:idle:3", options=options)
    assert account.exit_code == 1
    assert {(row["step"], row["total"]) for row in account.of("too_few")} == {(3, expected_total(3))}
    assert len(account.pids("too_few")) == 2
    assert sorted((row["rank"], row["size"]) for row in account.of("too_few")) == [(0, 2), (1, 2)]
    why = "2 ranks are left, of at least 3, and no other came within 5 s"
    assert f"AbortedError: training is given up: {why}" in account.err
    assert account.err.rstrip().endswith(f"ciranda: the job ends: {why}")


def test_one_is_killed_when_the_others_have_returned(tmp_path: Path) -> None:
    account = run(tmp_path, "0:save", options=("--min-np", "2"))
    assert account.exit_code == 0
    assert "has failed: killed by SIGKILL" in account.err
    assert {(row["step"], row["total"]) for row in account.of("end")} == {(STEPS, expected_total(STEPS))}


def test_who_has_returned_waits_for_who_is_saving(tmp_path: Path) -> None:
    (tmp_path / "fault-0:save").touch()  # it saves, and is not killed
    account = run(tmp_path, "0:save")
    check(account, 3, 0)
    (saved,) = account.of("saved")
    assert all(row["at"] >= saved["at"] for row in account.of("end"))


def test_who_makes_a_step_more_than_those_that_have_returned_is_told(tmp_path: Path) -> None:
    account = run(tmp_path, "1:further", options=("--min-np", "1"))
    assert account.exit_code == 1
    error = account.err[account.err.rindex("MismatchError: ") :]
    assert "'a step more'" in error
    assert "'ciranda.elastic.returned'" in error


def test_a_stopped_rank_is_killed_and_replaced(tmp_path: Path) -> None:
    account = run(tmp_path, "1:stop:3", options=("--min-np", "2", "--stall-shutdown-seconds", "2"))
    check(account, 3, 1)
    assert "[1] on localhost is killed: it has not left the world" in account.err


def test_a_rank_that_stays_stopped_is_killed_by_its_agent(tmp_path: Path) -> None:
    """Long before the ranks that wait for it give up; behind a shell, the agent looks at the rank itself."""
    options = ("--min-np", "2", "--stopped-seconds", "1", "--output-dir", str(tmp_path / "out"))
    account = run(tmp_path, "1:stop:3", options=(*options, "sh", "-c", '"$@"; exit $?', "sh"))
    why = "killed by SIGKILL (signal 9), since it was stopped for 1 s (CIRANDA_STOPPED_SECONDS)"
    check(account, 3, 1)
    assert f"[1] on localhost has failed: {why}" in account.err
    assert f"; [1] was lost: {why}" in account.err
    log = [json.loads(line) for line in (tmp_path / "out" / "job.jsonl").read_text().splitlines()]
    assert [row["how"] for row in log if row["kind"] == "exit" and row["code"] != 0] == [why]


def test_a_rank_that_is_stopped_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    account = run(tmp_path, "1:pause:3", options=("--min-np", "2"))
    check(account, 3, 0)
    assert (tmp_path / "fault-1:pause:3").exists()
    assert "world 1" not in account.err


def test_nobody_waits_for_the_imports_of_the_next_process(tmp_path: Path) -> None:
    """It is not ready before the others have come further."""
    check(run(tmp_path, "1:idle:2", options=("--min-np", "2"), LATE="1"), 3, 1)


def test_an_exception_on_one_is_shown_and_the_others_go_on(tmp_path: Path) -> None:
    account = run(tmp_path, "1:raise:3", options=("--min-np", "2"))
    check(account, 3, 0, n_ended=1)
    assert "ValueError: slot 1 cannot go on" in account.err
    assert "[1] on localhost has failed: exit code 1" in account.err


def test_who_leaves_while_a_world_is_formed_is_missed_at_once(tmp_path: Path) -> None:
    """With exit code 0, and without having met anybody there."""
    account = run(tmp_path, "1:idle:3", "0:leave_forming", options=("--min-np", "1"), CIRANDA_START_TIMEOUT="3600")
    check(account, 3, 1, n_ended=1)
    assert "[0] was lost: exit code 0" in account.err


def test_leaving_early_is_a_failure(tmp_path: Path) -> None:
    account = run(tmp_path, "1:leave:3", options=("--min-np", "2"))
    assert account.exit_code == 0
    assert "[1] was lost: exit code 0" in account.err
    assert sorted(row["rank"] for row in account.of("end")) == [0, 1, 2]


def test_who_fails_again_and_again_ends_the_job_with_its_traceback(tmp_path: Path) -> None:
    account = run(tmp_path, "1:raise_always", options=("--min-np", "3"))
    assert account.exit_code == 1
    assert "it has failed 3 times without a commit in between" in account.err
    assert "rank 1 on localhost failed first: exit code 1" in account.err
    assert account.err.rstrip().endswith("cannot go on")


def test_an_exception_on_all_ends_the_job_with_its_traceback(tmp_path: Path) -> None:
    account = run(tmp_path, *(f"{slot}:raise_always" for slot in range(3)), options=("--min-np", "1"))
    assert account.exit_code == 1
    assert "cannot go on" in account.err.rstrip().splitlines()[-1]


def test_process_sets_keep_their_living_members(tmp_path: Path) -> None:
    """Of the sets {0, 1}, {1, 2}, {2} and {1}, when rank 1 is lost: the last is dissolved, two have become the same."""
    process = launch(["--min-np", "2", sys.executable, str(SETS_RANK), str(tmp_path / "mark")], 3)
    assert process.returncode == 0, process.stderr
    lines = sorted({line.partition(":")[2] for line in process.stdout.splitlines()})
    assert [line.removeprefix("size 3 ") for line in lines if "[1, 2, 3, 4]" in line] == [
        "rank 0: [1, 2, 3, 4] [3.0, None, None, None]",
        "rank 1: [1, 2, 3, 4] [3.0, 5.0, None, 2.0]",
        "rank 2: [1, 2, 3, 4] [None, 5.0, 3.0, None]",
    ]
    # The first rank after the loss is one that has committed before it, and either may have.
    of_first, of_last = "[{}, None, None, None]", "[None, {0}, {0}, None]"
    after = [line for line in lines if "[1, 2, 2, None]" in line]
    assert after in [
        [
            f"size 2 rank 0: [1, 2, 2, None] {one.format(1.0)}",
            f"size 2 rank 1: [1, 2, 2, None] {other.format(2.0)}",
            f"size 3 rank 0: [1, 2, 2, None] {one.format(1.0)}",
            f"size 3 rank 1: [1, 2, 2, None] {other.format(2.0)}",
            "size 3 rank 2: [1, 2, 2, None] [None, None, None, None]",
        ]
        for one, other in [(of_first, of_last), (of_last, of_first)]
    ]


def test_digits_through_two_kills_and_a_join(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    elastic_jobs.check(Path(__file__).with_name("elastic_digits_rank.py"), tmp_path)


def test_a_script_for_horovod_goes_on_without_rank_0_and_then_without_another(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("horovod")
    process = launch(["--min-np", "2", "--no-prefix", sys.executable, str(HOROVOD_RANK), str(tmp_path)], 3)
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("has failed: killed by SIGKILL") == 2
    lines = process.stdout.splitlines()
    assert len(lines) == 3
    (line,) = set(lines)
    assert line.startswith(f"3 6 {6 * 48} "), "each sample of each epoch was used once"


def test_ddp_goes_on_without_rank_1_and_then_without_rank_0(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    process = launch(["--min-np", "1", "--no-prefix", sys.executable, str(DDP_RANK), str(tmp_path)], 2)
    assert process.returncode == 0, process.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["killed-0", "killed-1"]
    (line,) = set(process.stdout.splitlines())
    assert line.endswith(" like one process"), line


def test_a_newcomer_with_another_model_is_refused(tmp_path: Path) -> None:
    """With parameters of another shape, another type, another name."""
    pytest.importorskip("torch")
    process = launch(["--min-np", "2", sys.executable, str(OTHER_MODEL_RANK), str(tmp_path)], 3)
    assert process.returncode == 0, process.stderr
    assert "MismatchError: Ranks disagree about 'broadcast_parameters.weight'" in process.stderr
    assert process.stderr.count("[1] on localhost has failed: exit code 1") >= 3
    assert "[0] on localhost has failed" not in process.stderr


@pytest.mark.netns
@pytest.mark.ssh
@pytest.mark.parametrize("faults", [["0:idle:3"], ["2:idle:3"], ["1:allreduce:2", "2:commit:3"]], ids=str)
def test_between_hosts(hosts: netns.Hosts, tmp_path: Path, faults: list[str]) -> None:
    """Of the first host's two ranks, rank 0; the only rank of the second host; one of each."""
    options = ("--min-np", "1", "-F", str(hosts.ssh_config), "-H", "hostA:2,hostB:1")
    check(run(tmp_path, *faults, options=options, through=hosts[0].enter), 3, len(faults))


@pytest.mark.netns
@pytest.mark.ssh
@pytest.mark.parametrize("slot", [0, 2])
def test_a_lost_agent_takes_its_host_away(hosts: netns.Hosts, tmp_path: Path, slot: int) -> None:
    """hostA is the launcher's own machine, with two ranks; hostB is reached over ssh, and has one."""
    options = ("--min-np", "1", "-F", str(hosts.ssh_config), "-H", "hostA:2,hostB:1")
    account = run(tmp_path, f"{slot}:agent:7", options=options, through=hosts[0].enter)
    assert account.exit_code == 0
    assert f"{'hostA' if slot == 0 else 'hostB'} is used no more: its agent" in account.err
    ended = account.of("end")
    assert sorted(row["rank"] for row in ended) == list(range(1 if slot == 0 else 2))
    assert {(row["step"], row["total"]) for row in ended} == {(STEPS, expected_total(STEPS))}


@pytest.mark.parametrize(
    ("what", "exit_codes", "why"),
    [
        ("agent", {1}, "the job ends: no host is left"),
        ("agent_and_guardian", {1}, "the job ends: no host is left"),
        # The agent ends the ranks, and kills those that take long.
        (
            "guardian",
            {128 + signal.SIGTERM, 128 + signal.SIGKILL},
            "the job ends: no rank is left that has the state",
        ),
    ],
)
def test_the_only_lost_agent_ends_the_job(tmp_path: Path, what: str, exit_codes: set[int], why: str) -> None:
    account = run(tmp_path, f"0:{what}:3", options=("--min-np", "1"))
    assert account.exit_code in exit_codes
    assert f"ciranda: {why}" in account.err
    ranks = [psutil.Process(pid) for pid in account.pids("start") if psutil.pid_exists(pid)]
    _, alive = psutil.wait_procs([each for each in ranks if each.status() != psutil.STATUS_ZOMBIE], timeout=20)
    assert alive == [], "a rank has outlived its agent"


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory, of whichever version this machine has."""
    groups = Path("/sys/fs/cgroup")
    is_first_version = (groups / "memory").is_dir()
    group = groups / ("memory" if is_first_version else "") / f"ciranda-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if is_first_version else "memory.max")).write_text(str(64 << 20))
        yield group
    finally:
        group.rmdir()


@pytest.mark.netns  # needs root, as that does
def test_a_rank_that_the_kernel_kills_for_want_of_memory_is_told_apart(tmp_path: Path, small_group: Path) -> None:
    account = run(tmp_path, "1:memory:3", options=("--min-np", "2"), MEMORY_GROUP=str(small_group))
    check(account, 3, 1)
    assert (
        "[1] was lost: killed by SIGKILL (signal 9); the kernel has killed a process of this host for want of memory"
        in account.err
    )


def test_ports_that_are_used_up_end_the_job(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        port = once.getsockname()[1]
    account = run(tmp_path, options=("--port-range", str(port)))
    assert account.exit_code == 1
    assert account.err.rstrip().endswith(
        f"all ports of the range {port}-{port} are in use on 127.0.0.1: give a wider range, or none for any port"
    )


IN_FULL_MEMORY = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"', "sh"]


@pytest.mark.netns
def test_ranks_go_on_without_room_in_shared_memory(tmp_path: Path) -> None:
    check(run(tmp_path, "1:idle:3", options=("--min-np", "2"), through=IN_FULL_MEMORY), 3, 1)
