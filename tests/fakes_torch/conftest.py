"""The tests of this folder are for a torch without CUDA."""

from __future__ import annotations

import torch_cuda

collect_ignore_glob = ["test_*.py"] if torch_cuda.has_real_cuda() else []
