"""The doctor: each check finds what is there, and complains when it is not."""

from __future__ import annotations

import io
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from ciranda.doctor import (
    Finding,
    engine,
    examine,
    gpus,
    launcher,
    limits,
    machine,
    network,
    settings,
    shared_memory,
    show,
    software,
    to_json,
)
from ciranda.doctor.examine import CHECKS


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


QUICK = tuple(check for check in CHECKS if check is not engine.two_ranks)


def test_every_check_says_something_and_gives_advice_when_it_complains() -> None:
    for check in QUICK:
        for finding in check():
            assert finding.status in ("ok", "warn", "fail")
            assert finding.name
            assert finding.found
            assert finding.advice or finding.status == "ok", finding


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on() -> None:
    def broken_check() -> Iterator[Finding]:
        raise RuntimeError("boo")
        yield

    findings = examine((broken_check, limits.open_files))
    assert (findings[0].name, findings[0].status) == ("broken check", "fail")
    assert "boo" in findings[0].found
    assert findings[1].name == "open files"


def test_json_and_exit_code_follow_the_findings() -> None:
    good, bad = Finding("a", "ok", "x"), Finding("b", "fail", "y", "do this")
    assert json.loads(to_json([good]))["ok"] is True
    assert json.loads(to_json([good, bad])) == {
        "ok": False,
        "findings": [
            {"name": "a", "status": "ok", "found": "x", "advice": ""},
            {"name": "b", "status": "fail", "found": "y", "advice": "do this"},
        ],
    }


def test_a_full_disk_is_said_in_one_line() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ciranda.launch.cli", "doctor"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "ciranda: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("found", ["plain", "[red]not markup[/red]", "[1]<stdout>:x"])
def test_the_table_shows_what_was_found_literally_with_its_advice(found: str) -> None:
    out = io.StringIO()
    show([Finding("thing", "warn", found, "do this")], Console(file=out, width=100))
    assert found in out.getvalue()
    assert "-> do this" in out.getvalue()
    assert "1 of 1 checks have advice" in out.getvalue()


