"""`horovodrun`: starts ranks through Ciranda's launcher."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ciranda.launch import api
from ciranda.launch.api import RunOptions, chosen_hosts
from ciranda.launch.elastic import ElasticJob
from ciranda.launch.errors import HostsError, LaunchError
from ciranda.launch.failure import RankFailure
from ciranda.launch.hosts import Slot, assign
from ciranda.launch.job import Job, Outcome, Show
from ciranda.launch.launcher import launch
from ciranda.launch.output import terminal_style
from ciranda.launch.output_dir import OutputDir
from ciranda.launch.processes import heed_signals, open_standard_streams
from ciranda.launch.ssh import SshOptions
from horovod.runner import _check_build, _mpirun
from horovod.runner._arguments import NOT_NEEDED, make_parser, not_needed, parse_args
from horovod.runner._elastic import is_elastic, job_and_slots
from horovod.runner._tunables import chosen_in, environment_of, refuse

__all__ = ["NOT_NEEDED", "check_build", "is_gloo_used", "parse_args", "run_commandline", "run_controller"]

# Horovod gives ranks this long from SIGTERM to SIGKILL; scripts save their state in it.
GRACE_SECONDS = 5.0
DEFAULT_START_TIMEOUT = 30.0


@dataclass
class Plan:
    """What the command line, the configuration file and the environment ask for together."""

    env: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    start_timeout: float = DEFAULT_START_TIMEOUT
    interface: str | None = None
    verbose: bool = False


def check_build(verbose: bool) -> None:
    """Print what is there. `verbose` changes nothing: it is the whole truth either way."""
    print(_check_build.report())


def is_gloo_used(use_gloo: bool | None = None, use_mpi: bool | None = None, use_jsrun: bool | None = None) -> bool:
    """True: whatever is asked for, Ciranda stands where Gloo would."""
    return True


def run_controller(
    use_gloo: bool | None,
    gloo_run: Callable[[], object],
    use_mpi: bool | None,
    mpi_run: Callable[[], object],
    use_jsrun: bool | None,
    js_run: Callable[[], object],
    verbosity: int | None,
) -> None:
    """Call the function of the controller that is asked for; `gloo_run` if none is."""
    if use_mpi and not use_gloo:
        mpi_run()
    elif use_jsrun and not use_gloo:
        js_run()
    else:
        gloo_run()


def make_plan(args: Any, by_mpirun: bool = False) -> Plan:
    """Bring everything together: a flag counts more than the file, the file more than the environment.

    Args:
        args: what `parse_args()` returns, or a `horovod.runner._HorovodArgs`.
        by_mpirun: whether an MPI's mpirun starts the ranks.

    Raises:
        LaunchError: a value is out of range.
    """
    plan = Plan(verbose=bool(args.verbose), remarks=not_needed(args, by_mpirun))
    plan.remarks += [f"{place} (not a setting)" for place in args.unknown_settings]
    chosen = chosen_in(args)
    if args.no_stall_check:
        chosen["stall_check_warning_time_seconds"] = 0.0
        plan.env["HOROVOD_STALL_CHECK_DISABLE"] = "1"
    env, remarks = environment_of(chosen, refuse)
    plan.env.update(env)
    plan.remarks += remarks
    plan.start_timeout = start_timeout(args.start_timeout)
    plan.interface = first_interface(_interfaces(args), plan.remarks)
    return plan


def _interfaces(args: Any) -> str | None:
    """As one text; tools set `nics`, a set or a text, instead."""
    names = args.network_interfaces or args.nics or None
    return names if names is None or isinstance(names, str) else ",".join(sorted(names))


def _refuse(text: str) -> NoReturn:
    raise LaunchError(text, exit_code=2)


def start_timeout(asked: float | None) -> float:
    """Seconds for all to come: as asked, else HOROVOD_START_TIMEOUT, else 30."""
    if asked is None:
        text = os.environ.get("HOROVOD_START_TIMEOUT", str(DEFAULT_START_TIMEOUT))
        try:
            asked = float(text)
        except ValueError:
            _refuse(f"HOROVOD_START_TIMEOUT={text!r} is not a number of seconds")
    if asked <= 0:
        _refuse(f"--start-timeout {asked:g}: must be more than 0")
    return asked


def first_interface(names: str | None, remarks: list[str]) -> str | None:
    """The first of several interfaces, with a remark about the others."""
    if names is None:
        return None
    first, *others = [name.strip() for name in names.split(",")]
    if others:
        remarks.append(f"{', '.join(others)} of the network interfaces (one is used, {first})")
    return first


def remark_line(remarks: list[str]) -> str:
    """All remarks as one line; empty if there is none."""
    return f"horovodrun: no effect with Ciranda: {'; '.join(remarks)}\n" if remarks else ""


def rank_environment(plan: Plan) -> dict[str, str]:
    """What is set for every rank."""
    env = {**plan.env, "CIRANDA_START_TIMEOUT": f"{plan.start_timeout:g}"}
    if plan.interface is not None:
        env["CIRANDA_INTERFACE"] = plan.interface
    return env


def _where(args: Any) -> tuple[ElasticJob | None, list[Slot]]:
    """The elastic job, if it is one, and where its ranks are started."""
    if is_elastic(args):
        return job_and_slots(args, getattr(args, "stall_check_shutdown_time_seconds", None))
    hosts = chosen_hosts(args.num_proc, args.hosts, args.hostfile, getattr(args, "per_host", None))
    return None, assign(hosts, args.num_proc)


def _say_remarks(plan: Plan) -> None:
    sys.stderr.write(remark_line(plan.remarks))
    sys.stderr.flush()


def run_command(args: Any, env: Mapping[str, str] | None = None) -> Outcome:
    """Run `args.command` on every rank, whose environment `env` is added to. Says itself what failed."""
    plan = make_plan(args)
    elastic, slots = _where(args)
    _say_remarks(plan)
    job = Job(
        argv=list(args.command),
        slots=slots,
        env={**(env or {}), **rank_environment(plan)},
        grace_seconds=GRACE_SECONDS,
        start_timeout_seconds=plan.start_timeout,
        network_interface=plan.interface,
        elastic=elastic,
    )
    files = OutputDir(Path(args.output_filename), len(slots)) if args.output_filename is not None else None
    with closing(files) if files is not None else nullcontext():
        style = terminal_style(timestamp=bool(args.prefix_output_with_timestamp))
        outcome = launch(job, SshOptions(args.ssh_port, args.ssh_identity_file), Show(style, files, plan.verbose))
    if outcome.failure is not None:
        sys.stderr.write(what_horovod_says(outcome.failure) + "\n")
    return outcome


def run_by_mpirun(args: Any) -> NoReturn:
    """Become the mpirun on the PATH, which runs `args.command` on every rank.

    Raises:
        LaunchError, HostsError: there is none; it cannot do what is asked for; the hosts make no sense.
    """
    _mpirun.refuse_options(args)
    flavour = _mpirun.find()
    plan = make_plan(args, by_mpirun=True)
    hosts = chosen_hosts(args.num_proc, args.hosts, args.hostfile, args.per_host)
    slots = assign(hosts, args.num_proc)
    ssh = [word for flag, value in (("-p", args.ssh_port), ("-i", args.ssh_identity_file)) if value is not None
           for word in (flag, str(value))]  # fmt: skip
    env = rank_environment(plan)
    asked = _mpirun.Asked(args.command, len(slots), hosts, {**os.environ, **env}, args.mpi_args, args.binding_args, ssh)
    _say_remarks(plan)
    words = _mpirun.words_of(flavour, asked)
    if plan.verbose:
        sys.stderr.write(f"horovodrun: {shlex.join(words)}\n")
    _mpirun.become(words, env)


def run_function(args: Any) -> list[Any]:
    """Call `args.run_func()` on every rank; return the results. Raises LaunchError if a rank failed."""
    plan = make_plan(args)
    elastic = _where(args)[0] if is_elastic(args) else None
    _say_remarks(plan)
    options = RunOptions(
        env=rank_environment(plan),
        output_dir=args.output_filename,
        start_timeout=plan.start_timeout,
        network_interface=plan.interface,
        python=args.executable or sys.executable,
        ssh=SshOptions(args.ssh_port, args.ssh_identity_file),
        verbose=plan.verbose,
        elastic=elastic,
    )
    try:
        return api.run(args.run_func, (), None, args.num_proc, args.hosts, args.hostfile, options)
    except LaunchError as error:
        if error.failure is None:
            raise
        text = f"{what_horovod_says(error.failure)}\n{error}"
        raise LaunchError(text, error.exit_code, error.failure) from None


def what_horovod_says(failure: RankFailure) -> str:
    """What programs and people look for in the output of a job that failed."""
    return (
        "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be "
        f"terminated. The first process to do so was:\nProcess name: {failure.rank}\nExit code: {failure.exit_code}"
    )


def _run(args: Any) -> list[Any] | None:
    """Run what `args` asks for, which are of `parse_args()` or a `horovod.runner._HorovodArgs`.

    Returns:
        The results of `args.run_func`, in the order of ranks; None for a command.

    Raises:
        LaunchError: (a RuntimeError) a rank failed, or a host cannot be used.
    """
    if args.run_func is not None:
        return run_function(args)
    run_or_raise(args)
    return None


def run_or_raise(args: Any, env: Mapping[str, str] | None = None) -> None:
    """As `run_command()`, but raises LaunchError where that returns a failure."""
    outcome = run_command(args, env)
    if outcome.interrupted_by is not None:
        raise KeyboardInterrupt
    if outcome.exit_code != 0:
        said = outcome.message or "the job failed"
        text = said if outcome.failure is None else f"{what_horovod_says(outcome.failure)}\n{said}"
        raise LaunchError(text, outcome.exit_code, outcome.failure)


def run_commandline() -> NoReturn:
    """The console script `horovodrun`. Exits as the first rank that failed did."""
    open_standard_streams()
    heed_signals()
    try:
        args = parse_args()
        if args.check_build:
            check_build(args.verbose)
            sys.exit(0)
        if not args.command:
            make_parser().error("no command to run: write for example horovodrun -np 2 python train.py")
        if args.use_mpi:
            run_by_mpirun(args)
        sys.exit(run_command(args).exit_code)
    except (HostsError, LaunchError) as error:
        sys.stderr.write(f"horovodrun: {error}\n")
        sys.exit(getattr(error, "exit_code", 2))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run_commandline()
