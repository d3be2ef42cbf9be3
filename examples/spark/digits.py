"""Trains on handwritten digits in the tasks of Spark, in two ways, and prints the parameters' sha256 of each.

    python examples/spark/digits.py [NUMBER OF RANKS]

It starts a Spark of its own here, or uses the master that `spark-submit --master` gives. `ciranda.spark.run` starts
ranks in barrier tasks. Spark's own TorchDistributor starts them by torchrun; torch.distributed gets this backend.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import cloudpickle
from pyspark import cloudpickle as sparks_cloudpickle
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

import ciranda.spark

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import digits_task
from digits_task import train_here

N_RANKS = int(sys.argv[1]) if len(sys.argv) > 1 else 4


def train_by_distributor() -> list[str]:
    """What TorchDistributor runs on each rank; it returns what rank 0 returns."""
    import torch.distributed as dist

    import ciranda.torch.distributed  # noqa: F401 (the backend)

    dist.init_process_group("ciranda")
    told: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(told, train_here())
    dist.destroy_process_group()
    return told


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("digits")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not by spark-submit
        builder = builder.master(f"local[{N_RANKS}]")
    spark = builder.getOrCreate()
    for pickler in (cloudpickle, sparks_cloudpickle):
        pickler.register_pickle_by_value(digits_task)  # which is only here
    results = {"run": ciranda.spark.run(train_here, np=N_RANKS)}
    distributor = TorchDistributor(num_processes=N_RANKS, local_mode=False, use_gpu=False)
    results["TorchDistributor"] = distributor.run(train_by_distributor)
    for way, told in results.items():
        assert len(set(told)) == 1, f"{way}: the ranks have different parameters: {told}"
        print(f"{way}: {len(told)} ranks, sha256 {told[0]}", flush=True)
    spark.stop()
    assert len({told[0] for told in results.values()}) == 1


if __name__ == "__main__":
    main()
