"""Pods of Kubernetes run a job: as processes, by the manifest that is printed (process_kubelet.py)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import netns
import process_kubelet
import pytest
from launch_support import until
from process_kubelet import Kubelet

from ciranda.engines.kubernetes import LOST_A_HOST, PORT
from ciranda.launch.processes import descendants

pytestmark = [pytest.mark.multiprocess, pytest.mark.netns]


@pytest.fixture(scope="module")
def hosts() -> Iterator[netns.Hosts]:
    if (why := netns.why_not()) is not None:
        pytest.skip(f"NOT TESTED, Kubernetes: {why}")
    with process_kubelet.cluster(4) as made:
        yield made


@pytest.fixture
def out() -> Iterator[Path]:
    """A folder for ranks to write to, whoever they are."""
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    folder.chmod(0o777)
    yield folder
    subprocess.run(["rm", "-r", str(folder)], check=True)


def job(hosts: netns.Hosts, out: Path, options: str, code: str, name: str = "j", **more: str) -> process_kubelet.AJob:
    """A Job whose ranks run ``code``."""
    of_image = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    env = {**of_image, "OUT": str(out), "OMP_NUM_THREADS": "1", **more}
    return process_kubelet.job(hosts, options.split(), [sys.executable, "-c", code], env, name)


def files(out: Path) -> list[str]:
    return sorted(each.name for each in out.iterdir())


# Ranks that train until told to end, each having said that it is there; with GO in the folder they end well.
TRAIN = """
import os, sys, numpy, ciranda
ciranda.init()
out, rank = os.environ["OUT"], ciranda.rank()
print("rank", rank, "is here", flush=True)
step, is_over = 0, 0
while not is_over:
    mine = float(rank == 0 and os.path.exists(out + "/GO"))
    is_over = ciranda.allreduce(numpy.array([mine]), op=ciranda.Sum, name="over")[0]
    if step == 0:
        open(f"{out}/{rank}", "w").close()
    step += 1
ciranda.shutdown()
"""


# Ranks that train a model; every sum of gradients, and the order of its terms, is in the bits of it.
TRAIN_A_MODEL = """
import hashlib, numpy, ciranda
ciranda.init()
draws = numpy.random.default_rng(ciranda.rank())
weights = numpy.zeros(1000, numpy.float32)
for step in range(20):
    inputs = draws.standard_normal((8, weights.size), numpy.float32)
    weights -= 1e-4 * ciranda.allreduce((inputs @ weights - 1) @ inputs, name="gradient")
