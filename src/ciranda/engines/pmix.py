"""The key-value space that srun --mpi=pmix serves, by the library of PMIx, where the system has one.

What is used of it has had the same layout since its version 2: https://pmix.github.io/standard. Slurm kills the whole
step when a process that has called PMIx_Init() ends without PMIx_Finalize(), so that the other ranks could not say what
is wrong: the connection is ended as soon as the ranks have met, or have waited in vain. After that MPI cannot begin in
this process: once all processes of a node have ended theirs, Slurm's daemon there serves what they put, but does not
say any more who they are.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ciranda.engines.key_value_space import KeyValueSpace
from ciranda.errors import InvalidArgumentError, TimeoutError

_LIBRARY = "libpmix.so.2"  # the name that these versions have
_SUCCESS = 0
_GLOBAL = 3  # pmix_scope_t: for processes on all nodes
_BOOL, _STRING = 1, 3  # pmix_data_type_t
_COLLECT = b"pmix.collect"  # have a fence carry what was put to all nodes
_IMMEDIATE = b"pmix.immediate"  # do not wait for what the node has not been told

_AFTER_FAILURE_SECONDS = 5.0  # for an answer, once the time for others is over
_GAVE_UP = "gave-up"

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


#: Calls that have not returned, with what they use: this process cannot begin again.
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
    except BaseException:
        with suppress(InvalidArgumentError, TimeoutError):
            space.finalize()
        raise
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

    Attributes:
        is_first: always: what a program before has told the node is forgotten when the node's processes have met.

    Raises:
        InvalidArgumentError: it cannot be reached, or a program has waited in vain for others before.
        TimeoutError: nothing answers in time.
    """

    is_first = True

    def __init__(self, namespace: str, seconds: float) -> None:
        super().__init__("srun", f"PMIX_NAMESPACE={namespace}", seconds)
        self._refuse_if(bool(_stuck))
        library = _library()
        assert library is not None
        self._library = library
        self._library.PMIx_Error_string.restype = ctypes.c_char_p
        self._me = _Process()
        self._ask("PMIx_Init", ctypes.byref(self._me), None, ctypes.c_size_t(0))
        try:
            self._refuse_if(self.is_told(_GAVE_UP, self._me.rank))
        except BaseException:
            self.finalize()
            raise

    def put(self, key: str, value: str) -> None:
        """As in the base."""
        its_value = _Value(_STRING, _Content(text=value.encode("ascii")))
        self._ask("PMIx_Put", ctypes.c_uint8(_GLOBAL), key.encode("ascii"), ctypes.byref(its_value))

    def get(self, key: str, rank: int) -> str:
        """As in the base."""
        status, value = self._get(key, rank)
        self._require("PMIx_Get", status)
        if value.type != _STRING:
            raise InvalidArgumentError(f"{self.words} has for {key} no text, but type {value.type}")
        text: bytes = value.content.text  # never freed: a kilobyte of each rank's
        return text.decode("ascii")

    def fence(self) -> None:
        """As in the base. Later programs of this process's task are refused if it was in vain."""
        self._ask("PMIx_Commit")
        collect = _flag(_COLLECT)
        try:
            self._ask("PMIx_Fence", None, ctypes.c_size_t(0), ctypes.byref(collect), ctypes.c_size_t(1))
        except TimeoutError:
            self.seconds = _AFTER_FAILURE_SECONDS
            self.tell_node(_GAVE_UP, self._me.rank)
            raise

    def tell_node(self, key: str, rank: int) -> None:
        """Have the other tasks on this node know of `key` of this rank, the caller's, without a fence."""
        self.put(f"ciranda-{key}-{rank}", "1")
        self._ask("PMIx_Commit")

    def is_told(self, key: str, rank: int) -> bool:
        """Whether this rank, of this node, has told of `key`. May be called after a fence that did not end in time."""
        status, _ = self._get(f"ciranda-{key}-{rank}", rank, _flag(_IMMEDIATE))
        return status == _SUCCESS

    def finalize(self) -> None:
        """End the connection."""
        self._ask("PMIx_Finalize", None, ctypes.c_size_t(0))

    def _refuse_if(self, has_failed: bool) -> None:
        if has_failed:
            raise InvalidArgumentError(
                f"{self.words} cannot be used any more: init() has failed in this task before, while it waited for the "
                f"others. {_REMEDY}"
            )

    def _get(self, key: str, rank: int, *how: _Info) -> tuple[int, _Value]:
        who, found, given = _Process(self._me.namespace, rank), ctypes.POINTER(_Value)(), (_Info * len(how))(*how)
        status = self._call("PMIx_Get", ctypes.byref(who), key.encode("ascii"), given, ctypes.c_size_t(len(how)),
                            ctypes.byref(found))  # fmt: skip
        return status, found.contents if status == _SUCCESS else _Value()

    def _ask(self, name: str, *arguments: Any) -> None:
        self._require(name, self._call(name, *arguments))

    def _require(self, name: str, status: int) -> None:
        if status != _SUCCESS:
            why = self._library.PMIx_Error_string(status).decode("ascii", "replace")
            raise InvalidArgumentError(f"{self.words} refused {name}(): {why}. {_REMEDY}")

    def _call(self, name: str, *arguments: Any) -> int:
        """Call a function of the library, which may not return; its status."""
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
        return statuses[0]


def _flag(key: bytes) -> _Info:
    return _Info(key, 0, _Value(_BOOL, _Content(flag=True)))
