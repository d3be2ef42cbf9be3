"""The tests of this folder are for a torch without CUDA."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch_cuda

collect_ignore_glob = ["test_*.py"] if torch_cuda.has_real_cuda() else []


@pytest.fixture(scope="session")
def kernels_of_gpus() -> None:
    """Skip what needs kernels, without which no call goes by peer, if the package has none."""
    asked = "import json; from ciranda import _core; print(json.dumps(_core.examine_devices()))"
    environment = {**os.environ, **torch_cuda.environment()}
    told = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True)
    if any(why_none for _, _, why_none in json.loads(told.stdout)):
        pytest.skip("the package has no kernels for GPUs: `make .venv/.nvrtc`, and build it again")
