"""The current stream in torch's table for DLPack, which a torch without CUDA has no answer for."""

import ctypes

import torch

N_POINTERS_BEFORE = 6  # of DLPackExchangeAPI: the header's version and previous table, and four functions


def _table() -> int | None:
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:  # before torch 2.10
        return None
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, b"dlpack_exchange_api")


def current_work_stream(device: int = 0) -> int:
    """Returns what the table says, for tests."""
    at = _table()
    assert at is not None
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
    function = kind(ctypes.c_void_p.from_address(at + N_POINTERS_BEFORE * ctypes.sizeof(ctypes.c_void_p)).value)
    stream = ctypes.c_void_p()
    assert function(2, device, ctypes.byref(stream)) == 0
    return stream.value or 0


def install(library: ctypes.CDLL) -> None:
    if (at := _table()) is not None:
        place = ctypes.c_void_p.from_address(at + N_POINTERS_BEFORE * ctypes.sizeof(ctypes.c_void_p))
        place.value = ctypes.cast(library.fake_torch_current_work_stream, ctypes.c_void_p).value
