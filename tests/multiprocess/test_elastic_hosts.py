"""`--host-discovery-script`: hosts come and go while an elastic job runs. Names of this machine need no ssh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import netns
import psutil
import pytest
from test_counters import free_port

pytestmark = pytest.mark.multiprocess

RANK = Path(__file__).with_name("elastic_hosts_rank.py")
SAMPLES_RANK = Path(__file__).with_name("elastic_samples_rank.py")
GUARD_SECONDS = 240.0
NOT_HERE = "a@127.0.0.1"  # no name of this machine, whose ssh server does not know it, if there is one
RUN = ("run", "--elastic", "--no-prefix")
CIRANDA = ("-m", "ciranda.launch.cli", *RUN)
HOROVODRUN = ("-m", "horovod.runner")
#: With a second for an answer of the discovery script, in place of 30.
IMPATIENT = ("-c", "from ciranda.launch import cli, discovery; discovery.ANSWER_SECONDS = 1.0; cli.main()", *RUN)


def script(folder: Path, hosts: str) -> str:
    """What prints FOLDER/hosts, and leaves a mark of each question."""
    (folder / "hosts").write_text(hosts.replace(",", "\n") + "\n")
    return f"printf . >> {folder}/asked; cat {folder}/hosts"


def script_by_turns(folder: Path, *answers: str) -> str:
    """What prints the first answer until FOLDER/begun exists, then one after the other, then the last for ever.

    An answer is hosts, or "!" and a command that is run in place of an answer.
    """
    for number, answer in enumerate(answers):
        is_command = answer.startswith("!")
        lines = answer[1:] if is_command else "\n".join(["cat <<END", *answer.split(","), "END"])
        (folder / f"answer-{number}").write_text(lines + "\n")
    turns = folder / "turns"
    turns.touch()
    last = len(answers) - 1
    return (
        f"n=$(wc -c < {turns}); if [ -f {folder}/begun ] && [ $n -lt {last} ]; then printf . >> {turns}; fi; "
        f". {folder}/answer-$(wc -c < {turns})"
    )


def run(
    folder: Path,
    hosts: str,
    *plan: str,
    later: Sequence[str] = (),
    options: Sequence[str] = (),
    command: Sequence[str] = CIRANDA,
    through: Sequence[str] = (),
    rank: Path = RANK,
) -> subprocess.CompletedProcess[str]:
    discovery = ["--host-discovery-script", script_by_turns(folder, hosts, *later) if later else script(folder, hosts)]
    words = [*through, sys.executable, *command, *discovery, *options, sys.executable, str(rank), str(folder)]
    done = subprocess.run(
        [*words, *plan],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    sys.stderr.write(done.stderr)
    return done


def ends(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What ranks have printed at their ends: size, steps, host."""
    assert done.returncode == 0, done.stderr
    return sorted(line.rpartition("<stdout>:")[2] for line in done.stdout.splitlines())


def test_new_slots_and_hosts_join_and_leave_again(tmp_path: Path) -> None:
    """Of a host that is printed twice, the last line counts."""
    plan = ["1=localhost:1,127.0.0.2:2,localhost:2>3", "3=localhost:1>1"]
    done = run(tmp_path, "localhost:1", *plan, options=("--max-np", "3"))
    assert ends(done) == ["1 5 localhost"]
    assert "has failed" not in done.stderr
    assert done.stderr.count("leaves: its slot is not offered any more") == 2
    assert "world 0: 1 rank\n" in done.stderr


def test_all_hosts_are_replaced_by_others(tmp_path: Path) -> None:
    """The last process with the state stays until another has it."""
    done = run(tmp_path, "localhost:2", "2=127.0.0.2:2>1", "3=127.0.0.2:2>2", options=("--min-np", "1"))
    assert ends(done) == ["2 5 127.0.0.2"] * 2 or ends(done) == ["2 5 127.0.0.2", "2 5 localhost"]
    assert "has failed" not in done.stderr


def test_a_change_that_ends_where_it_began_interrupts_nobody(tmp_path: Path) -> None:
    done = run(tmp_path, "localhost:1,127.0.0.2:1", "2=localhost:1", "2=localhost:1,127.0.0.2:1")
    assert ends(done) == ["2 5 127.0.0.2", "2 5 localhost"]
    assert "ciranda: hosts: localhost:1\n" in done.stderr
    assert "world 1" not in done.stderr


def test_a_host_leaves_below_the_least_and_another_comes(tmp_path: Path) -> None:
    """Horovod's ranks wait for each other then: some to synchronize, others not."""
    later = ["localhost:1"] * 3 + ["localhost:1,127.0.0.3:1"]
    options = ("--min-np", "2")
    done = run(tmp_path, "localhost:1,127.0.0.2:1", "2=await 127.0.0.3", later=later, options=options)
    assert ends(done) == ["2 5 127.0.0.3", "2 5 localhost"]
    assert "has failed" not in done.stderr
    assert done.stderr.count("leaves: its slot is not offered any more") == 1


