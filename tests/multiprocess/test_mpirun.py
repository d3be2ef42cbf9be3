"""Open MPI's mpirun starts the ranks, which meet by files: the real one, where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(300)]

WHO = """
import os, numpy, ciranda
ciranda.init()
rank, size = ciranda.rank(), ciranda.size()
total = ciranda.allreduce(numpy.arange(4.0) * (rank + 1), op=ciranda.Sum, name="x")
assert (total == numpy.arange(4.0) * (size * (size + 1) / 2)).all()
with open(f"{os.environ['OUT']}/{rank}.{os.getpid()}", "w") as file:
    print(rank, size, ciranda.local_rank(), ciranda.local_size(), file=file)
ciranda.shutdown()
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    if shutil.which("ompi_info") is None:
        pytest.skip("NOT TESTED, mpirun: Open MPI is not installed (tools/install-deps.sh mpi)")
    (tmp_path / "said").mkdir()
    (tmp_path / "who.py").write_text(WHO)
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("CIRANDA_", "SLURM_"))}
    as_root = {f"{of}_ALLOW_RUN_AS_ROOT{more}": "1" for of in ("OMPI", "PRTE") for more in ("", "_CONFIRM")}
    places = {
        "OUT": str(tmp_path / "said"),
        "WHO": str(tmp_path / "who.py"),
        "PY": sys.executable,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    return {**mine, **as_root, **places, "OMP_NUM_THREADS": "1", "CIRANDA_START_TIMEOUT": "60"}


def command(np: int, *rank: str) -> list[str]:
    return ["mpirun", "--oversubscribe", "-np", str(np), *rank]


def said(env: dict[str, str]) -> list[str]:
    """What the ranks have written, and what they have left where they met: nothing."""
    assert not [each for each in Path(env["XDG_CACHE_HOME"]).rglob("*") if each.name not in ("ciranda", "handover")]
    return sorted(file.read_text().strip() for file in Path(env["OUT"]).iterdir())


def test_its_processes_are_the_ranks_also_of_two_jobs_at_once(env: dict[str, str]) -> None:
    jobs = [subprocess.Popen(command(np, sys.executable, env["WHO"]), env=env) for np in (3, 2)]
    assert [job.wait(120) for job in jobs] == [0, 0]
    numbers = [[int(word) for word in line.split()] for line in said(env)]
    for size in (2, 3):
        ranks, sizes, local_ranks, local_sizes = zip(*[each for each in numbers if each[1] == size], strict=True)
        assert ranks == tuple(range(size))
        assert sorted(local_ranks) == list(ranks)  # mpirun's: version 5 numbers them by where they are bound
        assert sizes == local_sizes == (size,) * size


def test_commands_of_one_job_meet_one_after_the_other(env: dict[str, str]) -> None:
    both = '"$PY" "$WHO" && "$PY" "$WHO"'
    assert subprocess.run(command(2, "sh", "-c", both), env=env, timeout=120, check=False).returncode == 0
    assert [line.partition(" ")[0] for line in said(env)] == ["0", "0", "1", "1"]


def test_a_rank_that_does_not_come_is_named(env: dict[str, str]) -> None:
    code = "import os, ciranda; os.environ['OMPI_COMM_WORLD_RANK'] == '1' or ciranda.init()"
    told = command(2, sys.executable, "-c", code)
    soon = {**env, "CIRANDA_START_TIMEOUT": "3"}
    ended = subprocess.run(told, env=soon, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode != 0
    assert "init() of rank 0 of 2: rank 1 of 2 did not come to" in ended.stderr


def test_a_process_of_one_is_alone(env: dict[str, str]) -> None:
    assert subprocess.run(command(1, sys.executable, env["WHO"]), env=env, timeout=120, check=False).returncode == 0
    assert said(env) == ["0 1 0 1"]
