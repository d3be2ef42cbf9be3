"""`horovodrun --check-build`: what is there and what is not, as it is."""

from __future__ import annotations

from horovod._names import HOROVOD_VERSION
from horovod.common import util


def report() -> str:
    """What is printed."""
    import ciranda

    frameworks = [
        ("TensorFlow", util.extension_available("tensorflow")),
        ("PyTorch", util.extension_available("torch")),
        ("Keras", util.extension_available("keras")),
        ("MXNet", util.extension_available("mxnet")),
        ("NumPy", True),
    ]
    controllers = [
        ("MPI", util.mpi_built()),
        ("Gloo", False),
        ("Ciranda (in place of either: --gloo and --mpi both mean this)", _engine_loads()),
    ]
    operations = [
        ("NCCL", util.nccl_built()),
        ("DDL", util.ddl_built()),
        ("CCL", util.ccl_built()),
        ("MPI", util.mpi_built()),
        ("Gloo", False),
        ("Ciranda (shared memory, TCP)", _engine_loads()),
    ]
    parts = [f"Horovod {HOROVOD_VERSION}: Ciranda {ciranda.__version__} serves its interface", ""]
    for title, rows in (
        ("Available Frameworks", frameworks),
        ("Available Controllers", controllers),
        ("Available Tensor Operations", operations),
    ):
        parts += [f"{title}:", *(f"    [{'X' if there else ' '}] {name}" for name, there in rows), ""]
    return "\n".join(parts)


def _engine_loads() -> bool:
    try:
        from ciranda import _core
    except ImportError:
        return False
    return bool(_core.COLLECTIVES)
