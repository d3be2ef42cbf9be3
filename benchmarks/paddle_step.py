"""A training step of an MLP with PaddlePaddle: alone, with Ciranda over 1, 2 and 4 rings, and over Paddle's own gloo.

    MKL_ENABLE_INSTRUCTIONS=AVX2 ciranda run --no-prefix -np 2 python benchmarks/paddle_step.py

In one run, in turns: programs, of the IR that this Paddle writes, and dygraph. Paddle's gloo combines gradients in
dygraph only (DataParallel); its operators of programs have no CPU kernels. Alone, all ranks step at once, each by
itself. The ratio is that to the step alone of the same kind.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from measuring import interleave

import ciranda.paddle as hvd

import paddle  # isort: skip (the oldest version needs it so)

Step = Callable[[], object]
BATCH, WIDTHS = 64, (784, 1024, 1024, 10)


def _model() -> Any:
    layers: list[Any] = []
    for n_in, n_out in pairwise(WIDTHS):
        layers += [paddle.nn.Linear(n_in, n_out), paddle.nn.ReLU()]
    return paddle.nn.Sequential(*layers[:-1])


def _batch() -> tuple[Any, Any]:
    rng = np.random.default_rng(hvd.rank())
    return rng.normal(size=(BATCH, WIDTHS[0])).astype(np.float32), rng.integers(0, 10, BATCH)


def program_step(nrings: int) -> Step:
    """A run of a program; of one that is not rewritten with 0 rings."""
    paddle.enable_static()
    try:
        main, startup = paddle.static.Program(), paddle.static.Program()
        with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, startup):
            x = paddle.static.data("x", [None, WIDTHS[0]], "float32")
            y = paddle.static.data("y", [None], "int64")
            loss = paddle.nn.functional.cross_entropy(_model()(x), y)
            paddle.optimizer.SGD(0.01).minimize(loss, startup)
        if nrings:
            hvd.GradAllReduce(nrings).transpile(startup, main)
        executor, scope = paddle.static.Executor(paddle.CPUPlace()), paddle.static.Scope()
        with paddle.static.scope_guard(scope):
            executor.run(startup)
    finally:
        paddle.disable_static()
    feed = dict(zip(("x", "y"), _batch(), strict=True))

    def step() -> None:
        paddle.enable_static()
        with paddle.static.scope_guard(scope):
            executor.run(main, feed, [loss])
        paddle.disable_static()

    return step


def dygraph_step(wrap: Callable[[Any, Any], tuple[Any, Any]]) -> Step:
    """A step of dygraph; `wrap` makes of model and optimizer such as combine gradients."""
    model = _model()
    model, optimizer = wrap(model, paddle.optimizer.SGD(0.01, parameters=model.parameters()))
    x, y = (paddle.to_tensor(each) for each in _batch())

    def step() -> None:
        paddle.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.clear_grad()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    hvd.init()
    paddle.distributed.init_parallel_env()
    calls: dict[str, Step] = {"program": program_step(0)}
    calls |= {f"program, {rings} rings": program_step(rings) for rings in (1, 2, 4)}
    calls["dygraph"] = dygraph_step(lambda model, optimizer: (model, optimizer))
    calls["dygraph, wrapped"] = dygraph_step(lambda model, optimizer: (model, hvd.DistributedOptimizer(optimizer)))
    if hvd.size() > 1:
        calls["dygraph, gloo"] = dygraph_step(lambda model, optimizer: (paddle.DataParallel(model), optimizer))
    timings = interleave(calls, "paddle", args.blocks, args.steps, warm_up=2)
    if hvd.rank() == 0:
        print(f"Paddle {paddle.__version__}, {hvd.size()} ranks")
        print(f"{'':20} {'ms':>8} {'least':>8} {'ratio':>7}")
        for name, timing in timings.items():
            ratio = timing.median / timings[name.split(",")[0]].median
            print(f"{name:20} {timing.median:8.2f} {timing.min:8.2f} {ratio:7.2f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
