"""The launcher and the real engine together: here, and between hosts over real ssh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import netns
import pytest
from launch_support import GUARD_SECONDS

import ciranda
from ciranda import _core
from ciranda.bench.tune import defaults
from ciranda.doctor import engine
from ciranda.launch import run
from ciranda.launch.api import RunOptions

pytestmark = pytest.mark.multiprocess

SUM = (
    "import numpy, ciranda\n"
    "ciranda.init()\n"
    "total = ciranda.allreduce(numpy.arange(5.0) + ciranda.rank(), op=ciranda.Sum, name='x')\n"
    "print(ciranda.rank(), ciranda.local_rank(), ciranda.cross_rank(), total.tolist())\n"
    "ciranda.shutdown()\n"
)
SUM_OF_A_SET = (
    "import numpy, ciranda\n"
    "ciranda.init()\n"
    "pair = ciranda.add_process_set([0, 1])\n"
    "if pair.included():\n"
    "    print(ciranda.allreduce(numpy.arange(5.0), op=ciranda.Sum, process_set=pair).tolist())\n"
    "ciranda.shutdown()\n"
)
# One rank dies while the others wait for it.
LOSS = (
    "import os, signal, numpy, ciranda\n"
    "ciranda.init()\n"
    "ciranda.barrier()\n"
    "if ciranda.rank() == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
    "while True: ciranda.allreduce(numpy.ones(3), name='x')\n"
)


def ciranda_run(arguments: Sequence[str], through: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*through, sys.executable, "-m", "ciranda.launch.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)


def expected(places: Sequence[tuple[int, int]]) -> list[str]:
    size = len(places)
    total = [float(size * i + sum(range(size))) for i in range(5)]
    return [f"[{r}]<stdout>:{r} {local} {cross} {total}" for r, (local, cross) in enumerate(places)]


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: little shared memory needs root to mount it")
def test_a_set_does_without_memory_of_its_own_where_there_is_too_little() -> None:
    # Of 144 MiB, the world takes 96 for its slots; a set of two would need 78.
    through = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    through += ['mount -t tmpfs -o size=144m tmpfs /dev/shm && exec "$@"', "sh"]
    slots = ["--env", f"CIRANDA_SLOT_BYTES={16 << 20}"]
    done = ciranda_run(["run", "-np", "3", "--no-prefix", *slots, sys.executable, "-c", SUM_OF_A_SET], through)
    if "unshare:" in done.stderr:
        pytest.skip(f"NOT TESTED: no mount namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[0.0, 2.0, 4.0, 6.0, 8.0]"] * 2
    (warning,) = done.stderr.splitlines()
    assert "a process set of 2 ranks on this host gets no memory to share" in warning
    assert "/dev/shm is too small: 78.2 MiB are needed" in warning


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: a network namespace needs root")
def test_ranks_do_not_wait_for_a_loopback_interface_that_is_down() -> None:
    options = ["--start-timeout", "600"]
    done = ciranda_run(["run", "-np", "2", *options, sys.executable, "-c", SUM], through=["unshare", "--net"])
    assert done.returncode != 0
    assert "Network is unreachable (the loopback interface is down: ip link set lo up)" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: a network namespace needs root")
def test_a_loopback_interface_that_has_only_an_ipv6_address_is_enough() -> None:
    script = 'ip link set lo up && ip address del 127.0.0.1/8 dev lo && exec "$@"'
    through = ["unshare", "--net", "sh", "-c", script, "sh"]
    check = "from ciranda.doctor.network import loopback\nassert [found.status for found in loopback()] == ['ok']\n"
    done = ciranda_run(["run", "-np", "2", sys.executable, "-c", SUM + check], through)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == expected([(0, 0), (1, 0)])


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: another user's number needs root")
def test_an_engine_without_a_thread_says_so() -> None:
    code = (
        "import os, resource, ciranda, ciranda.errors\n"
        "ciranda.init(); ciranda.shutdown()\n"  # reads its files, which may not be another user's to read
        "os.setuid(65534)\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))\n"
        "try:\n    ciranda.init()\n"
        "except ciranda.errors.InternalError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD_SECONDS, check=True
    )
    assert done.stdout.startswith("cannot start the engine's thread: Resource temporarily unavailable")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_find_each_other_on_one_machine(size: int) -> None:
    done = ciranda_run(["run", "-np", str(size), sys.executable, "-c", SUM])
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == expected([(rank, 0) for rank in range(size)])


@pytest.mark.netns
@pytest.mark.ssh
def test_ranks_find_each_other_between_hosts(hosts: netns.Hosts) -> None:
    arguments = ["run", "-F", str(hosts.ssh_config), "-H", "hostA:2,hostB:2", sys.executable, "-c", SUM]
    done = ciranda_run(arguments, hosts[0].enter)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == expected([(0, 0), (1, 0), (0, 1), (1, 1)])


@pytest.mark.netns
@pytest.mark.ssh
@pytest.mark.parametrize("algorithm", ["", "tree", "chain"])
def test_rows_of_every_type_between_hosts(hosts: netns.Hosts, algorithm: str) -> None:
    command = ["env", f"CIRANDA_ALGORITHM={algorithm}", sys.executable]
    script = str(Path(__file__).with_name("rows_between_hosts.py"))
    arguments = ["run", "-F", str(hosts.ssh_config), "-H", "hostA:2,hostB:2", *command, script]
    done = ciranda_run(arguments, hosts[0].enter)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{r}]<stdout>:rank {r} on host {r // 2}: right" for r in range(4)]


@pytest.mark.netns
@pytest.mark.ssh
def test_a_chosen_interface_and_port_range_are_used(hosts: netns.Hosts) -> None:
    options = ["--network-interface", "eth0", "--port-range", "24000-24009", "--verbose"]
    code = SUM.replace("ciranda.shutdown()", "import psutil\n") + (
        "listening = [c.laddr for c in psutil.Process().net_connections() if c.status == 'LISTEN']\n"
        "ports = {(address.ip, address.port // 10) for address in listening}\n"
        "assert {port for _, port in ports} <= {2400} and '0.0.0.0' not in {ip for ip, _ in ports}, ports\n"
        "ciranda.shutdown()\n"
    )
    arguments = ["run", "-F", str(hosts.ssh_config), *options, "-H", "hostA:2,hostB:2", sys.executable, "-c", code]
    done = ciranda_run(arguments, hosts[0].enter)
    assert done.returncode == 0, done.stderr
    assert "store at 10.91.0.11:2400" in done.stderr


def test_a_misspelt_setting_is_told_once_by_who_sees_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """By `ciranda run`, or by the first rank of those who set it later; not a name that is like no setting."""
    monkeypatch.setenv("CIRANDA_FUSION_TRESHOLD", "1")
    monkeypatch.setenv("CIRANDA_OWN_WORDS", "1")
    monkeypatch.setenv("CIRANDA_NUM_LANE", "2")
    options = ["--exclude-env", "CIRANDA_NUM_LANE", "--env", "CIRANDA_LOGLEVEL=info"]
    twice = [sys.executable, "-c", "import ciranda\nfor _ in range(2): ciranda.init(); ciranda.shutdown()"]
    done = ciranda_run(["run", "-np", "2", *options, "env", "CIRANDA_TIMELIN=x", *twice])
    assert done.returncode == 0, done.stderr
    asked = [("FUSION_TRESHOLD", "FUSION_THRESHOLD"), ("LOGLEVEL", "LOG_LEVEL"), ("TIMELIN", "TIMELINE")]
    where = ["ciranda: warning", "ciranda: warning", "[0]<stderr>:<string>:2: RuntimeWarning"]
    assert done.stderr.splitlines() == [
        f"{place}: CIRANDA_{name} is set, but there is no such setting: is CIRANDA_{close} meant?"
        for place, (name, close) in zip(where, asked, strict=True)
    ]


def test_a_lost_rank_is_the_one_that_is_blamed() -> None:
    done = ciranda_run(["run", "-np", "4", sys.executable, "-c", LOSS])
    assert done.returncode == 137
    assert "rank 2 on localhost failed first: killed by SIGKILL" in done.stderr.splitlines()[-1]


@pytest.mark.netns
@pytest.mark.ssh
def test_the_link_between_two_hosts_is_measured_and_kept(
    hosts: netns.Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CIRANDA_COSTS_FOLDER", str(tmp_path))  # which both hosts see
    done = ciranda_run(["tune", "-F", str(hosts.ssh_config), "-H", "hostA,hostB"], hosts[0].enter)
    assert (done.returncode, done.stderr) == (0, "")
    head, *costs, kept = done.stdout.splitlines()
    assert head == "# the link, two ranks; ns: a round or call, fs: a byte"
    shown = {name: int(value) for name, value, *_ in (line.split() for line in costs)}
    assert list(shown) == ["link_round_ns", "link_fs"]
    assert 1 <= shown["link_round_ns"] < 100_000_000  # a difference of two times, on a machine that may be busy
    (file,) = tmp_path.iterdir()
    assert kept == f"# kept in {file}"
    assert _core.measured_costs() == {**defaults(), **shown}


@pytest.mark.netns
@pytest.mark.ssh
def test_a_rank_lost_on_another_host_is_the_one_that_is_blamed(hosts: netns.Hosts) -> None:
    arguments = ["run", "-F", str(hosts.ssh_config), "-H", "hostA:2,hostB:2", sys.executable, "-c", LOSS]
    done = ciranda_run(arguments, hosts[0].enter)
    assert done.returncode == 137
    assert "rank 2 on hostB failed first: killed by SIGKILL" in done.stderr.splitlines()[-1]


def test_a_function_may_use_the_engine() -> None:
    def work(step: float) -> list[float]:
        import numpy

        ciranda.init()
        total = ciranda.allreduce(numpy.full(2, step * ciranda.rank()), op=ciranda.Sum, name="x")
        ciranda.shutdown()
        return list(total.tolist())

    assert run(work, (2.0,), np=3) == [[6.0, 6.0]] * 3


@pytest.mark.parametrize("broken", [False, True])
def test_ranks_that_measured_differently_choose_the_same(tmp_path: Path, broken: bool) -> None:
    def work(folder: str, broken: bool) -> list[tuple[str, bool]]:
        import os
        from pathlib import Path

        import numpy

        from ciranda import _core
        from ciranda._basics import engine

        rank = int(os.environ["CIRANDA_RANK"])
        os.environ["CIRANDA_COSTS_FOLDER"] = f"{folder}/{rank}"
        path = Path(_core.save_measured_costs({"shared_round_ns": [1_000_000, 1, 330][rank]}))
        if broken and rank == 0:
            path.write_text("ciranda costs 1\n")
        ciranda.init()
        chosen = []
        for count in (1 << 8, 1 << 11, 1 << 16):
            total = ciranda.allreduce(numpy.full(count, 1.0 + rank, numpy.float32), op=ciranda.Sum, name=f"x{count}")
            (best,) = [row[0] for row in engine().candidates(0, 4 * count) if row[4]]
            chosen.append((best, bool((total == 6).all())))
        ciranda.shutdown()
        return chosen

    options = RunOptions(env={"CIRANDA_STALL_SHUTDOWN_SECONDS": "20"})
    found = run(work, (str(tmp_path), broken), np=3, options=options)
    quick = found[0][-1][0] == "shm two-shot"  # where rank 0's costs, which make waiting dear, were not used
    assert quick == broken
    assert found == [[(name, True) for name, _ in found[0]]] * 3


def test_the_doctor_runs_a_real_job() -> None:
    (finding,) = engine.two_ranks()
    assert finding.status == "ok", finding.found
    assert os.environ.get("CIRANDA_RANK") is None


def test_the_doctor_finds_this_machine_fit_and_says_so_in_json() -> None:
    done = ciranda_run(["doctor", "--json"])
    report = json.loads(done.stdout)
    failed = [finding for finding in report["findings"] if finding["status"] == "fail"]
    assert failed == []
    assert report["ok"] is True
    assert done.returncode == 0


@pytest.fixture
def slow_links(hosts: netns.Hosts) -> Iterator[None]:
    """Two links between the hosts, eth0 and eth1; what they send passes token buckets, as on links of a known rate."""
    if shutil.which("tc") is None:
        pytest.skip("LINKS WITH A RATE ARE NOT TESTED: needs the program tc")
    ends = [["eth1", "netns", str(host.holder)] for host in hosts.hosts[:2]]
    subprocess.run(["ip", "link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1]], check=True)
    for number, host in enumerate(hosts.hosts[:2]):
        subprocess.run([*host.enter, "ip", "address", "add", f"10.92.0.{number}/31", "dev", "eth1"], check=True)
        subprocess.run([*host.enter, "ip", "link", "set", "eth1", "up"], check=True)
        tc(host, "replace", "eth0", "tbf", "rate", "2gbit", "burst", "256kb", "latency", "20ms")
        tc(host, "replace", "eth1", "tbf", "rate", "1gbit", "burst", "256kb", "latency", "20ms")
    yield
    for host in hosts.hosts[:2]:
        tc(host, "delete", "eth0")
    subprocess.run([*hosts[0].enter, "ip", "link", "delete", "eth1"], check=True)


def tc(host: netns.Host, verb: str, interface: str, *qdisc: str) -> None:
    subprocess.run([*host.enter, "tc", "qdisc", verb, "dev", interface, "root", *qdisc], check=True)


def n_bytes_sent(host: netns.Host, interface: str) -> int:
    shown = subprocess.run(
        [*host.enter, "ip", "--json", "-s", "link", "show", interface], check=True, capture_output=True
    )
    return int(json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"])


@pytest.mark.netns
@pytest.mark.ssh
@pytest.mark.usefixtures("slow_links")
def test_reductions_between_hosts_have_the_bits_of_those_on_one(hosts: netns.Hosts) -> None:
    script = [sys.executable, str(Path(__file__).with_name("reductions_between_hosts.py"))]
    runs = [ciranda_run(["run", "-np", "4", "--no-prefix", *script])]
    for places, interfaces, algorithm in (
        ("hostA:2,hostB:2", "eth0", ""),  # as many on each: by hosts
        ("hostA:3,hostB:1", "eth0,eth1", ""),  # each with each
        ("hostA:3,hostB:1", "eth0", "by-hosts"),  # in parts, of two ranks and of one
        ("hostA:2,hostB:2", "eth0", "doubling"),
        ("hostA:3,hostB:1", "eth0", "doubling"),
    ):
        between = ["run", "-F", str(hosts.ssh_config), "--no-prefix", "--network-interface", interfaces]
        command = ["env", f"CIRANDA_ALGORITHM={algorithm}", *script]
        runs.append(ciranda_run([*between, "-H", places, *command], hosts[0].enter))
    assert [(done.returncode, done.stderr) for done in runs] == [(0, "")] * len(runs)
    digests = [done.stdout.splitlines() for done in runs]
    assert [len(lines) for lines in digests] == [4] * len(runs)
    assert len({digest for lines in digests for digest in lines}) == 1
    for host in hosts.hosts[:2]:
        assert n_bytes_sent(host, "eth1") > 10_000_000, "the second link was hardly used"
