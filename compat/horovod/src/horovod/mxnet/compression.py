"""`horovod.mxnet.compression`, served by `ciranda.mxnet`."""

from __future__ import annotations

from ciranda.mxnet.compression import Compression, Compressor, FP16Compressor, NoneCompressor

__all__ = [
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
]
