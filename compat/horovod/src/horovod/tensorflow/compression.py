"""`horovod.tensorflow.compression`, served by `ciranda.tensorflow`: what gradients travel as."""

from __future__ import annotations

from ciranda.tensorflow.compression import Compression, Compressor, FP16Compressor, NoneCompressor
