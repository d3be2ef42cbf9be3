"""Ranks that meet at torch's store, which lets anybody in: what others find there, and what they can write."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import netns
import pytest

from ciranda.launch.reserved_port import ReservedPort

pytestmark = pytest.mark.multiprocess

FILE, TRUST = "CIRANDA_SECRET_FILE", "CIRANDA_TRUST_TORCH_STORE"


def start(code: str, through: Sequence[str] = (), **env: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CIRANDA_", "HOROVOD_"))}
    command = [*through, sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.Popen(
        command,
        env={**clean, "CIRANDA_START_TIMEOUT": "60", "OMP_NUM_THREADS": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[str, str]]:
    """Output and errors of each, all of which end well."""
    ended = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), ended
    return [(out.strip(), err) for out, err in ended]


# Rank 1 looks at all that the store is told, and at what that names: as its own user, and as another.
LOOK = """
import json, os, ciranda
from datetime import timedelta
from torch.distributed import TCPStore
ciranda.init()
if ciranda.rank() == 1:
    store = TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=60))
    said = store.get("ciranda/0/0/answer/1").decode()
    path = json.loads(said)["secret_at"]
    secret = open(path).read()
    assert len(bytes.fromhex(secret)) == 32
    assert secret not in said
    os.setresuid(65534, 65534, 0)
    try:
        open(path)
    except PermissionError:
        print("refused")
    os.setresuid(0, 0, 0)
ciranda.barrier()
ciranda.shutdown()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: another user's number needs root")
def test_another_user_of_the_host_finds_no_secret_in_the_store() -> None:
    reserved = ReservedPort(range(1))
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserved.port)}
    try:
        _, (said, _) = finish([start(LOOK, RANK=str(rank), **common) for rank in range(2)])
    finally:
        reserved.close()
    assert said == "refused"


# Rank 1 of 2 reads an answer that is not rank 0's, in each case another one.
WRITTEN_BY_OTHERS = """
import json, os, sys
from datetime import timedelta
from torch.distributed import HashStore
from ciranda import errors
from ciranda.launch.shared_file import secret_file
from ciranda.torch.distributed.joining import meet

store = HashStore()
store.set("0/0/claim/0", "")
own = secret_file("5a" * 32)
others = secret_file("a5" * 32)
os.chown(others.path, 65534, 65534)
readable = secret_file("a5" * 32)
os.chmod(readable.path, 0o644)
numbers = dict.fromkeys(("local_rank", "local_size", "cross_rank", "cross_size"), 1)
for where in ({}, {"secret": "a5" * 32}, {"secret_in": "CIRANDA_SECRET_FILE"}, {"secret_at": "/dev/zero"},
              {"secret_at": others.path}, {"secret_at": readable.path}, {"secret_at": f"/proc/{os.getpid()}/fd/999"},
              {"secret_at": own.path}):
    store.set("0/0/answer/1", json.dumps({"store": "h:1", "job": "j", "wire": "none", **numbers, **where}))
    try:
        told = meet(store, 1, 2, timedelta(seconds=60))
    except errors.InvalidArgumentError as error:
        print(str(error).replace(str(os.getpid()), "PID"))
assert open(told.pop("CIRANDA_SECRET_FILE")).read() == "5a" * 32
print(" ".join(told))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: another user's file needs root")
def test_what_others_write_to_the_store_gives_no_secret_and_sets_nothing() -> None:
    [(said, _)] = finish([start(WRITTEN_BY_OTHERS)])
    *refusals, told = said.splitlines()
    assert len(refusals) == 7
    assert all("is not taken from there by this rank" in refusal for refusal in refusals[:4])
    assert all("is no file that only this user can read" in refusal for refusal in refusals[4:6])
    assert "/proc/PID/fd/999, which this rank cannot open (No such file or directory)" in refusals[6]
    numbers = "CIRANDA_LOCAL_RANK CIRANDA_LOCAL_SIZE CIRANDA_CROSS_RANK CIRANDA_CROSS_SIZE"
    assert told == f"CIRANDA_STORE CIRANDA_JOB {numbers} CIRANDA_RANK CIRANDA_SIZE"


# Refused at first, and again if only one rank is told how; then joined in the way that all are told.
BETWEEN_HOSTS = """
import os, sys, warnings, ciranda
from ciranda import errors
name, value = sys.argv[-1].split("=")
for ranks in ([], ["1"], ["0", "1"]):
    if os.environ["RANK"] in ranks:
        os.environ[name] = value
    with warnings.catch_warnings(record=True, action="always") as warned:
        try:
            ciranda.init()
        except errors.InvalidArgumentError as error:
            print(error)
print(ciranda.size(), *[str(each.message) for each in warned])
ciranda.barrier()
ciranda.shutdown()
"""


@pytest.mark.netns
@pytest.mark.ssh
@pytest.mark.parametrize("name", [FILE, TRUST])
def test_between_hosts_the_store_carries_no_secret_unless_all_are_told(
    hosts: netns.Hosts, name: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("5a" * 32)
    value = str(secret) if name == FILE else "1"
    where = {"WORLD_SIZE": "2", "MASTER_ADDR": hosts[0].address, "MASTER_PORT": "29511"}
    code = BETWEEN_HOSTS.replace("sys.argv[-1]", repr(f"{name}={value}"))
    ended = finish([start(code, hosts[rank].enter, RANK=str(rank), **where) for rank in range(2)])
    for rank, (said, _) in enumerate(ended):
        first, second, joined = said.splitlines()
        assert "the ranks are on several machines, and have no secret" in first
        assert f"torch's store at {hosts[0].address}, port 29511 has no authentication" in first
        assert f"set {FILE}=FILE on all ranks; or start the job with 'ciranda run'" in first
        assert f"{TRUST}=1 on all ranks" in first
        assert second == (f"{FILE} is set on some ranks, but not on rank 0" if name == FILE else first)
        size, _, warning = joined.partition(" ")
        assert size == "2"
        assert ("whoever can connect to it can take part" in warning) == (name == TRUST and rank == 0)