def test_a_host_that_comes_and_goes_at_each_question_stops_nobody(tmp_path: Path) -> None:
    later = ["localhost:1", "localhost:1,127.0.0.2:1"] * 3 + ["localhost:1,127.0.0.2:1,127.0.0.3:1"]
    options = ("--min-np", "1", "--max-np", "3")
    done = run(tmp_path, "localhost:1,127.0.0.2:1", "2=await 127.0.0.3>3", later=later, options=options)
    assert ends(done) == ["3 5 127.0.0.2", "3 5 127.0.0.3", "3 5 localhost"]
    assert "has failed" not in done.stderr


def test_who_has_no_answer_keeps_the_last_one_and_warns_once(tmp_path: Path) -> None:
    done = run(
        tmp_path, "localhost:2", "1=-", "2=no host,-,!", "3=localhost:2,localhost:3>3", options=("--max-np", "3")
    )
    assert ends(done) == ["3 5 localhost"] * 3
    (warning,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert "the discovery script" in warning
    assert "the hosts of its last answer are kept" in warning


def test_scripts_that_hang_or_die_change_nothing_and_answers_in_pieces_count(tmp_path: Path) -> None:
    """They hang with an answer on its way, or with their output closed; or are killed within a line."""
    later = [
        f"!echo $$ >> {tmp_path}/hanging; echo localhost:1; exec sleep 1000",
        f"!echo $$ >> {tmp_path}/hanging; exec sleep 1000 >&- 2>&-",
        "!echo localhost:1; printf 127.0.0.2:1; kill -9 $$",  # in place of 127.0.0.2:16
        "!printf 127.0.; sleep 0.2; printf '0.3:1\\nlocal'; sleep 0.2; printf host:2",
    ]
    options = ("--max-np", "3")
    done = run(tmp_path, "localhost:2", "2=await 127.0.0.3", later=later, options=options, command=IMPATIENT)
    assert ends(done) == ["3 5 127.0.0.3"] + ["3 5 localhost"] * 2
    assert "has failed" not in done.stderr
    assert "leaves" not in done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert "has not ended within 1 s; the hosts of its last answer are kept" in warning
    hanging = [int(pid) for pid in (tmp_path / "hanging").read_text().split()]
    assert len(hanging) == 2
    assert not any(map(psutil.pid_exists, hanging))


def test_a_lost_rank_is_replaced_on_another_host_if_its_own_is_left_alone(tmp_path: Path) -> None:
    options = ("-np", "2", "--cooldown", "600", "600", "--min-np", "1")
    done = run(tmp_path, "localhost:1,127.0.0.2:1,127.0.0.3:1", "2=kill>2", options=options)
    assert ends(done) == ["2 5 127.0.0.3", "2 5 localhost"]


def test_each_sample_is_used_once_though_ranks_leave_and_join_and_die_within_epochs(tmp_path: Path) -> None:
    done = run(tmp_path, "localhost:2,127.0.0.2:2", options=("--min-np", "2", "--max-np", "4"), rank=SAMPLES_RANK)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("leaves: its slot is not offered any more") == 2
    assert done.stderr.count("has failed: killed by SIGKILL") == 1
    (line,) = set(done.stdout.splitlines())
    assert json.loads(line) == [[epoch, sample] for epoch in range(3) for sample in range(48)]


def test_a_host_whose_agent_was_killed_comes_back_as_a_new_one(tmp_path: Path) -> None:
    done = run(tmp_path, "localhost:1,127.0.0.2:1", "2=kill agent>2", options=("--min-np", "1"))
    assert ends(done) == ["2 5 127.0.0.2", "2 5 localhost"]
    assert "127.0.0.2 is lost: its agent" in done.stderr


def test_a_host_that_cannot_be_reached_at_the_start_is_not_waited_for(tmp_path: Path) -> None:
    """It is the first, which would be rank 0's."""
    done = run(tmp_path, f"{NOT_HERE}:1,localhost:2", options=("--min-np", "1"))
    assert ends(done) == ["2 5 localhost"] * 2
    assert f"{NOT_HERE} is lost: cannot start ranks on {NOT_HERE}" in done.stderr
    assert "world 0: 2 ranks\n" in done.stderr
    assert "world 1" not in done.stderr


def test_a_host_that_is_silent_at_the_start_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "ssh_config").write_text("ProxyCommand sleep 1000\n")
    options = ("--min-np", "1", "--start-timeout", "5", "-F", f"{tmp_path}/ssh_config")
    done = run(tmp_path, f"localhost:1,{NOT_HERE}:1", options=options)
    assert ends(done) == ["1 5 localhost"]
    assert f"{NOT_HERE} is lost: it has not answered within 5 s" in done.stderr


