"""`init(comm=...)` with communicators of mpi4py, under every MPI that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mpis import HOW, MPIS, Mpi

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(300)]

# In one job of four processes, one after the other.
ALL = """
import numpy, ciranda
from mpi4py import MPI
from ciranda.errors import InvalidArgumentError, NotSupportedError

world = MPI.COMM_WORLD
half = world.Split(world.rank % 2, -world.rank)  # of two ranks each, in the order against that of the world

def total(**options):
    return ciranda.allreduce(numpy.full(3, float(world.rank)), op=ciranda.Sum, name="x", **options)[0]

def refused(error, text, call):
    try:
        call()
    except error as caught:
        assert text in str(caught), caught
    else:
        raise AssertionError(text)

# The whole world, with the sets of ProcessSet(comm): one of each half.
mine = ciranda.ProcessSet(half)
assert mine.ranks is None
ciranda.init(comm=world, process_sets=[mine])
assert (ciranda.rank(), ciranda.size(), ciranda.local_rank(), ciranda.local_size()) == (world.rank, 4, world.rank, 4)
assert mine.ranks == [world.rank % 2, world.rank % 2 + 2]
assert sorted(ciranda.get_process_set_ids_and_ranks().values()) == [[0, 1, 2, 3], [0, 2], [1, 3]]
assert (total(), total(process_set=mine)) == (6.0, sum(mine.ranks))
refused(NotSupportedError, "give the set to init", lambda: ciranda.add_process_set(ciranda.ProcessSet(half)))
ciranda.init(comm=world)  # is in it already
world.barrier()
ciranda.shutdown()

# Two worlds that know nothing of each other, in their communicators' order; and again, without saying it again.
for given in ({"comm": half}, {}):
    ciranda.init(**given)
    assert (ciranda.rank(), ciranda.size(), ciranda.local_size()) == (half.rank, 2, 2)
    assert half.rank == (0 if world.rank >= 2 else 1)
    assert total() == world.rank % 2 * 2 + 2
    ciranda.shutdown()

# A part of the processes only, and each alone.
part = world.Split(0 if world.rank < 3 else MPI.UNDEFINED)
if world.rank < 3:
    ciranda.init(comm=part)
    assert (ciranda.size(), total()) == (3, 3.0)
    ciranda.shutdown()
else:
    refused(InvalidArgumentError, "this process is in no communicator", lambda: ciranda.init(comm=part))
ciranda.init(comm=MPI.COMM_SELF)
assert (ciranda.rank(), ciranda.size(), total()) == (0, 1, world.rank)
ciranda.shutdown()

bridge = half.Create_intercomm(0, world, world.rank % 2 ^ 1 ^ 2)
refused(NotSupportedError, "inter-communicator", lambda: ciranda.init(comm=bridge))
world.barrier()
"""

OTHERS = """
import os, ciranda
from mpi4py import MPI
try:
    ciranda.init(comm=MPI.COMM_WORLD)
except ciranda.errors.InvalidArgumentError as error:
    print(error)
"""


@pytest.fixture(params=MPIS)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    found = MPIS[request.param]
    if found is None:
        pytest.skip(f"NOT TESTED, communicators of {request.param}: it is not installed ({HOW[request.param]})")
    if not found.has_mpi4py:
        pytest.skip("NOT TESTED, communicators: mpi4py is not installed (make mpi-mpich)")
    return found


def test_a_communicator_is_the_world(mpi: Mpi, tmp_path: Path) -> None:
    """No folder is asked for."""
    env = {**mpi.env, "CIRANDA_HANDOVER_FOLDER": "/proc/none"}
    told = mpi.command(4, mpi.python, "-c", ALL)
    done = subprocess.run(told, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


LISTENS = """
import ciranda
from mpi4py import MPI
from ciranda.engines.communicator import by_communicator

class Listening:
    heard = []
    Get_rank, Get_size = MPI.COMM_WORLD.Get_rank, MPI.COMM_WORLD.Get_size

    def gather(self, value, root):
        self.heard.append(value)
        return MPI.COMM_WORLD.gather(value, root)

    def bcast(self, value, root):
        self.heard.append(MPI.COMM_WORLD.bcast(value, root))
        return self.heard[-1]

told = by_communicator(Listening())
secret = bytes.fromhex(open(told["CIRANDA_SECRET_FILE"]).read())
assert MPI.COMM_WORLD.allgather(secret) == [secret] * 2
assert len(secret) == 32
for value in Listening.heard:
    assert len(value) >= 3
    assert secret not in MPI.pickle.dumps(value) and secret.hex() not in repr(value)
"""


def test_the_secret_can_be_read_in_nothing_that_mpi_sends(mpi: Mpi) -> None:
    told = mpi.command(2, mpi.python, "-c", LISTENS)
    done = subprocess.run(told, env=mpi.env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_communicator_that_contradicts_the_launcher_is_refused(mpi: Mpi) -> None:
    """In `ciranda run` every process is the only one of its MPI; as under an mpirun that is another MPI's."""
    run = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "2", mpi.python, "-c", OTHERS]
    done = subprocess.run(run, env=mpi.env, capture_output=True, text=True, timeout=120, check=False)
    assert "the communicator says rank 0 of 1, but the environment of this process rank 1 of 2" in done.stdout
    other = {"PMI_SIZE": "2", "PMI_RANK": "0", "PMI_FD": "0", "MPI_LOCALNRANKS": "2"}
    if mpi.is_open_mpi:
        single = [mpi.python, "-c", OTHERS]
        done = subprocess.run(
            single, env={**mpi.env, **other}, capture_output=True, text=True, timeout=120, check=False
        )
        assert "MPI says that this process is the only one, but mpiexec: rank 0 of 2" in done.stdout
    assert os.environ.get("PMI_SIZE") is None
