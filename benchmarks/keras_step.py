"""A training step of a small Keras model: alone, with Ciranda, and with TensorFlow's MultiWorkerMirroredStrategy.

    python benchmarks/keras_step.py [--ranks 2] [--rounds 3]

The systems run in turns, in fresh processes, on TensorFlow 2.15 (the last whose Keras the strategy trains by fit() on
several processes) and later where it can. A time is that of a step of fit(), the median over the epochs of all rounds;
every process has batches of the same size. Figures of one run belong together: what counts is the ratio, and the
overhead, which is what a step takes longer than alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

SYSTEMS = ("local", "ciranda", "strategy")
STEPS, EPOCHS, BATCH = 100, 6, 64


def _model(keras: Any, hvd: Any | None) -> Any:
    dense = [keras.layers.Dense(512, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((784,)), *dense, keras.layers.Dense(10)])
    optimizer = keras.optimizers.SGD(0.01)
    if hvd is not None:
        optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def measure(system: str, addresses: list[str]) -> None:
    """On a rank: print the milliseconds of a step in each epoch."""
    rank = int(os.environ.get("CIRANDA_RANK", "0"))
    if system == "strategy":
        cluster = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
        os.environ["TF_CONFIG"] = json.dumps(cluster)
    import numpy as np
    import tensorflow as tf

    # Before anything is computed, or TensorFlow refuses it.
    scope = tf.distribute.MultiWorkerMirroredStrategy().scope() if system == "strategy" else contextlib.nullcontext()
    hvd = None
    if system == "ciranda":
        import ciranda.keras as hvd

        hvd.init()
    n_ranks = len(addresses) if system == "strategy" else 1
    rng = np.random.default_rng(rank)
    images = rng.normal(size=(n_ranks * STEPS * BATCH, 784)).astype(np.float32)
    labels = rng.integers(0, 10, len(images))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(n_ranks * BATCH).with_options(options)
    with scope:
        model = _model(tf.keras, hvd)
    times = []
    for _ in range(EPOCHS):
        start = time.perf_counter()
        model.fit(batches, epochs=1, verbose=0)
        times.append((time.perf_counter() - start) / STEPS * 1e3)
    if rank == 0:
        print(json.dumps(times[1:]), flush=True)  # the first traces


def _free_addresses(count: int) -> list[str]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in held]
    for each in held:
        each.close()
    return addresses


def run(system: str, ranks: int) -> list[float]:
    """One job of that system."""
    n = 1 if system == "local" else ranks
    launch = [sys.executable, "-m", "ciranda.launch.cli", "run", "--no-prefix", "-np", str(n)]
    program = [sys.executable, "-W", "ignore", __file__, "--measure", system, *_free_addresses(n)]
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    done = subprocess.run([*launch, *program], check=True, stdout=subprocess.PIPE, text=True, timeout=600, env=env)
    return list(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], options.measure[1:])
        return
    found: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    for number in range(options.rounds):
        for system in SYSTEMS:
            print(f"round {number + 1} of {options.rounds}: {system}", file=sys.stderr, flush=True)
            found[system] += run(system, options.ranks)
    local = statistics.median(found["local"])
    print(f"{'system':10} {'ms a step':>10} {'ratio':>7} {'overhead':>9}")
    for system, times in found.items():
        median = statistics.median(times)
        print(f"{system:10} {median:10.2f} {median / local:7.2f} {median - local:9.2f}")


if __name__ == "__main__":
    main()
