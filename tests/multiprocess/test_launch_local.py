"""`ciranda run` on this machine: output, exit codes, and that nothing is ever left behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from launch_support import (
    GUARD_SECONDS,
    PROMPT_SECONDS,
    Running,
    children,
    close_all,
    launcher_command,
    python_rank,
    run,
    start,
    until,
)

pytestmark = pytest.mark.multiprocess

STUBBORN = (
    "import signal, sys, time\n"
    "for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(n, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "signal.pause()\n"
    "while True: signal.pause()\n"
)
# A rank whose grandchild has a session of its own, ignores signals, and has lost its parent.
DAEMON = (
    "import os, signal, sys\n"
    "is_ready, tells = os.pipe()\n"  # a rank that ended before would take its daemon with it
    "if os.fork() == 0:\n"
    "  os.setsid()\n"
    "  if os.fork(): os._exit(0)\n"
    "  for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(n, signal.SIG_IGN)\n"
    "  print('ready', os.getpid(), flush=True)\n"
    "  os.write(tells, b'.')\n"
    "  while True: signal.pause()\n"
    "os.wait()\n"
    "os.read(is_ready, 1)\n"
)
WAIT = "\nimport signal\nwhile True: signal.pause()\n"


@pytest.fixture(autouse=True)
def _close_all() -> Iterator[None]:
    yield
    close_all()


def wait_for_ready(running: Running, count: int) -> None:
    for _ in range(count):
        assert b"ready" in running.read_line()


# -- what ranks are told, and what they say --------------------------------------------------------------------------


def test_ranks_know_who_they_are_under_both_names() -> None:
    names = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"]
    code = f"import os\nfor p in ('CIRANDA', 'HOROVOD'): print(p, *(os.environ[p + '_' + n] for n in {names}))"
    exit_code, out, err = run(["run", "-np", "3", *python_rank(code)])
    assert (exit_code, err) == (0, b"")
    expected = [f"[{r}]<stdout>:{p} {r} 3 {r} 3 0 1" for p in ("CIRANDA", "HOROVOD") for r in range(3)]
    assert sorted(out.decode().splitlines()) == sorted(expected)


def test_the_secret_is_a_private_file_and_nowhere_else() -> None:
    code = (
        "import os, stat\n"
        "path = os.environ['CIRANDA_SECRET_FILE']\n"
        "text = open(path).read()\n"
        "print(len(bytes.fromhex(text)), oct(stat.S_IMODE(os.stat(path).st_mode)), open(path).read() == text)\n"
        "print('leaked' if any(text in v for v in os.environ.values()) else 'kept')\n"
        "import contextlib, glob\n"
        "lines = []\n"
        "for name in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "    with contextlib.suppress(OSError): lines.append(open(name, 'rb').read())\n"  # others come and go
        "print('leaked' if any(text.encode() in line for line in lines) else 'kept')\n"
    )
    exit_code, out, err = run(["run", "-np", "1", "--no-prefix", *python_rank(code)])
    assert (exit_code, err) == (0, b"")
    assert out.decode().splitlines() == ["32 0o600 True", "kept", "kept"]


def test_the_secret_reaches_programs_whose_parent_closed_every_descriptor() -> None:
    inner = "import os; print(len(open(os.environ['CIRANDA_SECRET_FILE']).read()))"
    code = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {inner!r}], close_fds=True, check=True)"
    )
    assert run(["run", "-np", "1", "--no-prefix", *python_rank(code)]) == (0, b"64\n", b"")


def test_options_stop_at_the_command() -> None:
    code = "import sys; print(sys.argv[1:])"
    exit_code, out, _ = run(["run", "-np", "1", "--no-prefix", *python_rank(code), "-np", "7", "--verbose", "--", "-H"])
    assert exit_code == 0
    assert out == b"['-np', '7', '--verbose', '--', '-H']\n"


@pytest.mark.parametrize("option", ["-np", "-n", "--num-proc"])
def test_the_number_of_ranks_has_three_spellings(option: str) -> None:
    exit_code, out, _ = run(["run", option, "2", "--", "echo", "hi"])
    assert exit_code == 0
    assert sorted(out.splitlines()) == [b"[0]<stdout>:hi", b"[1]<stdout>:hi"]


def test_strange_arguments_and_environment_arrive_exactly() -> None:
    strange = [
        b"a b",
        b'it\'s "q" $HOME `x` \\ !',
        b"line\nbreak\r",
        "naïve 💃".encode(),
        b"\xff\xfe caf\xe9",
        b"",
        b"*",
    ]
    code = (
        "import os, sys\n"
        "print([os.fsencode(a) for a in sys.argv[1:]])\n"
        "print([os.environb[b'STRANGE_%d' % i] for i in range(7)], os.environb[b'BAD\\xe9NAME'])\n"
    )
    env = {b"STRANGE_%d" % i: value for i, value in enumerate(strange)} | {b"BAD\xe9NAME": b"x"}
    exit_code, out, err = run(["run", "-np", "1", "--no-prefix", *python_rank(code), *strange], env=env)
    assert (exit_code, err) == (0, b"")
    assert out.decode().splitlines() == [repr(strange), f"{strange!r} b'x'"]


def test_variables_are_set_and_left_out_as_asked() -> None:
    code = "import os; print(os.environ.get('KEEP'), os.environ.get('DROP_ME'), os.environ['SET'])"
    arguments = ["run", "-np", "1", "--no-prefix", "--env", "SET=a=b c", "--exclude-env", "DROP_*", *python_rank(code)]
    assert run(arguments, env={"KEEP": "k", "DROP_ME": "d"}) == (0, b"k None a=b c\n", b"")


def test_each_rank_gets_its_share_of_the_cores_unless_told_otherwise() -> None:
    code = "import os; print(os.environ.get('OMP_NUM_THREADS'))"
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert run(["run", "-np", "2", "--no-prefix", *python_rank(code)])[1].split() == [str(share).encode()] * 2
    assert run(["run", "-np", "1", "--no-prefix", *python_rank(code)])[1] == b"None\n"
    told = run(["run", "-np", "2", "--no-prefix", *python_rank(code)], env={"OMP_NUM_THREADS": "7"})
    assert told[1].split() == [b"7", b"7"]


def test_each_rank_has_cores_of_its_own_if_told_so() -> None:
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    ranks = ["--no-prefix", *python_rank(code)]
    bound = ["--bind-to", "core", *ranks]
    all_cores = os.sched_getaffinity(0)
    anywhere = f"{sorted(all_cores)}\n".encode()
    if len(all_cores) > 1:
        own = [json.loads(line) for line in run(["run", "-np", "2", *bound])[1].splitlines()]
        assert sorted(own[0] + own[1]) == sorted(all_cores)
        assert run(["run", "-np", "2", *ranks], env={"CIRANDA_BIND_TO": "core"})[1] != anywhere * 2
    assert run(["run", "-np", "2", *ranks])[1] == anywhere * 2
    assert run(["run", "-np", "2", "--bind-to", "none", *ranks], env={"CIRANDA_BIND_TO": "core"})[1] == anywhere * 2
    assert run(["run", "-np", "1", *bound])[1] == anywhere
    wrong = run(["run", "-np", "2", *ranks], env={"CIRANDA_BIND_TO": "socket"})
    assert wrong == (2, b"", b"ciranda: CIRANDA_BIND_TO='socket': must be none, numa or core\n")
    too_many = len(all_cores) + 1
    assert run(["run", "-np", str(too_many), *bound])[1] == anywhere * too_many


def test_ranks_are_spread_over_numa_nodes_if_told_so(tmp_path: Path) -> None:
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    command = launcher_command("run", "-np", "4", "--no-prefix", "--bind-to", "numa", *python_rank(code))
    cpus = sorted(os.sched_getaffinity(0))
    for cpu in cpus:
        (tmp_path / f"cpu{cpu}" / f"node{int(cpu != cpus[0])}").mkdir(parents=True)
    script = f'mount --bind {tmp_path} /sys/devices/system/cpu && exec "$@"'
    unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    done = subprocess.run([*unshare, *command], capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)
    if len(cpus) < 2 or "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"NOT TESTED: needs two cores, and to show ranks another machine: {done.stderr}")
    n_first = sum(2 * rank + 1 < 8 / len(cpus) for rank in range(4))  # of the four: the first core's share
    expected = [str(cpus[:1])] * n_first + [str(cpus[1:])] * (4 - n_first)
    assert sorted(done.stdout.splitlines()) == sorted(expected), done.stderr


def test_a_module_named_like_a_standard_one_does_not_break_the_agent(tmp_path: Path) -> None:
    for name in ("json", "selectors", "signal", "types", "ciranda"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    exit_code, out, err = run(["run", "-np", "1", "--no-prefix", "/bin/pwd"], cwd=str(tmp_path))
    assert (exit_code, out, err) == (0, f"{tmp_path}\n".encode(), b"")


def test_streams_stay_apart_and_complete() -> None:
    code = "import sys\nfor i in range(2000): print('out', i); print('err', i, file=sys.stderr)"
    exit_code, out, err = run(["run", "-np", "2", *python_rank(code)])
    assert exit_code == 0
    for stream, data in (("stdout", out), ("stderr", err)):
        for rank in range(2):
            mine = [line for line in data.decode().splitlines() if line.startswith(f"[{rank}]<{stream}>:")]
            assert mine == [f"[{rank}]<{stream}>:{stream[3:]} {i}" for i in range(2000)]


def test_output_dir_holds_every_byte(tmp_path: Path) -> None:
    code = (
        "import os\n"
        "r = int(os.environ['CIRANDA_RANK'])\n"
        "os.write(1, bytes(range(256)) * 1000 + b'%d' % r)\n"
        "os.write(2, b'\\r\\n\\xff no newline')\n"
    )
    exit_code, _, _ = run(["run", "-np", "11", "--output-dir", str(tmp_path / "deep" / "logs"), *python_rank(code)])
    assert exit_code == 0
    log, *folders = sorted((tmp_path / "deep" / "logs").iterdir())
    assert log.name == "job.jsonl"
    assert [folder.name for folder in folders] == [f"rank.{rank:02d}" for rank in range(11)]
    for rank, folder in enumerate(folders):
        assert (folder / "stdout").read_bytes() == bytes(range(256)) * 1000 + b"%d" % rank
        assert (folder / "stderr").read_bytes() == b"\r\n\xff no newline"


def test_binary_output_passes_unchanged_without_prefix() -> None:
    code = "import os\nfor _ in range(50): os.write(1, bytes(range(256)) * 257)"
    assert run(["run", "-np", "1", "--no-prefix", *python_rank(code)]) == (0, bytes(range(256)) * 257 * 50, b"")


def test_a_slow_reader_slows_the_job_and_loses_nothing() -> None:
    code = "import os\nfor i in range(3000): os.write(1, b'%06d' % i + b'x' * 8193 + b'\\n')"
    running = start(["run", "-np", "1", "--no-prefix", *python_rank(code)])
    wait_until_blocked(running)
    exit_code, out, _ = running.wait()
    assert exit_code == 0
    assert [line[:6] for line in out.splitlines()] == [b"%06d" % i for i in range(3000)]


def wait_until_blocked(running: Running) -> None:
    """Until some rank waits for its reader and has written nothing more for many looks: all queues are full."""
    counts: list[str | None] = []

    def blocked() -> bool:
        counts.append(_written_while_blocked(running))
        return len(counts) > 20 and counts[-1] is not None and len(set(counts[-20:])) == 1

    until(blocked, what="that a rank waits for its reader")


def _written_while_blocked(running: Running) -> str | None:
    """How much the first rank that sleeps in a write to a pipe has written so far."""
    for pid in sorted(running.processes()):
        with suppress(OSError):
            folder = Path(f"/proc/{pid}")
            if "pipe_write" in (folder / "wchan").read_text() and b"os.write(1" in (folder / "cmdline").read_bytes():
                return f"{pid}: {(folder / 'io').read_text().splitlines()[1]}"
    return None


def test_a_terminal_shows_the_bar_of_rank_0_below_the_others_lines(tmp_path: Path) -> None:
    """Checks the bytes that a terminal gets; the bar must fit its width and be redrawn after each other line."""
    go = [tmp_path / "go0", tmp_path / "go1"]
    for fifo in go:
        os.mkfifo(fifo)
    code = (
        "import os, sys\n"
        "rank = os.environ['CIRANDA_RANK']\n"
        "if rank == '0': sys.stderr.write('\\r' + '#' * 100); sys.stderr.flush()\n"
        f"open({str(tmp_path / 'go')!r} + rank).close()\n"
        "if rank == '0': sys.stderr.write('\\rdone\\n')\n"
        "else: print('hello', flush=True)\n"
    )
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    env = {"TERM": "xterm", "NO_COLOR": "1"}
    running = start(["run", "-np", "2", *python_rank(code)], env=env, stdout=slave, stderr=slave)
    os.close(slave)
    bar, clear = b"[0]<stderr>:" + b"#" * 27, b"\r\x1b[K"
    screen = b""
    for expected, fifo in ((bar, go[1]), (clear + b"[1]<stdout>:hello\r\n" + bar, go[0])):
        while not screen.endswith(expected):
            screen += os.read(master, 4096)
        fifo.open("w").close()
    with suppress(OSError):  # how a terminal ends
        while True:
            screen += os.read(master, 4096)
    os.close(master)
    assert running.process.wait(GUARD_SECONDS) == 0
    assert screen.endswith(bar + clear + b"[0]<stderr>:done\r\n")
    assert b"#" * 28 not in screen


# -- exit codes and the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "exit 255"], 255),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -SEGV $$"], 139),
        (["/nonexistent/program"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_the_exit_code_is_the_ranks_own(command: list[str], expected: int) -> None:
    assert run(["run", "-np", "2", *command])[0] == expected


def test_the_first_failure_ends_all_and_its_traceback_stands_last() -> None:
    code = (
        "import os, sys, signal\n"
        "if os.environ['CIRANDA_RANK'] == '1':\n"
        "  print('some noise', file=sys.stderr)\n"
        "  raise ValueError('the reason')\n"
        "def stop(*_): print('rank 0 was asked to stop', file=sys.stderr); sys.exit(5)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
    ) + WAIT
    running = start(["run", "-np", "2", *python_rank(code)])
    exit_code, _, err = running.wait()
    running.assert_nothing_left()
    assert exit_code == 1
    lines = err.decode().splitlines()
    header = next(i for i, line in enumerate(lines) if line.startswith("ciranda: rank 1 on localhost failed first"))
    assert "exit code 1" in lines[header]
    assert lines[header + 1] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: the reason"
    assert sum(line.endswith("Traceback (most recent call last):") for line in lines) == 1
    assert "[1]<stderr>:some noise" in lines[:header]


def test_a_traceback_that_is_not_the_reason_is_shown_before_it(tmp_path: Path) -> None:
    """Rank 0 ends first, by a traceback of its own, but says that rank 1 is lost."""
    os.mkfifo(tmp_path / "fifo")
    code = (
        "import os\n"
        f"fifo = {str(tmp_path / 'fifo')!r}\n"
        "if os.environ['CIRANDA_RANK'] == '0':\n"
        "  held = open(fifo, 'w'); raise RuntimeError('RanksLostError: rank 1 is gone')\n"
        "open(fifo).read()\n"
        "raise RuntimeError('the reason')\n"
    )
    exit_code, _, err = run(["run", "-np", "2", *python_rank(code)])
    assert exit_code == 1
    kinds = [line for line in err.decode().splitlines() if not re.match(r"(\[0\]<stderr>:)? ", line)]
    assert kinds == [
        "[0]<stderr>:Traceback (most recent call last):",
        "[0]<stderr>:RuntimeError: RanksLostError: rank 1 is gone",
        "ciranda: rank 1 on localhost failed first: exit code 1; the end of its stderr:",
        "Traceback (most recent call last):",
        "RuntimeError: the reason",
    ]


def test_a_traceback_of_a_rank_that_goes_on_is_shown_meanwhile(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    code = (
        "import sys, traceback\n"
        "try: raise ValueError('which is caught')\n"
        "except ValueError: traceback.print_exc()\n"
        f"open({str(tmp_path / 'fifo')!r}).close()\n"
        "print('more', file=sys.stderr)\n"
    )
    running = start(["run", "-np", "1", *python_rank(code)])
    assert running.process.stderr is not None
    shown = [running.process.stderr.readline() for _ in range(3)]
    assert (shown[0], shown[-1]) == (
        b"[0]<stderr>:Traceback (most recent call last):\n",
        b"[0]<stderr>:ValueError: which is caught\n",
    )
    (tmp_path / "fifo").open("w").close()
    assert running.wait() == (0, b"", b"[0]<stderr>:more\n")


def test_a_rank_lost_to_a_signal_is_named_even_if_another_notices_first(tmp_path: Path) -> None:
    """Rank 0 leaves first, saying that rank 1 is lost; rank 1 dies a moment later, unless it is ended at once."""
    os.mkfifo(tmp_path / "fifo")
    code = (
        "import os, signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        f"fifo = {str(tmp_path / 'fifo')!r}\n"
        "if os.environ['CIRANDA_RANK'] == '0':\n"
        "  held = open(fifo, 'w'); sys.exit('ciranda.errors.RanksLostError: rank 1 is gone')\n"
        "open(fifo).read()\n"
        "if signal.sigtimedwait([signal.SIGTERM], 0.1) is None: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    exit_code, _, err = run(["run", "-np", "2", *python_rank(code)])
    assert exit_code == 137
    assert b"rank 1 on localhost failed first: killed by SIGKILL (signal 9)" in err.splitlines()[-1]


def test_one_rank_may_leave_early() -> None:
    code = "import os, sys\nif os.environ['CIRANDA_RANK'] == '0': sys.exit(0)\nprint('still here')"
    assert run(["run", "-np", "2", *python_rank(code)]) == (0, b"[1]<stdout>:still here\n", b"")


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_ranks_that_ignore_it(number: int, expected: int) -> None:
    running = start(["run", "-np", "3", *python_rank(STUBBORN)])
    wait_for_ready(running, 3)
    running.process.send_signal(number)
    running.assert_nothing_left()
    assert running.wait()[0] == expected


def test_a_second_ctrl_c_kills_at_once() -> None:
    running = start(["run", "-np", "2", "--grace", "60", *python_rank(STUBBORN)])
    wait_for_ready(running, 2)
    running.process.send_signal(signal.SIGINT)
    assert running.process.stderr is not None
    assert b"SIGINT" in running.process.stderr.readline()
    running.process.send_signal(signal.SIGINT)
    running.assert_nothing_left()
    assert running.wait()[0] == 130


def test_ranks_have_the_grace_period_to_clean_up() -> None:
    code = (
        "import signal, sys\n"
        "def stop(*_): print('cleaned up', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('ready', flush=True)\n"
    ) + WAIT
    running = start(["run", "-np", "1", "--grace", "60", *python_rank(code)])
    wait_for_ready(running, 1)
    running.process.send_signal(signal.SIGTERM)
    exit_code, out, _ = running.wait()
    assert (exit_code, out) == (143, b"[0]<stdout>:cleaned up\n")


@pytest.mark.parametrize("code", [STUBBORN, DAEMON + WAIT], ids=["stubborn", "daemon"])
def test_nothing_outlives_a_killed_launcher(code: str) -> None:
    running = start(["run", "-np", "2", "--grace", "0.2", *python_rank(code)])
    wait_for_ready(running, 2)
    running.process.kill()
    running.assert_nothing_left()


@pytest.mark.parametrize("code", [STUBBORN, DAEMON + WAIT], ids=["stubborn", "daemon"])
@pytest.mark.parametrize("which", ["guardian", "worker"])
def test_nothing_outlives_a_killed_agent(code: str, which: str) -> None:
    running = start(["run", "-np", "2", "--grace", "0.2", *python_rank(code)])
    wait_for_ready(running, 2)
    (guardian,) = running.children_of_launcher()
    (worker,) = children(guardian)
    os.kill(guardian if which == "guardian" else worker, signal.SIGKILL)
    exit_code, _, err = running.wait()
    running.assert_nothing_left()
    assert exit_code != 0
    assert b"the agent on localhost" in err


def test_ranks_die_with_their_agent_even_if_both_its_processes_are_killed() -> None:
    running = start(["run", "-np", "2", "--grace", "0.2", *python_rank(STUBBORN)])
    wait_for_ready(running, 2)
    (guardian,) = running.children_of_launcher()
    for pid in (guardian, *children(guardian)):
        os.kill(pid, signal.SIGKILL)
    assert running.wait()[0] != 0
    running.assert_nothing_left()


def test_daemons_of_ranks_end_with_the_job() -> None:
    running = start(["run", "-np", "2", "--grace", "0.2", *python_rank(DAEMON)])
    wait_for_ready(running, 2)
    exit_code, _, err = running.wait()
    assert (exit_code, err) == (0, b"")
    running.assert_nothing_left()


def test_a_stopped_rank_is_ended_too() -> None:
    running = start(
        ["run", "-np", "2", *python_rank("import os, signal; print('ready', os.getpid(), flush=True)" + WAIT)]
    )
    pids = [int(running.read_line().split()[-1]) for _ in range(2)]
    os.kill(pids[0], signal.SIGSTOP)
    running.process.send_signal(signal.SIGINT)
    running.assert_nothing_left()
    assert running.wait()[0] == 130


def test_ctrl_c_works_while_nobody_reads_the_output() -> None:
    code = "import os\nwhile True: os.write(1, b'x' * 8191 + b'\\n')"
    running = start(["run", "-np", "2", *python_rank(code)])
    wait_until_blocked(running)
    running.process.send_signal(signal.SIGINT)
    running.assert_nothing_left()  # ranks end at SIGTERM, nobody waits for a reader
    assert running.process.wait(PROMPT_SECONDS) == 130


_TALKS_FOR_EVER = "import time\nwhile True: print('talking', flush=True); time.sleep(0.01)"


def test_a_reader_that_goes_away_ends_the_job_as_it_ends_other_programs() -> None:
    running = start(["run", "-np", "2", "--grace", "0.1", *python_rank(_TALKS_FOR_EVER)])
    assert b"talking" in running.read_line()
    assert running.process.stdout is not None
    running.process.stdout.close()
    running.process.stdout = None
    exit_code, _, err = running.wait()
    assert (exit_code, err) == (
        128 + signal.SIGPIPE,
        b"ciranda: nobody reads the standard output any more: the job is ended\n",
    )
    running.assert_nothing_left()


@pytest.mark.parametrize("code", [_TALKS_FOR_EVER, "print('once')", "import os; os.write(1, b'an unfinished line')"])
def test_output_that_cannot_be_written_ends_the_job_with_an_error(code: str) -> None:
    with open("/dev/full", "wb") as full:
        exit_code, _, err = run(["run", "-np", "2", *python_rank(code)], stdout=full)
    reason = b"ciranda: cannot write to the standard output: No space left on device: the job is ended\n"
    assert (exit_code, err) == (1, reason)


def test_what_the_launcher_says_that_cannot_be_written_is_a_failure_too() -> None:
    code = "import sys; print('once'); sys.exit(3)"
    with open("/dev/full", "wb") as full:
        exit_code, out, _ = run(["run", "-np", "1", "--verbose", *python_rank(code)], stderr=full)
    assert (exit_code, out) in [(3, b"[0]<stdout>:once\n"), (1, b"")]  # the job may be ended before the rank has begun


def test_files_that_cannot_be_written_end_the_job_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "rank.1").mkdir()
    (tmp_path / "rank.1" / "stdout").symlink_to("/dev/full")
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('cleaned up')))\n"
        "os.write(1, b'working\\n')"  # print() would write the end of the line after the job may have been ended
    )
    arguments = ["run", "-np", "2", "--grace", "60", "--output-dir", str(tmp_path), *python_rank(code + WAIT)]
    exit_code, out, err = run(arguments)
    reason = f"ciranda: --output-dir: cannot write {tmp_path}/rank.1/stdout: No space left on device\n"
    assert (exit_code, err) == (1, reason.encode())
    assert {b"[1]<stdout>:working", b"[1]<stdout>:cleaned up"} <= set(out.splitlines())  # what cannot be kept is shown


@pytest.mark.parametrize("redirect", ["<&-", ">&- <&-", "2>&- <&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_obstacle(redirect: str, tmp_path: Path) -> None:
    code = f"import sys; open({str(tmp_path / 'made')!r}, 'w').write(repr(sys.stdin.read())); print('x')"
    command = launcher_command("run", "-np", "1", *python_rank(code))
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirect}', "sh", *command], capture_output=True, timeout=GUARD_SECONDS, check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "made").read_text() == "''"


@pytest.mark.parametrize("redirect", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_obstacle_to_functions(redirect: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import pathlib\n"
        "from ciranda.launch.api import RunOptions, run\n"
        f"results = run(lambda: print('x') or 5, np=2, options=RunOptions(output_dir={str(tmp_path)!r}))\n"
        f"pathlib.Path({str(tmp_path / 'made')!r}).write_text(repr(results))\n"
    )
    subprocess.run(
        ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, str(program)], timeout=GUARD_SECONDS, check=True
    )
    assert (tmp_path / "made").read_text() == "[5, 5]"
    assert (tmp_path / "rank.0" / "stdout").read_bytes() == b"x\n"


def test_nothing_is_started_that_could_not_be_found_again() -> None:
    hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if subprocess.run([*hide, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount")
    running = start(["run", "-np", "2", "sh", "-c", "echo started; sleep 20 &"], through=hide)
    exit_code, out, err = running.wait()
    assert (exit_code != 0, out) == (True, b"")
    assert b"/proc does not show this host's processes" in err


def test_nothing_is_started_with_too_few_files_for_all() -> None:
    running = start(
        ["run", "-np", "12", "sh", "-c", "echo started"], through=["sh", "-c", 'ulimit -n 40; exec "$@"', "sh"]
    )
    exit_code, out, err = running.wait()
    assert (exit_code != 0, out) == (True, b"")
    assert b"12 ranks need 60 open files, 40 are allowed: ulimit -n 60, or more" in err


def test_signals_that_were_blocked_end_the_job() -> None:
    block = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [15]); os.execv(sys.argv[1], sys.argv[1:])"
    )
    code = "print('ready', flush=True)" + WAIT
    running = start(["run", "-np", "1", *python_rank(code)], through=[sys.executable, "-c", block])
    wait_for_ready(running, 1)
    running.process.send_signal(signal.SIGTERM)
    assert running.wait()[0] == 143


def test_an_ignored_hangup_stays_ignored() -> None:
    running = start(["run", "-np", "1", *python_rank("print('ready', flush=True)" + WAIT)], through=["nohup"])
    wait_for_ready(running, 1)
    running.process.send_signal(signal.SIGHUP)
    running.process.send_signal(signal.SIGTERM)
    assert running.wait()[0] == 143


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-np", "0"], b"-np 0: the number of processes must be 1 or more"),
        (["-np", "-1"], b"-np -1: the number of processes must be 1 or more"),
        (["-np", "3", "-H", "localhost:2"], b"-np 3 is more than the 2 slots of localhost:2"),
        (["-np", "two"], b"-np"),
        ([], b"say how many processes"),
        (["-H", "localhost:1", "--hostfile", "x", "-np", "1"], b"not both"),
        (["--hostfile", "/nonexistent"], b"cannot read the host file /nonexistent"),
        (["-np", "1", "--env", "NOVALUE"], b"write NAME=VALUE"),
        (["-np", "1", "--output-dir", "/dev/null/x"], b"--output-dir /dev/null/x: Not a directory"),
        (["-np", "1", "--network-interface", "nope0"], b"no such interface"),
        (["-H", "host.invalid:1"], b"cannot start ranks on host.invalid"),
        (["-np", "1", "--no-such-option"], b"--no-such-option"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(arguments: list[str], complaint: bytes) -> None:
    exit_code, out, err = run(["run", *arguments, "true"])
    assert exit_code != 0
    assert out == b""
    flat = re.sub(rb"\s+", b" ", err)
    assert complaint in flat
    assert b"Traceback" not in err


def test_a_missing_working_directory_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = launcher_command("run", "-np", "1", "true")
    code = f"import os; os.rmdir({str(gone)!r}); os.execvp({sys.executable!r}, {command!r})"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=gone, capture_output=True, timeout=GUARD_SECONDS, check=False
    )
    assert done.returncode != 0
    assert b"working directory" in done.stderr
    assert b"Traceback" not in done.stderr


def test_two_jobs_at_once_do_not_meet() -> None:
    outcomes: list[tuple[int, bytes, bytes]] = []
    code = "import os; print(os.environ['JOB'], os.environ['CIRANDA_RANK'], os.environ['CIRANDA_SIZE'])"

    def job(name: str) -> None:
        outcomes.append(run(["run", "-np", "2", "--no-prefix", *python_rank(code)], env={"JOB": name}))

    threads = [threading.Thread(target=job, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = sorted(line for exit_code, out, _ in outcomes for line in out.decode().splitlines() if exit_code == 0)
    assert lines == ["a 0 2", "a 1 2", "b 0 2", "b 1 2"]
