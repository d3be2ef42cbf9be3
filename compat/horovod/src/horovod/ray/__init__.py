"""`horovod.ray`: `RayExecutor`, served by `ciranda.ray`."""

from horovod.ray.runner import RayExecutor

__all__ = ["RayExecutor"]
