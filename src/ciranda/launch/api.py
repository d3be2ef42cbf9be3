"""``run``: a Python function on many processes, from Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from ciranda.engines import slurm
from ciranda.launch import call
from ciranda.launch.elastic import ElasticJob
from ciranda.launch.errors import LaunchError
from ciranda.launch.hosts import Host, Slot, assign, checked_size, parse_hostfile, parse_hosts
from ciranda.launch.job import Job, Show, default_binding
from ciranda.launch.launcher import launch
from ciranda.launch.output import ScreenStyle
from ciranda.launch.output_dir import OutputDir
from ciranda.launch.processes import open_standard_streams
from ciranda.launch.sent_function import packed
from ciranda.launch.ssh import SshOptions
from ciranda.launch.store import StoreFactory, engine_store

Result = TypeVar("Result")


@dataclass(frozen=True)
class RunOptions:
    """The options of ``run``, except the function and the hosts.

    Attributes:
        env: variables to set for every rank.
        output_dir: also write each rank's output to ``output_dir/rank.N/stdout`` and ``stderr``.
        start_timeout: seconds for all hosts to answer, and for the ranks to find each other.
        network_interface: the interface to use on every host; several by comma are used together.
        port_range: "low-high", the only ports to listen on.
        bind_to: "core" gives each rank its share of its host's cores, "numa" those of a NUMA node, "none" lets it run
            on any; else CIRANDA_BIND_TO.
        python: the Python to use, by default this one.
        elastic: go on when ranks are lost, as `ciranda run --elastic`; the results are those of the last world's ranks.
        jax_native: route JAX's own collectives through the ranks' world.
        ssh: the ssh command and its options.
        prefix: prefix each line of output with ``[rank]<stream>:``.
        verbose: print each step.
        store_factory: starts the rendezvous store.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    output_dir: str | Path | None = None
    start_timeout: float = 30.0
    network_interface: str | None = None
    port_range: str | None = None
    bind_to: Literal["core", "numa", "none"] | None = None
    jax_native: bool = False
    elastic: ElasticJob | None = None
    python: str = field(default_factory=lambda: sys.executable)
    ssh: SshOptions = field(default_factory=SshOptions)
    prefix: bool = True
    verbose: bool = False
    store_factory: StoreFactory = engine_store


def chosen_hosts(
    np: int | None, hosts: str | None, hostfile: str | Path | None, per_host: int | None = None
) -> list[Host]:
    """The requested hosts, with ``per_host`` slots each if that is given.

    By default the nodes of the allocation of Slurm that this process is in, with a slot for each task; outside of one
    this machine with ``np`` slots.

    Raises:
        HostsError, LaunchError: the combination is invalid.
    """
    if per_host is not None and np is not None:
        raise LaunchError(f"give either -np {np} or --nproc-per-node {per_host}, not both", exit_code=2)
    if hosts is None and hostfile is None and (found := slurm.allocation(os.environ)) is not None:
        return found.hosts(np, per_host)
    if per_host is not None:
        named = [Host("localhost", 1)] if hosts is None and hostfile is None else _named_hosts(hosts, hostfile)
        return [Host(host.name, checked_size(per_host)) for host in named]
    if hosts is None and hostfile is None:
        if np is None and (n_tasks := slurm.number_of_tasks(os.environ)) > 1:
            raise LaunchError(
                f"srun has started this command {n_tasks} times: write 'ciranda run COMMAND' without srun, or 'srun "
                "COMMAND' without ciranda run, where init() joins. With -np N each of these is a job of its own"
            )
        if np is None:
            raise LaunchError("say how many processes to start: -np N, or name hosts with -H")
        return [Host("localhost", checked_size(np))]
    return _named_hosts(hosts, hostfile)


def _named_hosts(hosts: str | None, hostfile: str | Path | None) -> list[Host]:
    if hosts is not None and hostfile is not None:
        raise LaunchError("give either hosts (-H) or a host file (--hostfile), not both")
    if hosts is not None:
        return parse_hosts(hosts)
    assert hostfile is not None
    try:
        text = Path(hostfile).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"cannot read the host file {hostfile}: {error}") from None
    return parse_hostfile(text, str(hostfile))


