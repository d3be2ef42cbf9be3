"""The key-value space that srun --mpi=pmix serves, by the library of PMIx, where the system has one.

What is used of it has had the same layout since its version 2: https://pmix.github.io/standard. Slurm kills the whole
step when a process that has called PMIx_Init() ends without PMIx_Finalize(), so that the other ranks could not say what
is wrong: the connection is ended as soon as the ranks have met. After that MPI cannot begin in this process.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ciranda.engines.key_value_space import KeyValueSpace
from ciranda.errors import InvalidArgumentError, TimeoutError

_LIBRARY = "libpmix.so.2"  # the name that these versions have
_SUCCESS = 0
_GLOBAL = 3  # pmix_scope_t: for processes on all nodes
_BOOL, _STRING = 1, 3  # pmix_data_type_t
_COLLECT = b"pmix.collect"  # have a fence carry what was put to all nodes

_REMEDY = (
    "Set CIRANDA_HANDOVER_FOLDER to a folder that all nodes share and only you can enter, where the ranks meet instead"
)


class _Process(ctypes.Structure):  # pmix_proc_t
    _fields_ = (("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


class _Content(ctypes.Union):
    _fields_ = (("flag", ctypes.c_bool), ("text", ctypes.c_char_p), ("room", ctypes.c_size_t * 3))


class _Value(ctypes.Structure):  # pmix_value_t
    _fields_ = (("type", ctypes.c_uint16), ("content", _Content))


class _Info(ctypes.Structure):  # pmix_info_t
    _fields_ = (("key", ctypes.c_char * 512), ("flags", ctypes.c_uint32), ("value", _Value))


#: The call that has not returned, with what it uses: nothing can be asked in this process any more.
_stuck: list[tuple[threading.Thread, tuple[Any, ...]]] = []


def is_reached(environ: Mapping[str, str]) -> bool:
    """Whether srun serves this process's own step by PMIx, not one around it, and the library is there."""
    own = f"slurm.pmix.{environ.get('SLURM_JOB_ID')}.{environ.get('SLURM_STEP_ID')}"
    return environ.get("PMIX_NAMESPACE") == own and _library() is not None


@contextmanager
def connected(environ: Mapping[str, str], seconds: float) -> Iterator[Pmix]:
    """The key-value space, to which this process is connected meanwhile. REQUIRES: is_reached(environ)."""
    space = Pmix(environ["PMIX_NAMESPACE"], seconds)
    try:
        yield space
    finally:
        space.finalize()


def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError:
        return None


class Pmix(KeyValueSpace):
    """The key-value space of the tasks of a job step.

    Args:
        namespace: its name, as PMIX_NAMESPACE has it.
        seconds: the longest wait for an answer.

    Raises:
        InvalidArgumentError: it cannot be reached.
        TimeoutError: nothing answers in time.
    """

    def __init__(self, namespace: str, seconds: float) -> None:
        super().__init__("srun", f"PMIX_NAMESPACE={namespace}", seconds)
        library = _library()
        assert library is not None
        self._library = library
        self._library.PMIx_Error_string.restype = ctypes.c_char_p
        self._me = _Process()
        self._ask("PMIx_Init", ctypes.byref(self._me), None, ctypes.c_size_t(0))

    def put(self, key: str, value: str) -> None:
        """As in the base."""
        its_value = _Value(_STRING, _Content(text=value.encode("ascii")))
        self._ask("PMIx_Put", ctypes.c_uint8(_GLOBAL), key.encode("ascii"), ctypes.byref(its_value))

    def get(self, key: str, rank: int) -> str:
        """As in the base."""
        who, found = _Process(self._me.namespace, rank), ctypes.POINTER(_Value)()
        self._ask("PMIx_Get", ctypes.byref(who), key.encode("ascii"), None, ctypes.c_size_t(0), ctypes.byref(found))
        if found.contents.type != _STRING:
            raise InvalidArgumentError(f"{self.words} has for {key} no text, but type {found.contents.type}")
        text: bytes = found.contents.content.text  # never freed: a kilobyte of each rank's
        return text.decode("ascii")

    def fence(self) -> None:
        """As in the base."""
        self._ask("PMIx_Commit")
        collect = _Info(_COLLECT, 0, _Value(_BOOL, _Content(flag=True)))
        self._ask("PMIx_Fence", None, ctypes.c_size_t(0), ctypes.byref(collect), ctypes.c_size_t(1))

    def finalize(self) -> None:
        """End the connection."""
        if not _stuck:
            self._ask("PMIx_Finalize", None, ctypes.c_size_t(0))

    def _ask(self, name: str, *arguments: Any) -> None:
        """Call a function of the library, which may not return."""
        if _stuck:
            raise InvalidArgumentError(
                f"{self.words} cannot be used any more: init() has failed in this process before, while it waited for "
                f"the others; {_REMEDY}"
            )
        statuses: list[int] = []
        function = getattr(self._library, name)
        caller = threading.Thread(target=lambda: statuses.append(function(*arguments)), name=name, daemon=True)
        caller.start()
        try:
            caller.join(self.seconds)
        finally:
            if not statuses:
                _stuck.append((caller, arguments))
        if not statuses:
            raise TimeoutError(f"{self.words} gave no answer to {name}() within {self.seconds:g} s")
        if statuses[0] != _SUCCESS:
            why = self._library.PMIx_Error_string(statuses[0]).decode("ascii", "replace")
            raise InvalidArgumentError(f"{self.words} refused {name}(): {why}. {_REMEDY}")