print("sha256", hashlib.sha256(weights.tobytes()).hexdigest(), flush=True)
ciranda.shutdown()
"""


def test_a_training_has_the_bits_of_ciranda_run(hosts: netns.Hosts, out: Path) -> None:
    with job(hosts, out, "--hosts 2 --slots 2", TRAIN_A_MODEL) as kubelet:
        kubelet.start(0, 1)
        kubelet.until_ended(0, 1, seconds=120)
        said = kubelet.log(0) + kubelet.log(1)
        assert kubelet.codes[0] == kubelet.codes[1] == [0], said
    words = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "4", sys.executable, "-c", TRAIN_A_MODEL]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    by_run = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=120).stdout
    here, there = (re.findall(r"sha256 (\w+)", text) for text in (said, by_run))
    assert here == there == [here[0]] * 4


def test_a_lost_pod_is_named_and_all_start_anew(hosts: netns.Hosts, out: Path) -> None:
    with job(hosts, out, "--hosts 3 --slots 1", TRAIN) as kubelet:
        kubelet.start(0, 1, 2)
        until(lambda: files(out) == ["0", "1", "2"], what="the training")
        kubelet.kill(2)
        kubelet.until_ended(0, 1, 2)
        assert "ciranda: the agent on j-2 was lost, and with it ranks 2\n" in kubelet.log(0)
        assert [kubelet.codes[index] for index in (0, 1)] == [[LOST_A_HOST], [LOST_A_HOST]], kubelet.log(1)
        assert not kubelet.is_final(LOST_A_HOST)
        (out / "GO").touch()
        kubelet.start(0, 1, 2)
        kubelet.until_ended(0, 1, 2)
        assert [codes[-1] for codes in kubelet.codes.values()] == [0, 0, 0], kubelet.log(0)


def test_a_host_that_is_gone_without_a_word_is_no_failure_of_the_script(hosts: netns.Hosts, out: Path) -> None:
    with job(hosts, out, "--hosts 2 --slots 1 --env CIRANDA_LINK_TIMEOUT=1", TRAIN) as kubelet:
        kubelet.start(0, 1)
        until(lambda: files(out) == ["0", "1"], what="the training")
        kubelet.connect(1, False)
        try:
            kubelet.until_ended(0)
        finally:
            kubelet.connect(1, True)
        assert kubelet.codes[0] == [LOST_A_HOST], kubelet.log(0)
        # Whichever notices it first: a rank's link, or that of the launcher to the other pod's agent.
        named = ("RanksLostError: rank 1 (host j-1, pid", "the agent on j-1 was lost, and with it ranks 1")
        assert any(text in kubelet.log(0) for text in named), kubelet.log(0)


def test_pods_that_are_cut_off_end_by_themselves(hosts: netns.Hosts, out: Path) -> None:
    """Their ranks make no call, and nothing tells either side that the other is gone."""
    code = "import os, time; open(os.environ['OUT'] + '/' + os.environ['RANK'], 'w').close(); time.sleep(600)"
    with job(hosts, out, "--hosts 2 --slots 1 --env CIRANDA_LINK_TIMEOUT=1", code) as kubelet:
        kubelet.start(0, 1)
        until(lambda: files(out) == ["0", "1"], what="the ranks")
        with hosts.cut(1):
            kubelet.until_ended(0, 1)
        assert kubelet.codes == {0: [LOST_A_HOST], 1: [LOST_A_HOST]}
        assert "ciranda: the agent on j-1 was lost, and with it ranks 1\n" in kubelet.log(0)
        assert "j-1 has acknowledged nothing for 1.25 s (CIRANDA_LINK_TIMEOUT)" in kubelet.log(0)
        launcher = "j-0, which holds the launcher, has acknowledged nothing for 2 s (CIRANDA_LINK_TIMEOUT)"
        assert launcher in kubelet.log(1)


def test_without_the_launcher_s_pod_the_others_end_and_may_start_anew(hosts: netns.Hosts, out: Path) -> None:
    with job(hosts, out, "--hosts 2 --slots 1", TRAIN) as kubelet:
        kubelet.start(0, 1)
        until(lambda: files(out) == ["0", "1"], what="the training")
        kubelet.kill(0)
        kubelet.until_ended(1)
        assert kubelet.codes[1] == [LOST_A_HOST], kubelet.log(1)
        assert "ciranda: j-0, which holds the launcher, is gone\n" in kubelet.log(1)


def test_a_late_pod_is_waited_for_and_named(hosts: netns.Hosts, out: Path) -> None:
    (out / "GO").touch()
    with job(hosts, out, "--hosts 3 --slots 1", TRAIN) as kubelet:
        kubelet.start(0, 1)
        until(lambda: "ciranda: waiting for j-2\n" in kubelet.log(0), what="the launcher's word")
        kubelet.start(2)
        kubelet.until_ended(0, 1, 2)
        assert [*kubelet.codes.values()] == [[0], [0], [0]], kubelet.log(0)


def test_a_pod_that_does_not_come_is_named_in_the_end(hosts: netns.Hosts, out: Path) -> None:
    with job(hosts, out, "--hosts 3 --slots 1 --start-timeout 1", TRAIN) as kubelet:
        kubelet.start(0)
        kubelet.until_ended(0)
        assert kubelet.codes[0] == [LOST_A_HOST]
        assert "ciranda: j-1, j-2 did not come within 1 s: " in kubelet.log(0)


def test_a_script_s_own_failure_is_final_and_told_by_every_pod(hosts: netns.Hosts, out: Path) -> None:
    code = "import os, sys, time; print('rank', os.environ['RANK']); os.environ['RANK'] == '1' or time.sleep(600)"
    code += "; sys.exit('no such batch') if os.environ['RANK'] == '0' else print('bad', file=sys.stderr); os._exit(7)"
    with job(hosts, out, "--hosts 2 --slots 1", code) as kubelet:
        kubelet.start(0, 1)
        kubelet.until_ended(0, 1)
        assert kubelet.codes == {0: [7], 1: [7]}
        assert kubelet.is_final(7)
        assert "ciranda: rank 1 on j-1 failed first: exit code 7; the end of its stderr:\nbad\n" in kubelet.log(0)
        for line in ("[1]<stdout>:rank 1\n", "[1]<stderr>:bad\n"):
            assert line in kubelet.log(1)
            assert line not in kubelet.log(0)


# Rank 0 says that it lost rank 1, which ends a moment later, with its host's agent.
SECONDHAND = """
import os, signal, sys, time
said = os.environ["OUT"] + "/said"
if os.environ["RANK"] == "0":
    print("RanksLostError: rank 1", file=sys.stderr, flush=True)
    open(said, "w").close()
    os._exit(1)
