"""Values and programs of several devices are refused: a rank makes a call once."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import ciranda.jax as hvd

hvd.init()
mesh = Mesh(np.array(jax.devices()), ("x",))
x = jax.device_put(jnp.ones((4, 3)), NamedSharding(mesh, PartitionSpec("x")))
for attempt in (
    lambda: hvd.allreduce(x),
    lambda: jax.jit(hvd.allreduce)(x),
    lambda: jax.pmap(lambda y: hvd.allreduce(y))(jnp.ones((2, 3))),
):
    try:
        print("no error, but", attempt())
    except hvd.errors.InvalidArgumentError as error:
        print("refused:", error)
"""


def test_several_devices_are_refused() -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, check=False, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.count("refused: ") == 3, done.stdout + done.stderr
    assert done.stdout.count("one CPU device") == 1
    assert done.stdout.count("2 devices") == 2