def test_a_host_that_cannot_start_ranks_is_lost_if_it_comes_later(tmp_path: Path) -> None:
    """Two agents of this machine cannot listen at one port."""
    plan = ["1=localhost:1,127.0.0.2:1", "3=localhost:2,127.0.0.2:1>2"]
    done = run(tmp_path, "localhost:1", *plan, options=("--max-np", "2", "--metrics", f"127.0.0.1:{free_port()}"))
    assert ends(done) == ["2 5 localhost"] * 2
    assert "127.0.0.2 is lost: metrics" in done.stderr


@pytest.mark.parametrize(("others", "why"), [("localhost:1", "1 of 2 ranks were ready"), ("b@127.0.0.1:1", "no rank")])
def test_too_few_wait_for_hosts_that_cannot_be_reached_at_the_start(tmp_path: Path, others: str, why: str) -> None:
    done = run(tmp_path, f"{NOT_HERE}:1,{others}", options=("--min-np", "2", "--elastic-timeout", "2"))
    assert done.returncode == 1
    assert f"{NOT_HERE} is lost: cannot start ranks on {NOT_HERE}" in done.stderr
    assert f"ciranda: the job ends: {why}" in done.stderr.splitlines()[-1]


def test_a_new_rank_whose_output_cannot_be_kept_ends_the_job_in_order(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rank.1").touch()  # where its folder would be
    done = run(tmp_path, "localhost:1", "1=localhost:2>2", options=("--max-np", "2", "--output-dir", f"{tmp_path}/out"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ciranda: --output-dir {tmp_path}/out: File exists ({tmp_path}/out/rank.1)"
    log = [json.loads(line) for line in (tmp_path / "out" / "job.jsonl").read_text().splitlines()]
    assert [row["asked"] for row in log if row["kind"] == "exit"] == [True]
    assert log[-1]["kind"] == "end"


def test_horovodrun_uses_a_host_of_which_a_rank_has_failed_no_more(tmp_path: Path) -> None:
    options = ("-np", "2", "--min-np", "1")
    done = run(tmp_path, "localhost:1,127.0.0.2:1", "2=kill>1", "3=localhost:2>2", options=options, command=HOROVODRUN)
    assert ends(done) == ["2 5 localhost"] * 2
    assert "no effect" not in done.stderr


def test_horovodrun_uses_it_again_after_a_cooldown(tmp_path: Path) -> None:
    options = ("-np", "2", "--blacklist-cooldown-range", "1", "2")
    done = run(tmp_path, "localhost:1,127.0.0.2:1", "2=kill>2", options=options, command=HOROVODRUN)
    assert ends(done) == ["2 5 127.0.0.2", "2 5 localhost"]


@pytest.mark.netns
@pytest.mark.ssh
def test_a_host_comes_over_ssh_and_goes_again(hosts: netns.Hosts, tmp_path: Path) -> None:
    """The first world, on the launcher's machine alone, has its store on the loopback interface."""
    plan = ["1=hostA:1,hostB:2>3", "3=hostA:1>1"]
    options = ("-F", str(hosts.ssh_config), "--max-np", "3")
    assert ends(run(tmp_path, "hostA:1", *plan, options=options, through=hosts[0].enter)) == ["1 5 hostA"]


@pytest.mark.netns
@pytest.mark.ssh
def test_hosts_that_cannot_be_reached_at_the_start_are_tried_again(hosts: netns.Hosts, tmp_path: Path) -> None:
    """None can until the script has been asked again."""
    config = tmp_path / "ssh_config"
    config.write_text(f'Match exec "test ! -e {tmp_path}/again"\n  Port 1\nMatch all\n  Include {hosts.ssh_config}\n')
    (tmp_path / "begun").touch()
    later = ["hostB:2", f"!touch {tmp_path}/again; echo hostB:2"]
    done = run(tmp_path, "hostB:2", later=later, options=("-F", str(config)), through=hosts[0].enter)
    assert ends(done) == ["2 5 hostB"] * 2
    assert "hostB is lost: cannot start ranks on hostB: no ssh server listens there" in done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("exit 3", "failed with exit code 3"),
        ("./no-such-script", "failed with exit code 127"),
        ("echo localhost:2; sleep 1000", "has not ended within 1 s"),
        ("echo localhost:2; kill -9 $$", "was killed by SIGKILL (signal 9): it wrote nothing to stderr"),
        ("echo localhost", "print host:slots, or give --slots"),
        ("echo localhost:none", "the slots must be a number"),
        ("true", "found 0 slots, but 2 are needed"),
    ],
    ids=str,
)
def test_without_a_first_answer_nothing_is_started(command: str, words: str) -> None:
    options = ["-np", "2", "--elastic-timeout", "0.1", "--host-discovery-script", command]
    done = subprocess.run([sys.executable, *IMPATIENT, *options, "false"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[-1]
