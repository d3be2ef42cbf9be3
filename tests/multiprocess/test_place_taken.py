"""A program that a rank starts inherits the variables of the rank's place, but is not the rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ciranda

pytestmark = pytest.mark.multiprocess

BEHIND_A_SHELL = ("sh", "-c", '"$@"; exit $?', "sh")
# Prints its place, or what init() says.
CHILD = """
import sys, ciranda
try:
    ciranda.init()
    print("is rank", ciranda.rank(), "of", ciranda.size())
except ciranda.errors.NotSupportedError as error:
    print(error)
"""

# What rank 0 starts while the world is in use, one after the other.
WHILE_IN_USE = """
import multiprocessing, os, subprocess, sys, ciranda

def start(*wrapper, env=None):
    command = [*wrapper, sys.executable, os.environ["CHILD"]]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

def spawned(answers):
    try:
        ciranda.init()
    except ciranda.errors.NotSupportedError as error:
        answers.put(str(error))

if __name__ == "__main__":
    ciranda.init()
    ciranda.barrier()
    if ciranda.rank() == 0:
        me = f"started by rank 0 (process {os.getpid()}), which is in the world itself"
        assert me in start("sh", "-c", '"$@"; exit $?', "sh")
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        worker = context.Process(target=spawned, args=(answers,))
        worker.start()
        assert me in answers.get()
        worker.join()
        alone = start(sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "1", "--no-prefix")
        assert alone == "is rank 0 of 1\\n", alone
    ciranda.barrier()
    env = {name: value for name, value in os.environ.items() if name != "CIRANDA_TAKEN_BY"}
    print("told so", start(env=env), end="")
"""

# Asks for its number, and starts the program that is to be the rank, with what it had in its environment before.
WRAPPER = """
import os, subprocess, sys, ciranda
ciranda.init()
env = dict(os.environ)
number = ciranda.rank()
ciranda.shutdown()
subprocess.run(["sh", "-c", '"$@"; exit $?', "sh", sys.executable, os.environ["CHILD"]], env=env, check=True)
"""


@pytest.fixture
def child(tmp_path: Path) -> Path:
    path = tmp_path / "child.py"
    path.write_text(CHILD)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program place_taken.c."""
    path = tmp_path_factory.mktemp("program") / "place_taken"
    source, library = Path(__file__).with_name("place_taken.c"), Path(ciranda.__file__).parent / "lib"
    flags = ["-Wall", "-Wextra", "-Werror", "-I", ciranda.get_include()]
    linked = [f"-L{library}", "-lciranda", f"-Wl,-rpath,{library}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(path), *linked], check=True)
    return path


def launch_command(*command: object, child: Path) -> list[str]:
    launcher = [sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "2", "--no-prefix"]
    settings = ["--env", f"CHILD={child}", "--stall-warning-seconds", "100"]
    whole = [*launcher, *settings, *BEHIND_A_SHELL, *map(str, command)]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.splitlines())


def launch(tmp_path: Path, child: Path, code: str) -> list[str]:
    (tmp_path / "script.py").write_text(code)
    return launch_command(sys.executable, tmp_path / "script.py", child=child)


def test_a_program_that_a_rank_starts_does_not_take_its_place(tmp_path: Path, child: Path) -> None:
    """Nor does a worker; but a launcher gives it a place of its own, and whoever means it can say so."""
    assert launch(tmp_path, child, WHILE_IN_USE) == ["told so is rank 0 of 2", "told so is rank 1 of 2"]


def test_a_program_takes_the_place_that_a_wrapper_has_left(tmp_path: Path, child: Path) -> None:
    assert launch(tmp_path, child, WRAPPER) == ["is rank 0 of 2", "is rank 1 of 2"]


BOTH = ["is rank 0 of 2", "is rank 1 of 2"]


def test_a_program_in_c_does_not_take_the_place_of_the_rank_that_starts_it(program: Path, child: Path) -> None:
    """Whether either is in C or Python; what stands between them, and before the rank, makes no difference."""
    in_python = f"{sys.executable} {child}"
    commands = f"sh -c '{program}; exit $?'; {in_python}; "
    alone = f"CIRANDA_SIZE=1 CIRANDA_ENGINE=none {program}"
    told = launch_command("env", "MORE=1", program, "while", commands + alone, child=child)
    refused = [line for line in told if "which is in the world itself" in line]
    assert [line for line in told if line not in refused] == ["is rank 0 of 1", *BOTH]
    assert [line.partition(":")[0] for line in refused] == ["ciranda_init", "init()"]
    for line in refused:
        assert "this program was started by rank 0 (process " in line
        assert line.endswith("'env -u CIRANDA_TAKEN_BY COMMAND'")


def test_a_program_in_c_is_refused_by_a_rank_in_python(tmp_path: Path, program: Path, child: Path) -> None:
    code = f"""
import ciranda, os, subprocess, sys
ciranda.init()
if ciranda.rank() == 0:
    subprocess.run([{str(program)!r}], check=True, env=dict(os.environ))
    subprocess.run([sys.executable, "-m", "ciranda.launch.cli", "run", "-np", "1", "--no-prefix", {str(program)!r}])
ciranda.barrier()
ciranda.shutdown()
subprocess.run([{str(program)!r}], check=True, env=dict(os.environ))
"""
    refusal, *others = launch(tmp_path, child, code)
    assert refusal.startswith("ciranda_init: this program was started by rank 0 (process ")
    assert others == ["is rank 0 of 1", *BOTH]


def test_a_program_takes_the_place_that_a_wrapper_in_c_has_left(program: Path, child: Path) -> None:
    assert launch_command(program, "after", f"exec {program}", child=child) == sorted(BOTH * 2)
