"""`horovod.spark`: `run`, served by `ciranda.spark`."""

from horovod.spark.runner import run, run_elastic

__all__ = ["run", "run_elastic"]
