"""`horovodrun`: starts ranks through Ciranda's launcher."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from ciranda.launch.api import chosen_hosts
from ciranda.launch.errors import HostsError, LaunchError
from ciranda.launch.hosts import assign
from ciranda.launch.job import Job, Show
from ciranda.launch.launcher import launch
from ciranda.launch.output import terminal_style
from ciranda.launch.output_dir import OutputDir
from ciranda.launch.processes import open_standard_streams
from ciranda.launch.ssh import SshOptions
from horovod.runner import _check_build, _config_file
from horovod.runner._arguments import NOT_NEEDED, not_needed, parse_args
from horovod.runner._discovery import REMARK, discover
from horovod.runner._tunables import TUNABLES, Value, environment_of

__all__ = ["NOT_NEEDED", "check_build", "is_gloo_used", "parse_args", "run_commandline"]

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


def make_plan(args: argparse.Namespace) -> Plan:
    """Bring everything together: a flag counts more than the file, the file more than the environment.

    Raises:
        LaunchError: the file cannot be used, or a value is out of range.
    """
    plan = Plan(verbose=args.verbose, remarks=not_needed(args, bool(args.host_discovery_script)))
    chosen: dict[str, Value] = {}
    stall_check = None if args.no_stall_check is None else not args.no_stall_check
    if args.config_file is not None:
        config = _config_file.read(args.config_file)
        chosen.update(config.chosen)
        plan.verbose = plan.verbose or bool(config.verbose)
        stall_check = config.stall_check if stall_check is None else stall_check
        plan.remarks += [f"{place} in {args.config_file} (not a setting)" for place in config.unknown]
    chosen.update({t.dest: getattr(args, t.dest) for t in TUNABLES if hasattr(args, t.dest)})
    if stall_check is False:
        chosen["stall_check_warning_time_seconds"] = 0.0
        plan.env["HOROVOD_STALL_CHECK_DISABLE"] = "1"
    env, remarks = environment_of(chosen, _refuse)
    plan.env.update(env)
    plan.remarks += remarks
    plan.start_timeout = start_timeout(args.start_timeout)
    plan.interface = first_interface(args.network_interfaces, plan.remarks)
    return plan


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


def _run(args: argparse.Namespace) -> int:
    plan = make_plan(args)
    hosts, num_proc = args.hosts, args.num_proc
    if args.host_discovery_script is not None:
        if hosts is not None or args.hostfile is not None:
            _refuse("give either --host-discovery-script or hosts (-H, --hostfile), not both")
        hosts, num_proc = discover(
            args.host_discovery_script, args.slots, num_proc, args.min_num_proc, args.max_num_proc
        )
        plan.remarks.append(REMARK)
    slots = assign(chosen_hosts(num_proc, hosts, args.hostfile), num_proc)
    sys.stderr.write(remark_line(plan.remarks))
    sys.stderr.flush()
    job = Job(
        argv=args.command,
        slots=slots,
        env=rank_environment(plan),
        grace_seconds=GRACE_SECONDS,
        start_timeout_seconds=plan.start_timeout,
        network_interface=plan.interface,
    )
    files = OutputDir(Path(args.output_filename), len(slots)) if args.output_filename is not None else None
    with closing(files) if files is not None else nullcontext():
        show = Show(terminal_style(timestamp=args.prefix_output_with_timestamp), files, plan.verbose)
        return launch(job, SshOptions(args.ssh_port, args.ssh_identity_file), show).exit_code


def run_commandline() -> NoReturn:
    """The console script `horovodrun`. Exits as the first rank that failed did."""
    open_standard_streams()
    args = parse_args()
    if args.check_build:
        check_build(args.verbose)
        sys.exit(0)
    try:
        sys.exit(_run(args))
    except (HostsError, LaunchError) as error:
        sys.stderr.write(f"horovodrun: {error}\n")
        sys.exit(getattr(error, "exit_code", 2))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run_commandline()
