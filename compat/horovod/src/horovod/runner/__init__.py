"""`horovod.run` and `horovodrun`: Ciranda's launcher under Horovod's names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

__all__ = ["run"]

Result = TypeVar("Result")


class _HorovodArgs(argparse.Namespace):
    """What `horovod.runner.launch._run` is asked for, for tools that do so: the arguments of `horovodrun` by name.

    As if no flag was given, but for one rank.
    """

    def __init__(self) -> None:
        from horovod.runner.launch import parse_args

        super().__init__(**vars(parse_args([])))
        self.num_proc = 1


def run(
    func: Callable[..., Result],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: Sequence[str] | str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Result]:
    """Call `func(*args, **kwargs)` on `num_proc` ranks and return their results, in the order of ranks.

    Args:
        func: called once on each rank; it travels by cloudpickle, and so does what it returns.
        args, kwargs: the same for every rank.
        num_proc: the number of ranks; `np` is the older name.
        hosts, hostfile: where they run, as `-H` and `--hostfile` of `horovodrun`; by default on this machine.
        start_timeout: seconds for all hosts to answer and all ranks to find each other.
        ssh_port, ssh_identity_file: how to reach other hosts.
        output_filename: a folder; each rank's output is also written to `rank.N/stdout` and `rank.N/stderr` in it.
        verbose: 1 or more says what is done.
        network_interface, network_interfaces: the interface to use.
        executable: the Python to use, by default this one.
        host_discovery_script: a command that prints a line `host:slots` for each host; asked each second. With it, or
            the fewest or the most ranks, `func` goes on when ranks are lost, if it trains by `hvd.elastic.run`; the
            results are those of the ranks at the end.
        slots: of the hosts that it prints without a number.
        min_num_proc, max_num_proc: the fewest and the most ranks of an elastic job; `min_np` and `max_np` are the older
            names.
        reset_limit, cooldown_range: as `--reset-limit` and `--blacklist-cooldown-range` of `horovodrun`.
        disable_cache, use_gloo, use_mpi, mpi_args: accepted, and of no effect.

    Raises:
        ValueError: `num_proc` or the hosts make no sense.
        RuntimeError: a rank failed, or a host cannot be used.
    """
    from horovod.runner.launch import run_function

    if np is not None and num_proc not in (1, np):
        raise ValueError(f"num_proc={num_proc} and np={np}: give one of them, np is the older name")
    if host_discovery_script is not None and (hosts is not None or hostfile is not None):
        raise ValueError("give either host_discovery_script or hosts (or a hostfile), not both")
    names = network_interfaces or network_interface
    asked = _HorovodArgs()
    asked.run_func = partial(func, *args, **(kwargs or {}))
    asked.num_proc = np or num_proc
    asked.min_num_proc, asked.max_num_proc = min_num_proc or min_np, max_num_proc or max_np
    asked.slots, asked.reset_limit, asked.cooldown_range = slots, reset_limit, cooldown_range
    asked.hosts, asked.hostfile, asked.host_discovery_script = hosts, hostfile, host_discovery_script
    asked.start_timeout = start_timeout
    asked.ssh_port, asked.ssh_identity_file = ssh_port, ssh_identity_file
    asked.disable_cache, asked.use_gloo, asked.use_mpi, asked.mpi_args = disable_cache, use_gloo, use_mpi, mpi_args
    asked.output_filename, asked.verbose, asked.executable = output_filename, verbose, executable
    asked.network_interfaces = names if names is None or isinstance(names, str) else ",".join(names)
    return run_function(asked)
