"""The three ways in which Paddle gets the operators: made ahead, just in time, and called by py_func."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import layer_ranks
import operator_ranks
import option_ranks
import pytest
import sharded_ranks
import training_ranks
from ranks import Ranks
from writing import HAS_OLD, HAS_PIR

from ciranda.paddle import _building, _py_op

pytestmark = pytest.mark.multiprocess

SAID = """
from ciranda.doctor import bindings
bindings._SECONDS = 200  # on a busy machine Paddle alone takes a minute
print(bindings._examined("paddle", "ciranda.paddle._plugin"))
"""


def _doctor(environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SAID], check=True, capture_output=True, text=True, timeout=220,
        env={**os.environ, **environment},
    )  # fmt: skip
    return done.stdout


def test_doctor_says_which_is_in_use(tmp_path: Path, environment: dict[str, str]) -> None:
    """Where there is no compiler, and none has been there before, it is py_func."""
    _building.just_in_time()  # which may take longer than doctor waits
    alone = {**environment, "CIRANDA_PADDLE_OPS": "jit"}  # whatever came with the package
    assert "just in time" in _doctor(alone)
    said = _doctor({**alone, "PATH": "/nowhere", "CXX": "", "XDG_CACHE_HOME": str(tmp_path)})
    assert all(part in said for part in ("py_func", "there is no C++ compiler")), said


#: Of which IR programs may be where there is no library.
IS_OLD = [*([True] if HAS_OLD else []), *([pytest.param(False, marks=pytest.mark.slow)] if _py_op.is_there() else [])]


@pytest.mark.parametrize("is_old", IS_OLD)
@pytest.mark.parametrize("builds", [("py_func", "py_func"), ("py_func", "jit")])
def test_py_func(builds: tuple[str, str], is_old: bool, environment: dict[str, str], tmp_path: Path) -> None:
    """Ranks with and without a library meet: names, results and gradients are the same."""
    with Ranks(2, env=environment, env_of=lambda rank: {"CIRANDA_PADDLE_OPS": builds[rank]}) as ranks:
        if builds[0] == builds[1]:  # what has no gradient is refused by py_func when it runs, by a library before
            ranks.run(operator_ranks.results_and_gradients, "old" if is_old else "program")
        ranks.run(operator_ranks.element_types, is_old)
        ranks.run(operator_ranks.in_two_halves, is_old, timeout=60)
        ranks.run(operator_ranks.bad_input, is_old)
        ranks.run(operator_ranks.worlds_that_follow, is_old)
        ranks.run(training_ranks.gradients_transpiled, "clipping", is_old, 2, 1e-4)
        ranks.run(training_ranks.averaged_parameters, is_old, 3)
        ranks.run(option_ranks.adaptive_interval, is_old)
        if is_old:  # Paddle 3 cannot save a program that calls Python ("Unknown Attr")
            ranks.run(layer_ranks.saved_rnn, is_old, str(tmp_path))
        ranks.run(sharded_ranks.trained_in_program, is_old, False)


@pytest.mark.skipif(not HAS_PIR or _py_op.is_there(), reason="this Paddle has no PIR, or one that calls Python")
def test_no_py_func_in_pir(environment: dict[str, str]) -> None:
    with Ranks(1, env={**environment, "CIRANDA_PADDLE_OPS": "py_func"}) as ranks:
        ranks.run(operator_ranks.refused_in_pir)