def test_shared_memory_is_really_written(tmp_path: Path) -> None:
    assert only(shared_memory.shared_memory(str(tmp_path))).status == "ok"
    assert list(tmp_path.iterdir()) == []
    missing = only(shared_memory.shared_memory(str(tmp_path / "missing")))
    assert missing.status == "warn"
    assert "TCP" in missing.advice


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: a full shared memory needs root to mount one")
def test_a_full_shared_memory_is_noticed() -> None:
    code = (
        "from ciranda.doctor.shared_memory import shared_memory\n"
        "(finding,) = shared_memory()\n"
        "print(finding.status, finding.found)\n"
    )
    script = 'mount -t tmpfs -o size=512k tmpfs /dev/shm && exec "$@"'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    if "unshare" in done.stderr:
        pytest.skip(f"NOT TESTED: no mount namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("warn ")
    assert "writing 1 MiB failed: No space left on device" in done.stdout


def test_quotas_of_control_groups_are_found(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert machine.cpu_quota(tmp_path, own) is None
    (tmp_path / "a" / "b" / "cpu.max").write_text("max 100000\n")
    assert machine.cpu_quota(tmp_path, own) is None
    (tmp_path / "a" / "cpu.max").write_text("150000 100000\n")
    assert machine.cpu_quota(tmp_path, own) == 1.5
    (tmp_path / "a" / "b" / "cpu.max").write_text("50000 100000\n")
    assert machine.cpu_quota(tmp_path, own) == 0.5


def test_cores_follow_the_affinity() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        finding = only(machine.cores())
    finally:
        os.sched_setaffinity(0, before)
    assert finding.found.startswith("1 of ")
    assert finding.status == "warn"


def test_a_low_limit_of_open_files_is_noticed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        finding = only(limits.open_files())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert finding.status == "warn"
    assert "ulimit -n" in finding.advice


def test_ports_that_are_taken_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("0.0.0.0", 0)) as holder:
        port = holder.getsockname()[1]
        monkeypatch.setenv("CIRANDA_PORT_RANGE", f"{port}-{port}")
        assert only(network.ports()).status == "fail"
    assert only(network.ports()).status == "ok"
    monkeypatch.setenv("CIRANDA_PORT_RANGE", "nonsense")
    assert only(network.ports()).status == "fail"
    monkeypatch.delenv("CIRANDA_PORT_RANGE")
    assert only(network.ports()).status == "ok"


def test_loopback_is_really_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(network.loopback()).status == "ok"

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert only(network.loopback()).status == "fail"


def test_the_congestion_control_is_what_a_socket_really_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    default = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    finding = only(network.congestion_control())
    assert default in finding.found
    assert finding.status == "ok"
    monkeypatch.setattr(network, "_UNPACED", ("no_such_algorithm",))
    assert only(network.congestion_control()).status == ("warn" if default.startswith("bbr") else "ok")


# What an installation can have in the place of the engine.
BROKEN_ENGINES = {
    "truncated": (b"\x7fELF\x02\x01\x01", "_core.abi3.so", "does not work: ImportError"),
    "missing": (b"", "not_the_engine.txt", "does not work: "),
    "lacking": (b"__version__ = '0'", "_core.py", "does not work: "),
    "crashing": (b"import os, signal; os.kill(os.getpid(), signal.SIGILL)", "_core.py", "crashes: killed by SIGILL"),
}


@pytest.mark.parametrize("kind", BROKEN_ENGINES)
def test_a_broken_engine_is_no_engine(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ciranda

    package = tmp_path / "ciranda"
    package.mkdir()
    (source,) = ciranda.__path__
    for each in Path(source).iterdir():
        if not each.name.startswith("_core"):
            (package / each.name).symlink_to(each)
    content, name, problem = BROKEN_ENGINES[kind]
    (package / name).write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    finding = only(engine.library())
    assert finding.status == "fail"
    assert finding.found.startswith(problem)
    assert "reinstall" in finding.advice
    assert list(engine.simd()) == []


def test_a_working_engine_says_what_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(engine.library()).status == "ok"
    monkeypatch.setenv("CIRANDA_SIMD", "baseline")
    assert only(engine.simd()).found == "baseline"


def test_settings_are_listed_and_what_is_wrong_with_them_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRANDA_NUM_LANES", "2")
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "0")
    finding = only(settings.settings())
    assert finding.status == "ok"
    assert finding.found == "CIRANDA_NUM_LANES=2, HOROVOD_FUSION_THRESHOLD=0"
    monkeypatch.setenv("CIRANDA_NUM_LANES", "many")
    monkeypatch.setenv("CIRANDA_FUSION_TRESHOLD", "1")
    refused, unknown, _ = settings.settings()
    assert refused.status == "fail"
    assert "CIRANDA_NUM_LANES='many'" in refused.found
    assert unknown.status == "warn"
    assert "CIRANDA_FUSION_TRESHOLD" in unknown.found
    assert "CIRANDA_FUSION_THRESHOLD" in unknown.advice


def test_the_launchers_variables_and_what_init_does_by_them_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(launcher.launcher()).found == "none: init() is a world of one here"
    assert list(launcher.allocation()) == []
    monkeypatch.setenv("SM_HOSTS", '["algo-1", "algo-2"]')
    finding = only(launcher.launcher())
    assert finding.status == "warn"
    assert 'SM_HOSTS=["algo-1", "algo-2"] says that this is one of several processes' in finding.found
    monkeypatch.delenv("SM_HOSTS")
    monkeypatch.setenv("PMIX_RANK", "0")
    assert "whether there are others" in only(launcher.launcher()).found
    monkeypatch.delenv("PMIX_RANK")
    salloc = {"JOB_ID": "3", "JOB_NODELIST": "node[0-1]", "NTASKS": "4", "TASKS_PER_NODE": "3,1"}
    for name, value in salloc.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert only(launcher.allocation()).found.startswith("Slurm job 3 with tasks on node0:3, node1:1: 'ciranda run'")
    assert "this process is in none of its steps" in only(launcher.launcher()).found
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    finding = only(launcher.launcher())
    assert finding.status == "ok"
    assert finding.found.startswith("torchrun: rank 0 of 2 (WORLD_SIZE=2, RANK=0, MASTER_ADDR=a, MASTER_PORT=1): ranks")


def test_variables_for_builds_of_horovod_are_said_to_be_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    ignored, given = settings.settings()
    assert (ignored.status, given.found) == ("ok", "none given")
    assert "HOROVOD_GPU_OPERATIONS is set, and ignored" in ignored.found


@pytest.mark.parametrize(
    ("trial", "found"),
    [
        ("print('null')", "no NVIDIA driver (libcuda.so.1): tensors in CPU memory only"),
        ("import os; os.abort()", "the trial ended with SIGABRT: it says nothing"),
        ("raise SystemExit('boo')", "the trial ended with code 1: boo"),
    ],
)
def test_a_broken_driver_of_gpus_ends_no_report(trial: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_TRIAL", trial)
    finding = only(gpus.gpus())
    assert finding.found == found
    assert (finding.status == "ok") == (finding.advice == "")


@pytest.mark.parametrize(
    ("given", "no_kernels", "no_ipc", "found"),
    [
        ({}, "", "", "go by peer among ranks of one host, but for Adasum and weighted averages"),
        ({}, "none for it", "", "are staged in host memory, since a GPU has no kernels"),
        ({"CIRANDA_GPU_WAY": "staged"}, "", "", "are staged in host memory, since CIRANDA_GPU_WAY is staged"),
        ({"CIRANDA_GPU_WAY": "nccl"}, "", "", "go by NCCL if each rank has a GPU of its own, and NCCL reduces; "),
        (
            {"CIRANDA_GPU_WAY": "nccl", "CIRANDA_GPU_REDUCE": "ciranda"},
            "",
            "",
            "go by NCCL if each rank has a GPU of its own, and kernels of Ciranda reduce; ",
        ),
        ({"CIRANDA_SHARED_MEMORY": "0"}, "", "", "are staged in host memory, since CIRANDA_SHARED_MEMORY is off"),
        ({}, "", "refused", "are staged in host memory, since processes cannot read each other's memory on a GPU"),
    ],
)
def test_the_way_of_tensors_on_gpus_is_said(
    given: dict[str, str], no_kernels: str, no_ipc: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = f"import json\nfrom ciranda import _core\ndevices = [['GPU 0', '', {no_kernels!r}]]\n"
    monkeypatch.setattr(gpus, "_TRIAL", trial + "print(json.dumps([12040, devices, _core.effective_settings()]))")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(gpus, "no_ipc", lambda _: no_ipc)
    [way] = [each for each in gpus.gpus() if each.name == "GPU tensors"]
    assert (way.name, way.status) == ("GPU tensors", "ok")
    assert way.found.startswith(found)


def test_a_missing_ssh_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert only(software.ssh_client()).status == "warn"


def test_versions_are_those_of_the_installed_packages() -> None:
    from importlib import metadata

    found = {finding.name: finding for finding in software.python()}
    assert f"numpy {metadata.version('numpy')}" in found["packages"].found


def test_no_framework_is_imported() -> None:
    code = (
        "import sys\n"
        "from ciranda.doctor import software\n"
        "list(software.frameworks())\n"
        "loaded = {'torch', 'tensorflow', 'jax'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=200, check=False).returncode == 0


def test_a_framework_by_another_distributions_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: {"mxnet": ["mxnet-mkl"]})
    monkeypatch.setattr(software, "_version", {"mxnet-mkl": "1.6.0"}.get)
    assert only(software.frameworks()).found == "mxnet-mkl 1.6.0"


@pytest.mark.parametrize("optimization", ["", "2"])
def test_a_wrong_sum_is_seen_whatever_python_leaves_out(optimization: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", optimization)
    wrong = "import ciranda; ciranda.allreduce = lambda values, **_: 2 * values\n"
    said = {engine._ALONE: "a sum is wrong", engine._TRIAL: "rank 0 of 1: the sum begins with [0. 2. 4.]"}
    for program, last_line in said.items():
        done = engine.run_python(["-c", wrong + program], keep=(), seconds=60)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == last_line
