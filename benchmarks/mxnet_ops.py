"""What a collective costs as an operation of MXNet's engine, beside the same calls of NumPy arrays in the same run.

    ciranda run -np 2 python benchmarks/mxnet_ops.py

Prints the time of a push from Python; of so many independent allreduces of 16 bytes; of the gradients of a net, pushed
in a row; of a chain in which each needs the last one; and of a training step of a convolutional net of 3 million
parameters, with the ranks' gradients averaged and without; with `--kvstore` also by MXNet's own `dist_sync`, with one
server. With `--torch`, in an environment that has torch instead of MXNet: the same gradients, started and waited for.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

import numpy as np

import ciranda

SMALL = 2000
CHAIN = 64
GRADIENTS = 160
GRADIENT = 4096  # elements
BATCH = 16


def median_ms(run, repeats: int = 15) -> float:
    """Return the median of what `run` takes, in milliseconds."""
    took = []
    for index in range(repeats + 3):
        ciranda.barrier()
        began = time.perf_counter()
        run()
        if index >= 3:
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3


def waited_for(arrays, what: str, module=ciranda) -> None:
    """Start the calls, then wait for each."""
    handles = [module.allreduce_async(array, op=ciranda.Sum, name=f"{what}.{i}") for i, array in enumerate(arrays)]
    for handle in handles:
        module.synchronize(handle)


def of_torch() -> dict[str, float]:
    """Measure the gradients on torch."""
    import torch

    import ciranda.torch as hvd

    gradients = [torch.ones(GRADIENT) for _ in range(GRADIENTS)]
    arrays = [np.ones(GRADIENT, np.float32) for _ in range(GRADIENTS)]
    return {
        f"{GRADIENTS} gradients of 16 KiB, torch": median_ms(lambda: waited_for(gradients, "torch", hvd)),
        f"{GRADIENTS} gradients of 16 KiB, NumPy": median_ms(lambda: waited_for(arrays, "numpy")),
    }


def start_servers() -> None:
    """Start the scheduler and the server of `dist_sync`, which end with the last worker; say to this process where."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = ciranda.broadcast_object(free.getsockname()[1])
    os.environ |= {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port), "DMLC_ROLE": "worker"}
    os.environ |= {"DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": str(ciranda.size())}
    for role in ("scheduler", "server") if ciranda.rank() == 0 else ():
        subprocess.Popen([sys.executable, "-W", "ignore", "-c", "import mxnet"], env={**os.environ, "DMLC_ROLE": role})


def of_mxnet(with_kvstore: bool) -> dict[str, float]:
    """Measure all on MXNet."""
    import ciranda.mxnet as hvd

    # isort: split
    import mxnet as mx

    small = [mx.nd.ones((4,)) for _ in range(SMALL)]
    small_arrays = [np.ones(4, np.float32) for _ in range(SMALL)]
    gradients = [mx.nd.ones((GRADIENT,)) for _ in range(GRADIENTS)]
    gradient_arrays = [np.ones(GRADIENT, np.float32) for _ in range(GRADIENTS)]
    pushing: list[float] = []

    def push(arrays, what: str) -> None:
        began = time.perf_counter()
        for index, array in enumerate(arrays):
            hvd.allreduce_(array, op=hvd.Sum, name=f"{what}.{index}", priority=-index)
        pushing.append((time.perf_counter() - began) / len(arrays) * 1e3)
        mx.nd.waitall()

    def chain() -> None:
        x = gradients[0]
        for index in range(CHAIN):
            x = hvd.allreduce(x, name=f"chain.{index}")
        x.wait_to_read()

    def numpy_chain() -> None:
        x = gradient_arrays[0]
        for index in range(CHAIN):
            x = ciranda.allreduce(x, name=f"numpy chain.{index}")

    found = {f"{SMALL} independent allreduces of 16 bytes": median_ms(lambda: push(small, "small"))}
    found["one push from Python"] = statistics.median(pushing)
    found[f"{SMALL} independent allreduces of 16 bytes, NumPy"] = median_ms(lambda: waited_for(small_arrays, "numpy"))
    found[f"{GRADIENTS} gradients of 16 KiB"] = median_ms(lambda: push(gradients, "gradient"))
    found[f"{GRADIENTS} gradients of 16 KiB, NumPy"] = median_ms(lambda: waited_for(gradient_arrays, "numpy"))
    found[f"a chain of {CHAIN} of 16 KiB"] = median_ms(chain)
    found[f"a chain of {CHAIN} of 16 KiB, NumPy"] = median_ms(numpy_chain)
    if not with_kvstore:
        return {**found, **steps({})}
    start_servers()
    return {**found, **steps({"kvstore dist_sync": lambda *given: mx.gluon.Trainer(*given, kvstore="dist_sync")})}


def steps(others) -> dict[str, float]:
    """Measure training steps, also by the trainers of others."""
    import mxnet as mx
    from mxnet.gluon import nn

    import ciranda.mxnet as hvd

    images, labels = mx.nd.random.normal(shape=(BATCH, 3, 32, 32)), mx.nd.zeros((BATCH,))
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()

    def step_of(make_trainer):
        net = nn.HybridSequential()
        for channels in (32, 64, 128):
            net.add(nn.Conv2D(channels, 3, padding=1, activation="relu"), nn.MaxPool2D())
        net.add(nn.Flatten(), nn.Dense(1376, activation="relu"), nn.Dense(10))
        net.initialize(mx.init.Xavier())
        net.hybridize(static_alloc=True)
        net(images)
        trainer = make_trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})

        def step() -> None:
            with mx.autograd.record():
                loss = loss_of(net(images), labels)
            loss.backward()
            trainer.step(BATCH)
            mx.nd.waitall()

        n = sum(param.data().size for param in net.collect_params().values())
        return n, step

    trainers = {"averaged": hvd.DistributedTrainer, "local": lambda *given: mx.gluon.Trainer(*given, kvstore=None)}
    made = {name: step_of(make) for name, make in {**trainers, **others}.items()}
    took: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(5):  # in turns: the machine is not the same at all times
        for name, (_, step) in made.items():
            took[name].append(median_ms(step, 8))
    n = made["local"][0] / 1e6
    return {f"a step of {n:.1f} M parameters, {name}": statistics.median(took[name]) for name in made}


def main() -> None:
    """Measure, and print on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--kvstore", action="store_true")
    options = parser.parse_args()
    ciranda.init()
    found = of_torch() if options.torch else of_mxnet(options.kvstore)
    if ciranda.rank() == 0:
        print(f"{ciranda.size()} ranks, milliseconds")
        for name, took in found.items():
            print(f"{name:55} {took:8.3f}")
    ciranda.shutdown()


if __name__ == "__main__":
    main()