while not os.path.exists(said):
    time.sleep(0.01)
os.kill(os.getppid(), signal.SIGKILL)
"""


def test_a_lost_agent_is_the_cause_also_if_a_rank_tells_of_it_first(hosts: netns.Hosts, out: Path) -> None:
    with job(hosts, out, "--hosts 2 --slots 1", SECONDHAND) as kubelet:
        kubelet.start(0, 1)
        kubelet.until_ended(0, 1)
        assert kubelet.codes == {0: [LOST_A_HOST], 1: [LOST_A_HOST]}
        assert "ciranda: the agent on j-1 was lost, and with it ranks 1\n" in kubelet.log(0)
        assert "ciranda: the agent of this host is gone\n" in kubelet.log(1)


ON_SIGTERM = """
import os, signal, sys
def end(*_):
    open(os.environ["OUT"] + "/ended" + os.environ["RANK"], "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open(os.environ["OUT"] + "/up" + os.environ["RANK"], "w").close()
while True:
    signal.pause()
"""


@pytest.mark.parametrize("index", [0, 1])
def test_sigterm_to_a_pod_reaches_all_ranks_in_time(hosts: netns.Hosts, out: Path, index: int) -> None:
    with job(hosts, out, "--hosts 2 --slots 1 --grace 60", ON_SIGTERM) as kubelet:
        kubelet.start(0, 1)
        until(lambda: files(out) == ["up0", "up1"], what="the start")
        kubelet.terminate(index)
        kubelet.until_ended(0, 1)
        assert files(out) == ["ended0", "ended1", "up0", "up1"]
        assert kubelet.codes == ({0: [143], 1: [143]} if index == 0 else {0: [LOST_A_HOST], 1: [143]})
        assert not kubelet.is_final(143)


@pytest.mark.parametrize("index", [0, 1])
def test_sigterm_ends_a_pod_that_waits(hosts: netns.Hosts, out: Path, index: int) -> None:
    with job(hosts, out, "--hosts 2 --slots 1", TRAIN) as kubelet:
        kubelet.start(index)
        if index == 0:
            until(lambda: str(PORT) in listening(hosts[0].holder), what="its port")
        else:
            until(lambda: f"waiting for j-0.j, port {PORT}: " in kubelet.log(1), what="its word")
        kubelet.terminate(index)
        kubelet.until_ended(index)
        assert kubelet.codes[index] == [143]
        assert f"ciranda: SIGTERM has ended j-{index}\n" in kubelet.log(index)


# Speaks to every port that listens on a host, and prints what it is answered after its proof.
STRANGER = """
import os, socket, sys
from ciranda.launch.handshake import ConnectingHandshake, Terms
address, port, *ports = sys.argv[1:]
def say(port, *pieces):
    heard = b""
    with socket.create_connection((address, int(port)), 5) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                connection.settimeout(1)
                heard = connection.recv(4096)
        except OSError:
            return b""
    return heard
kept = [socket.create_connection((address, int(port)), 5) for _ in range(100)]
for each in (port, *ports):
    for noise in (b"GET / HTTP/1.0\\r\\n\\r\\n", os.urandom(4096), b"CIRANDA\\x01" + bytes(72)):
        say(each, noise)
for secret in (bytes(32), os.urandom(32)):
    for index in (0, 1, 2, 3, 2**32 - 1):
        shake = ConnectingHandshake(Terms(secret, "j-0.j", 3), index, os.urandom(32))
        print("in" if say(port, shake.begin(), os.urandom(32)) else "out")
"""


def listening(pid: int) -> list[str]:
    """The ports on which the network namespace of a process listens."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().split("\n")[1:]
    ]
    return sorted({str(int(words[1].rpartition(":")[2], 16)) for words in lines if len(words) > 3 and words[3] == "0A"})


