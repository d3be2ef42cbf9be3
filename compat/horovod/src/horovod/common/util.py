"""`horovod.common.util`: helpers that scripts and test suites import."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from itertools import pairwise
from typing import Protocol, TypeVar

import ciranda
from horovod.common.exceptions import get_version_mismatch_message

Item = TypeVar("Item")

#: By this name tools import it.
_cache = cache

#: Name of a part of Horovod -> module of Ciranda that serves it, and the framework that it needs.
FRAMEWORKS = {
    "torch": ("ciranda.torch", "torch"),
    "tensorflow": ("ciranda.tensorflow", "tensorflow"),
    "keras": ("ciranda.keras", "keras"),
    "mxnet": ("ciranda.mxnet", "mxnet"),
}


def get_ext_suffix() -> str:
    """The end of the file name of an extension module of this Python."""
    return importlib.machinery.EXTENSION_SUFFIXES[0]


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Where Horovod would have the extension module `args[-1]`, in the folders `args[:-1]` beside the file `pkg_path`.

    There is no such file: Ciranda has one engine for all frameworks.
    """
    if not args:
        raise ValueError("get_extension_full_path() needs the name of an extension module")
    *folders, name = args
    return os.path.join(os.path.dirname(pkg_path), *folders, name + get_ext_suffix())


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether Ciranda serves the framework `ext_base_name` ("torch", "tensorflow" ...) and it is installed."""
    served_by, framework = FRAMEWORKS.get(ext_base_name, ("", ""))
    missing = [name for name in (served_by, framework) if not name or not _is_there(name)]
    if missing and verbose:
        sys.stderr.write(f"{ext_base_name}: there is no {' and no '.join(missing) or 'such framework'}\n")
    return not missing


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Does nothing: Ciranda has one engine for all frameworks, and nothing is compiled for one of them."""


@cache
def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework `ext_base_name` sees a GPU. Only torch is asked."""
    if ext_base_name != "torch" or not extension_available("torch", verbose):
        return False
    import torch

    return torch.cuda.is_available()


def mpi_built(verbose: bool = False) -> bool:
    """Whether there is MPI; see `ciranda.mpi_built`, and so on for all that follow."""
    return bool(ciranda.mpi_built())


def gloo_built(verbose: bool = False) -> bool:
    """Whether collectives work on the CPU without MPI."""
    return bool(ciranda.gloo_built())


def nccl_built(verbose: bool = False) -> bool:
    """Whether collectives can run over NCCL."""
    return bool(ciranda.nccl_built())


def ddl_built(verbose: bool = False) -> bool:
    """Whether there is DDL."""
    return bool(ciranda.ddl_built())


def ccl_built(verbose: bool = False) -> bool:
    """Whether there is oneCCL."""
    return bool(ciranda.ccl_built())


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Within the block, environment variables have these values; None removes one. Restored afterwards."""
    before = {name: os.environ.get(name) for name in kwargs}
    _set_all(kwargs)
    try:
        yield
    finally:
        _set_all(before)


def _set_all(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class _ReduceOps(Protocol):
    @property
    def Average(self) -> int: ...  # noqa: N802
    @property
    def Sum(self) -> int: ...  # noqa: N802


def get_average_backwards_compatibility_fun(reduce_ops: _ReduceOps) -> Callable[[int | None, bool | None], int]:
    """A function of `op` and the older argument `average` that returns the reduction which they ask for.

    Both given, it raises ValueError; `average` given, it warns with DeprecationWarning; neither, it is Average.
    """

    def choose(op: int | None, average: bool | None) -> int:
        if average is None:
            return reduce_ops.Average if op is None else op
        if op is not None:
            raise ValueError("give either op or average, not both; average is the older form")
        warnings.warn("the argument `average` is deprecated: use op=Average or op=Sum", DeprecationWarning, 2)
        return reduce_ops.Average if average else reduce_ops.Sum

    return choose


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether `num_rank` is 1, 2, 4, 8 ..."""
    return num_rank > 0 and num_rank.bit_count() == 1


def split_list(l: Sequence[Item], n: int) -> list[Sequence[Item]]:  # noqa: E741 (the interface's name)
    """Cut `l` into `n` runs of neighbours, whose lengths differ by at most 1, the longer ones first."""
    size, n_longer = divmod(len(l), n)
    starts = [index * size + min(index, n_longer) for index in range(n + 1)]
    return [l[start:end] for start, end in pairwise(starts)]


def check_installed_version(name: str, version: str, exception: BaseException | None = None) -> None:
    """Warn if the installed distribution `name` has another version than `version`.

    Raises:
        ImportError: so it is, and `exception` is what came of it: that becomes its cause.
    """
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return
    if installed == version:
        return
    text = get_version_mismatch_message(name, version, installed)
    if exception is not None:
        raise ImportError(text) from exception
    warnings.warn(text, stacklevel=2)


def is_iterable(x: object) -> bool:
    """Whether `x` can be iterated over."""
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


@cache
def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether version `ver` is `target` or newer. `target` is two or three numbers: "1.9", "2.1.0".

    Raises:
        ValueError: `target` is anything else.
    """
    if not re.fullmatch(r"\d+(\.\d+){1,2}", target):
        raise ValueError(f"{target!r} is not a version of two or three numbers, as in '2.1.0'")
    return _numbers(ver) >= _numbers(target)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+){0,2}", version)
    numbers = [int(part) for part in found.group().split(".")] if found else []
    return (*numbers, 0, 0, 0)[:3]
