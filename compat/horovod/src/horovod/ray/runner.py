"""`RayExecutor`: `ciranda.ray.Executor` by Horovod's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

try:
    import ray
except ImportError as missing:
    raise ImportError(f"horovod.ray needs Ray, which cannot be imported: {missing}", name="ray") from None

from ciranda.ray import Executor

Result = TypeVar("Result")


@dataclass
class MiniSettings:
    """What `RayExecutor.create_settings()` returns."""

    timeout_s: float = 30
    placement_group_timeout_s: float = 100
    nics: Sequence[str] | str | None = None

    @property
    def start_timeout(self) -> float:
        """Seconds for Ray to place and start all ranks."""
        return self.timeout_s + self.placement_group_timeout_s


class RayExecutor:
    """Ranks that are actors of Ray, which run functions one after another. `ray.init()` is called before."""

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = 100,
        nics: Sequence[str] | str | None = None,
    ) -> MiniSettings:
        """Return what the constructor takes.

        Args:
            timeout_s, placement_group_timeout_s: together the seconds for Ray to place and start all ranks.
            ssh_identity_file, ssh_str: accepted, and of no effect: Ray starts the ranks.
            nics: the interface to use, or several.
        """
        return MiniSettings(timeout_s, placement_group_timeout_s, nics)

    def __init__(
        self,
        settings: MiniSettings | None = None,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: list[int] | None = None,
        elastic_timeout: int = 600,
        override_discovery: bool = True,
    ) -> None:
        """Start nothing yet: see start().

        Args:
            settings: those of create_settings().
            num_workers: the number of ranks, wherever Ray has room for them; or
            num_hosts, num_workers_per_host: the number of nodes, and of ranks on each.
            cpus_per_worker: what Ray reserves for each rank.
            use_gpu, gpus_per_worker: whether it reserves GPUs, and how many for each rank, by default 1.
            use_current_placement_group: whether to use the placement group that the caller is in, if it is in one.
            min_workers, max_workers: refused: ranks neither come nor go.
            reset_limit, cooldown_range, elastic_timeout, override_discovery: accepted, and of no effect without those.

        Raises:
            ValueError: the numbers make no sense, or are those of an elastic job.
        """
        if min_workers is not None or max_workers is not None:
            raise ValueError("RayExecutor: min_workers and max_workers are not served: give num_workers")
        if (num_workers is None) == (num_hosts is None):
            raise ValueError("RayExecutor: give either num_workers, or num_hosts and num_workers_per_host")
        if gpus_per_worker is not None and (not use_gpu or gpus_per_worker < 1):
            raise ValueError(f"RayExecutor: gpus_per_worker={gpus_per_worker}: give 1 or more, with use_gpu=True")
        settings = settings or MiniSettings()
        names = settings.nics
        interface = names if names is None or isinstance(names, str) else ",".join(names)
        current = ray.util.get_current_placement_group() if use_current_placement_group else None
        self._executor = Executor(
            num_workers if num_hosts is None else num_hosts * num_workers_per_host,
            hosts=num_hosts,
            cpus_per_worker=cpus_per_worker,
            gpus_per_worker=(gpus_per_worker or 1) if use_gpu else 0,
            placement="PACK" if current is None else current,
            env={} if interface is None else {"CIRANDA_INTERFACE": interface},
            start_timeout=settings.start_timeout,
        )

    @property
    def num_workers(self) -> int:
        """The number of ranks."""
        return self._executor.size

    def start(
        self,
        executable_cls: type | None = None,
        executable_args: list[Any] | None = None,
        executable_kwargs: dict[str, Any] | None = None,
        extra_env_vars: Mapping[str, str] | None = None,
    ) -> None:
        """Start the ranks, each with an `executable_cls(*executable_args, **executable_kwargs)` if that is given."""
        self._executor.start(executable_cls, executable_args, executable_kwargs, extra_env_vars)

    def execute(self, fn: Callable[[Any], Result], callbacks: list[Callable[..., Any]] | None = None) -> list[Result]:
        """Call `fn` with each rank's instance of `executable_cls`; the results, in the order of ranks."""
        _refuse(callbacks)
        return self._executor.execute(fn)

    def run(
        self,
        fn: Callable[..., Result],
        args: list[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        callbacks: list[Callable[..., Any]] | None = None,
    ) -> list[Result]:
        """Call `fn(*args, **kwargs)` on all ranks; the results, in the order of ranks.

        Raises:
            RuntimeError: it raised on a rank, whose traceback is the message; or a rank has ended.
        """
        _refuse(callbacks)
        return self._executor.run(fn, args, kwargs)

    def run_remote(
        self, fn: Callable[..., Any], args: list[Any] | None = None, kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """As run(), but return Ray's references to the results at once."""
        return self._executor.run_remote(fn, args, kwargs)

    def execute_single(self, fn: Callable[[Any], Result]) -> Result:
        """As execute(), but on rank 0 only; its result."""
        return self._executor.execute_single(fn)

    def shutdown(self) -> None:
        """End the ranks."""
        self._executor.shutdown()


def _refuse(callbacks: list[Callable[..., Any]] | None) -> None:
    if callbacks:
        raise ValueError("RayExecutor: callbacks are not served: what ranks print is shown")
