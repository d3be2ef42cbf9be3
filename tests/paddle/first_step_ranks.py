"""Programs on ranks that begin with different parameters: one has loaded its own, or another startup program ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from training_ranks import OPTIMIZERS, written
from writing import running

import ciranda.paddle as hvd

#: Each makes a program distributed: by its optimizer, or when it is complete.
WAYS: dict[str, Callable[[], Any]] = {
    "gradients": hvd.GradAllReduce,
    "averages": lambda: hvd.LocalSGD(k_steps=2, average_state=True),
    "differences": lambda: hvd.LocalSGD(k_steps=2, differences=True),
    "optimizer": lambda: None,
}


def _made(way: str, is_old: bool, distributed: tuple[str, ...] = ()) -> Any:
    if way == "optimizer":
        return written(lambda: hvd.DistributedOptimizer(OPTIMIZERS["momentum"](), distributed=distributed), is_old)
    transpiler = WAYS[way]()
    transpiler.distributed = frozenset(distributed)
    return written(OPTIMIZERS["momentum"], is_old, transpiler.transpile)


def _feed() -> dict[str, Any]:
    return {"x": np.ones((4, 6), np.float32), "y": np.zeros((4, 2), np.float32)}


def _steps(exe: Any, made: Any, n_steps: int) -> str:
    """Run the program; return the first error."""
    main, _, _, loss = made
    for _ in range(n_steps):
        try:
            with hvd.ciranda_errors():
                exe.run(main, _feed(), [loss])
        except hvd.HorovodInternalError as error:
            return str(error)
    return ""


def _values(names: list[str]) -> list[Any]:
    scope = paddle.static.global_scope()
    return [np.array(scope.find_var(name).get_tensor()) for name in names]


def loaded_by_one_rank(way: str, is_old: bool) -> tuple[str, bool]:
    """Return the error, and whether it came before a parameter changed; then go on in the way that it tells."""
    made = _made(way, is_old)
    main, startup, names, _ = made
    with running(main) as exe:
        exe.run(startup)
        mine = _values(names)
        mine[2] += hvd.rank()
        paddle.static.global_scope().find_var(names[2]).get_tensor().set(mine[2], paddle.CPUPlace())
        problem = _steps(exe, made, 2)
        is_as_before = all(np.array_equal(*both) for both in zip(mine, _values(names), strict=True))
        hvd.broadcast_parameters(main.state_dict(), root_rank=0)
        hvd.check_consistency(main.state_dict())
        assert _steps(exe, made, 3) == ""
        everyones = hvd.allgather_object(_values(names))
    if way in ("gradients", "optimizer"):  # the others are between two averages
        assert all(np.array_equal(*both) for both in zip(everyones[0], everyones[-1], strict=True))
    return problem, is_as_before


def not_compared(is_old: bool) -> None:
    """What is each rank's own; and programs that do not train."""
    made = _made("gradients", is_old, ("linear_0.w_0", "linear_1.b_0"))
    main, startup, _, loss = made
    with running(main) as exe:
        exe.run(startup)
        scope = paddle.static.global_scope()
        for name in ("linear_0.w_0", "linear_1.b_0"):
            (value,) = _values([name])
            scope.find_var(name).get_tensor().set(value + hvd.rank(), paddle.CPUPlace())
        assert _steps(exe, made, 2) == ""
        if is_old and hvd.rank() == 0:  # which evaluates alone
            exe.run(main.clone(for_test=True), _feed(), [loss.name])


def joined_before_the_first_step(is_old: bool) -> None:
    """Rank 1 has no batches in the first epoch; it meets the others in the second, and compares nothing with them."""
    made = _made("gradients", is_old)
    with running(made[0]) as exe:
        exe.run(made[1])
        assert _steps(exe, made, 3 if hvd.rank() == 0 else 0) == ""
        hvd.join()
        assert _steps(exe, made, 2) == ""


def in_new_worlds(is_old: bool) -> list[str]:
    made = _made("gradients", is_old)
    problems = []
    with running(made[0]) as exe:
        exe.run(made[1])
        for shift in (0, hvd.rank()):
            hvd.shutdown()
            hvd.init()
            for name in made[2]:
                value = np.full(_values([name])[0].shape, 0.1 + shift, np.float32)
                paddle.static.global_scope().find_var(name).get_tensor().set(value, paddle.CPUPlace())
            problems.append(_steps(exe, made, 2))
    return problems