def probe(hosts: netns.Hosts, kubelet: Kubelet) -> str:
    """What a stranger on another host hears who tries all ports of the launcher's host."""
    ports = [port for port in listening(hosts[0].holder) if port not in (str(netns.SSH_PORT), str(PORT))]
    words = [*hosts[1].enter, sys.executable, "-c", STRANGER, hosts[0].address, str(PORT), *ports]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout


def test_a_stranger_gets_in_nowhere_and_the_secret_is_nowhere(hosts: netns.Hosts, out: Path) -> None:
    with job(hosts, out, "--hosts 3 --slots 1", TRAIN) as kubelet:
        kubelet.start(0, 1)
        until(lambda: str(PORT) in listening(hosts[0].holder), what="the launcher's port")
        assert probe(hosts, kubelet).split() == ["out"] * 10
        kubelet.start(2)
        until(lambda: files(out) == ["0", "1", "2"], what="the training")
        for index in range(3):
            first = kubelet.first_process(index)
            assert first is not None
            for pid in (first, *descendants(first)):
                for name in ("cmdline", "environ"):
                    assert kubelet.secret.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        (out / "GO").touch()
        kubelet.until_ended(0, 1, 2)
        assert [*kubelet.codes.values()] == [[0], [0], [0]], kubelet.log(0)
        assert kubelet.secret not in "".join(kubelet.log(index) for index in range(3))
        assert kubelet.secret not in str(kubelet.spec)


def test_another_secret_does_not_come_in(hosts: netns.Hosts, out: Path) -> None:
    with job(hosts, out, "--hosts 2 --slots 1", TRAIN) as kubelet:
        kubelet.start(0)
        own, kubelet.secret = kubelet.secret, "0" * 64
        kubelet.start(1)
        until(lambda: "what answers there has not the secret of this job" in kubelet.log(1), what="its word")
        kubelet.terminate(1)
        kubelet.until_ended(1)
        assert files(out) == []
        kubelet.secret = own
        (out / "GO").touch()
        kubelet.start(1)
        kubelet.until_ended(0, 1)
        assert kubelet.codes == {0: [0], 1: [143, 0]}, kubelet.log(0)


def test_two_jobs_of_one_namespace_do_not_meet(hosts: netns.Hosts, out: Path) -> None:
    """Not even if they have one secret, and a name of the second leads to the first, which waits for a pod."""
    (out / "k").mkdir(mode=0o777)
    (out / "k").chmod(0o777)
    others = replace(hosts, hosts=hosts.hosts[2:])
    options = "--hosts 2 --slots 1"
    with job(hosts, out, options, TRAIN) as first, job(others, out / "k", options, TRAIN, "k") as second:
        second.secret = first.secret
        first.start(0)
        until(lambda: str(PORT) in listening(hosts[0].holder), what="the first launcher's port")
        second.know(0, hosts[0].address)
        second.start(1)
        until(lambda: "it did not let this host in: has it the same secret, name" in second.log(1), what="its word")
        second.terminate(1)
        second.until_ended(1)
        (second.folder / "hosts").write_text("127.0.0.1 localhost\n")
        second.start(0, 1)
        first.start(1)
        until(lambda: files(out) == ["0", "1", "k"] and files(out / "k") == ["0", "1"], what="the training")
        (out / "GO").touch()
        (out / "k" / "GO").touch()
        for each in (first, second):
            each.until_ended(0, 1)
            assert [codes[-1] for codes in each.codes.values()] == [0, 0], each.log(0) + each.log(1)


# Of the pod of index 1 alone.
OTHER_VERSION = """
import os
if os.environ.get("JOB_COMPLETION_INDEX") == "1":
    from ciranda.launch import protocol
    protocol.VERSION += 1
"""


def test_a_ciranda_of_another_version_in_a_pod_is_refused_by_name_on_all(hosts: netns.Hosts, out: Path) -> None:
    folder = out / "packages"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(OTHER_VERSION)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    with job(hosts, out, "--hosts 3 --slots 1", TRAIN, PYTHONPATH=path) as kubelet:
        kubelet.start(0, 1, 2)
        kubelet.until_ended(0, 1, 2)
        assert kubelet.codes == {0: [1], 1: [1], 2: [1]}, [kubelet.log(index) for index in range(3)]
        assert kubelet.is_final(1)
        for index in range(3):
            assert re.search(
                r"j-1: its ciranda speaks version \d+ of the protocol, this one \d+", kubelet.log(index)
            ), index
        assert files(out) == ["packages"]
