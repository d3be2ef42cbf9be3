"""Frameworks of Horovod that Ciranda does not serve: who imports their modules is told so in one line."""

from __future__ import annotations

from typing import NoReturn


def refuse(module: str) -> NoReturn:
    """Raise ImportError for `module`, saying what there is instead."""
    raise ImportError(
        f"{module} is not available: this module `horovod` is Ciranda's, which serves torch (import horovod.torch), "
        "TensorFlow, Keras, MXNet, and NumPy (import ciranda). Run this script in an environment with the distribution "
        "horovod instead of ciranda-horovod",
        name=module,
    )