def job_of(options: RunOptions, argv: list[str], slots: list[Slot]) -> Job:
    """The job that runs ``argv`` on these slots."""
    env = {**options.env, "CIRANDA_START_TIMEOUT": str(options.start_timeout)}
    if options.network_interface is not None:
        env["CIRANDA_INTERFACE"] = options.network_interface
    if options.port_range is not None:
        env["CIRANDA_PORT_RANGE"] = options.port_range
    return Job(
        argv=argv,
        slots=slots,
        env=env,
        start_timeout_seconds=options.start_timeout,
        network_interface=options.network_interface,
        port_range=options.port_range,
        bind_to=options.bind_to or default_binding(),
        jax_native=options.jax_native,
        elastic=options.elastic,
        python=options.python,
    )


def run(
    func: Callable[..., Result],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    np: int | None = None,
    hosts: str | None = None,
    hostfile: str | Path | None = None,
    options: RunOptions | None = None,
) -> list[Result]:
    """Call ``func(*args, **kwargs)`` on ``np`` ranks and return their results, in rank order.

    The function is sent by cloudpickle, so it may be a lambda or defined in a notebook. Output of the ranks appears on
    this process's stdout and stderr, with the rank as prefix.

    Args:
        func: called once on each rank; its result must be picklable.
        args: positional arguments, the same for every rank.
        kwargs: keyword arguments, the same for every rank.
        np: the number of ranks; None for every slot of the hosts.
        hosts: as ``-H``: ``"hostA:2,hostB:2"``. Without hosts all ranks run on this machine, or on the nodes of the
            allocation of Slurm that this process is in.
        hostfile: a file with lines ``host slots=N`` instead.
        options: everything else.

    Raises:
        HostsError: the hosts or ``np`` are invalid.
        LaunchError: a host cannot be used, or a rank failed; ``exit_code`` is that rank's.
        KeyboardInterrupt: after SIGINT; all ranks have ended.
    """
    import cloudpickle

    open_standard_streams()
    options = options or RunOptions()
    slots = _slots(options.elastic, np, hosts, hostfile)
    job = job_of(options, [options.ssh.remote_python or options.python, "-m", call.__name__], slots)
    job.blobs = {call.PAYLOAD: packed(func, args, kwargs)}
    job.want_results = True
    files = OutputDir(Path(options.output_dir), len(slots)) if options.output_dir is not None else None
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        outcome = launch(
            job,
            options.ssh,
            Show(ScreenStyle(prefix=options.prefix), files, options.verbose, report=False),
            store_factory=options.store_factory,
        )
    finally:
        if files is not None:
            files.close()
    if outcome.interrupted_by is not None:
        raise KeyboardInterrupt
    if outcome.exit_code != 0:
        raise LaunchError(outcome.message or "the job failed", outcome.exit_code, outcome.failure)
    ranks = outcome.ranks or [slot.rank for slot in slots]
    missing = [rank for rank in ranks if rank not in outcome.results]
    if missing:
        raise LaunchError(f"rank {missing[0]} ended without a result: the function must return, not exit")
    return [cloudpickle.loads(b"".join(outcome.results.pop(rank))) for rank in ranks]


def _slots(elastic: ElasticJob | None, np: int | None, hosts: str | None, hostfile: str | Path | None) -> list[Slot]:
    """Where ranks are started at first."""
    if elastic is None:
        return assign(chosen_hosts(np, hosts, hostfile), np)
    if np not in (None, elastic.start):
        raise LaunchError(f"np={np}, but the elastic job starts with {elastic.start} ranks: leave np out", exit_code=2)
    if elastic.finder is not None:
        return elastic.first_slots()
    return assign(chosen_hosts(elastic.most, hosts, hostfile), elastic.most)
