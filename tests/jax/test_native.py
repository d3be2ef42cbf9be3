"""JAX's own collectives by `ciranda run --jax-native`: programs as a user writes them, on real ranks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import netns
import pytest

pytest.importorskip("jaxlib")
pytestmark = [pytest.mark.multiprocess, pytest.mark.filterwarnings("default")]

PROGRAMS = Path(__file__).parent / "native"
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "jax_native.md"
CHECKS = re.findall(r"^def (\w+)\(\) -> None:", (PROGRAMS / "collectives.py").read_text(encoding="utf-8"), re.M)
PYTHON = (sys.executable, "-W", "ignore")  # JAX warns of names that older versions need


def run(np: int, *program: str, options: Sequence[str] = ("--jax-native",)) -> subprocess.CompletedProcess[str]:
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", *options, "-np", str(np), *PYTHON, *program]
    return subprocess.run(launch, check=False, capture_output=True, text=True, timeout=200)


def succeed(np: int, *program: str) -> list[str]:
    """What each rank has printed, without the rank."""
    done = run(np, *program)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.partition(":")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("np", [2, *(pytest.param(np, marks=pytest.mark.slow) for np in (3, 4))])
def test_every_collective_equals_numpy(np: int) -> None:
    printed = succeed(np, str(PROGRAMS / "collectives.py"))
    assert sorted(printed) == sorted(f"checked {check}" for check in CHECKS for _ in range(np))


@pytest.mark.parametrize("np", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_training_by_sharded_jit_equals_one_process(np: int) -> None:
    assert succeed(np, str(PROGRAMS / "training.py")) == [f"equal {np}"] * np


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.ssh
@pytest.mark.parametrize("program", ["training.py", "collectives.py"])
def test_on_several_hosts(program: str) -> None:
    """Whose ranks have neither memory nor an address in common but by the network between them."""
    reason = netns.why_not()
    if reason is not None:
        pytest.skip(f"JAX BETWEEN HOSTS IS NOT TESTED: {reason}")
    with netns.hosts("hostA", "hostB") as hosts:
        launch = [*hosts[0].enter, sys.executable, "-m", "ciranda.launch.cli", "run", "--jax-native"]
        launch += ["--ssh-config", str(hosts.ssh_config), "-np", "4", "-H", "hostA:2,hostB:2", *PYTHON]
        launch += [str(PROGRAMS / program)]
        done = subprocess.run(launch, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = ["equal 4"] if program == "training.py" else [f"checked {check}" for check in CHECKS]
    assert sorted(line.partition(":")[2] for line in done.stdout.splitlines()) == sorted(4 * wanted)


@pytest.mark.parametrize("order", [pytest.param("before", marks=pytest.mark.slow), "after"])
def test_numpy_shares_the_world_from_another_thread(order: str) -> None:
    assert succeed(2, str(PROGRAMS / "beside_numpy.py"), order) == ["shared"] * 2


def test_ciranda_jax_shares_the_world() -> None:
    assert succeed(2, str(PROGRAMS / "beside_ciranda_jax.py")) == ["shared"] * 2


def test_the_doctor_finds_what_it_stands_on() -> None:
    from ciranda._jax_native import describe

    assert "collectives by MPI" in describe()


def test_every_survivor_of_a_killed_rank_raises() -> None:
    done = run(3, str(PROGRAMS / "killed.py"), options=("--jax-native", "--grace", "60"))
    raised = re.findall(r"raised: (.*)", done.stdout)
    assert len(raised) == 2, done.stdout + done.stderr
    for message in raised:
        assert "jax.lax: rank 2" in message
        assert "is gone" in message


@pytest.mark.slow
def test_a_rank_that_ends_does_not_keep_the_others() -> None:
    done = run(2, str(PROGRAMS / "leaving.py"), options=("--jax-native", "--grace", "10"))
    assert "raised UNKNOWN: MPI error" in done.stdout, done.stdout + done.stderr
    assert "has shut down" in done.stdout
    assert done.returncode == 1


def test_another_world_than_jaxs_is_refused() -> None:
    program = """
import os, jax, numpy as np
rank = int(os.environ["CIRANDA_RANK"])
jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], 2, 1 - rank)
from jax.sharding import Mesh, NamedSharding, PartitionSpec
alike = NamedSharding(Mesh(np.array(jax.devices()), ("i",)), PartitionSpec())
over = NamedSharding(alike.mesh, PartitionSpec("i"))
x = jax.make_array_from_callback((2,), over, lambda index: np.ones(1))
try:
    print(np.asarray(jax.jit(lambda x: x.sum(), out_shardings=alike)(x).addressable_data(0)))
except (RuntimeError, ValueError) as error:
    print("refused:", error, flush=True)
"""
    printed = succeed(2, "-c", program)
    assert [line.split(" ")[0] for line in printed] == ["refused:"] * 2, printed
    assert "this is process 1 of 2 for JAX, and rank 0 of 2 for ciranda" in "".join(printed)


def test_without_the_option_nothing_changes() -> None:
    program = 'import os; print([name for name in os.environ if name.startswith(("JAX_", "MPITRAMPOLINE", "OMPI_"))])'
    done = run(1, "-c", program, options=())
    assert done.stdout.strip() == "[0]<stdout>:[]", done.stdout + done.stderr


def test_what_is_not_offered_says_so() -> None:
    program = """
import ctypes, os
library = ctypes.CDLL(os.environ["MPITRAMPOLINE_LIB"])
error = library.MPIABI_Win_create()
text, length = ctypes.create_string_buffer(1024), ctypes.c_int()
assert error != 0 and library.MPIABI_Error_string(error, text, ctypes.byref(length)) == 0
print(text.value.decode()[: length.value])
"""
    printed = succeed(1, "-c", program)
    assert printed[0].startswith("MPI_Win_create is not offered by ciranda")


@pytest.mark.slow
def test_the_guides_program_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n# train\.py\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 1
    (tmp_path / "train.py").write_text(blocks[0], encoding="utf-8")
    printed = succeed(2, str(tmp_path / "train.py"))
    assert len(printed) == 1
    assert printed[0].startswith("loss ")
