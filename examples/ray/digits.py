"""Trains on handwritten digits on a cluster of Ray, in three ways, and prints the parameters' sha256 of each.

    python examples/ray/digits.py

It starts a Ray of its own here; with RAY_ADDRESS it uses that cluster. `ciranda.ray.run` and `Executor` start the ranks
as actors of Ray. Ray's own TorchTrainer starts workers, which `init()` joins.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

import ciranda
import ciranda.ray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import digits_task
from digits_task import train_here

N_RANKS = 4


def by_trainer() -> list[str]:
    """The same by Ray's TorchTrainer, whose workers leave their results in a folder."""
    with tempfile.TemporaryDirectory() as folder:

        def loop() -> None:
            told = train_here()
            Path(folder, f"{ciranda.rank()}").write_text(told, encoding="utf-8")

        TorchTrainer(
            loop,
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=N_RANKS, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(storage_path=folder, name="digits"),
        ).fit()
        return [Path(folder, str(rank)).read_text(encoding="utf-8") for rank in range(N_RANKS)]


def main() -> None:
    if "RAY_ADDRESS" in os.environ:
        ray.init()
    else:
        ray.init(
            "local", num_cpus=N_RANKS + 1, object_store_memory=100 << 20, include_dashboard=False, log_to_driver=False
        )
    ray.cloudpickle.register_pickle_by_value(digits_task)  # which is only here
    results = {"run": ciranda.ray.run(train_here, np=N_RANKS)}
    with ciranda.ray.Executor(np=N_RANKS) as executor:
        results["Executor"] = executor.run(train_here)
    results["TorchTrainer"] = by_trainer()
    for way, told in results.items():
        assert len(set(told)) == 1, f"{way}: the ranks have different parameters: {told}"
        print(f"{way}: {len(told)} ranks, sha256 {told[0]}", flush=True)
    assert len({told[0] for told in results.values()}) == 1


if __name__ == "__main__":
    main()
