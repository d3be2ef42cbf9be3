"""The command line of `horovodrun`: every flag of Horovod's."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from ciranda.launch.num_proc import HINT, NUM_PROC, PER_HOST, is_other_name
from horovod._names import HOROVOD_VERSION
from horovod.runner import _config_file
from horovod.runner._elastic import is_elastic
from horovod.runner._tunables import LOG_LEVELS, TUNABLES, Tunable, chosen_in, environment_of, refuse

_ELASTIC = "the job is not elastic: give --min-np, --max-np or --host-discovery-script"

#: Flags that change nothing with Ciranda, by the name of the parsed argument, and why.
NOT_NEEDED = {
    "disable_cache": ("--disable-cache", "nothing is cached between jobs"),
    "use_mpi": ("--mpi", "MPI is not used: only the command horovodrun starts ranks through it"),
    "use_jsrun": ("--jsrun", "jsrun is not used, Ciranda starts and connects the ranks"),
    "mpi_args": ("--mpi-args", "MPI is not used without --mpi"),
    "tcp_flag": ("--tcp", "MPI is not used"),
    "binding_args": ("--binding-args", "MPI is not used without --mpi"),
    "slots": ("--slots-per-host", "hosts are not discovered"),
    "elastic_timeout": ("--elastic-timeout", _ELASTIC),
    "reset_limit": ("--reset-limit", _ELASTIC),
    "cooldown_range": ("--blacklist-cooldown-range", _ELASTIC),
}

_TITLES = {
    "params": "tuning",
    "autotune": "autotuning",
    "timeline": "timeline",
    "stall_check": "ranks that do not come",
    "library_options": "libraries",
    "logging": "logging",
}


class _Parser(argparse.ArgumentParser):
    """A parser that tells who names the number of ranks as another launcher does what it is called here."""

    def error(self, message: str) -> NoReturn:
        """End the process with exit code 2."""
        is_about_ranks = any(is_other_name(word.partition("=")[0]) for word in message.split())
        super().error(f"{message}: {HINT}" if is_about_ranks else message)


def make_parser() -> argparse.ArgumentParser:
    """The parser. What is not given is None, or False where a flag has no value."""
    parser = _Parser(
        prog="horovodrun",
        description="Run a command on several processes, as Horovod's command of that name does; by Ciranda.",
        epilog="example: horovodrun -np 4 -H hostA:2,hostB:2 python train.py",
    )
    parser.add_argument("-v", "--version", action="version", version=HOROVOD_VERSION)
    _add_job(parser)
    _add_tunables(parser)
    _add_elastic(parser.add_argument_group("elastic jobs"))
    _add_hosts(parser.add_argument_group("hosts"))
    controller = parser.add_argument_group("who starts the ranks").add_mutually_exclusive_group()
    controller.add_argument("--gloo", action="store_true", dest="use_gloo", help="Ciranda's launcher, as by default")
    controller.add_argument("--mpi", action="store_true", dest="use_mpi", help="the mpirun on the PATH")
    controller.add_argument("--jsrun", action="store_true", dest="use_jsrun", help="accepted")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what each rank runs")
    return parser


def _add_job(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(*NUM_PROC, type=int, dest="num_proc", metavar="N", help="number of ranks; by default every slot")
    add(*PER_HOST, type=int, dest="per_host", metavar="N", help="number of ranks on each host, instead")
    add("-cb", "--check-build", action="store_true", help="say what is there, and leave")
    add("--disable-cache", action="store_true", help="accepted")
    add("--start-timeout", type=float, metavar="SECONDS", help="for all hosts and ranks to come (30)")
    add("--network-interfaces", metavar="NAME,...", help="network interfaces to use; the first is")
    add("--network-interface", dest="network_interfaces", metavar="NAME", help=argparse.SUPPRESS)
    add("--output-filename", metavar="DIR", help="also write output to DIR/rank.N/stdout and stderr")
    add("--verbose", action="store_true", help="say what is done")
    add("--config-file", metavar="FILE", help="YAML file with settings; flags given here count more")
    add("-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true", help="time before each line")


def _add_tunables(parser: argparse.ArgumentParser) -> None:
    for section, title in _TITLES.items():
        group = parser.add_argument_group(title)
        for tunable in TUNABLES:
            if tunable.section == section:
                _add_tunable(group, tunable)
        if section == "stall_check":
            group.add_argument("--stall-check", action="store_false", dest="no_stall_check", default=None)
            group.add_argument("--no-stall-check", action="store_true", default=None, help="never name such ranks")
        if section == "library_options":
            group.add_argument("--mpi-args", help="further arguments of mpirun, with --mpi")
            group.add_argument("--tcp", action="store_true", dest="tcp_flag", help="accepted")
            group.add_argument("--binding-args", help="its arguments that bind ranks to cores, with --mpi")


def _add_tunable(group: argparse._ArgumentGroup, tunable: Tunable) -> None:
    flag, help_text = f"--{tunable.flag}", tunable.help.replace("%", "%%")
    dest = tunable.dest
    if tunable.kind is bool:
        group.add_argument(flag, action="store_true", default=None, help=help_text)
    elif tunable.variable == "LOG_LEVEL":
        group.add_argument(flag, choices=LOG_LEVELS, type=str.upper, help=help_text)
    else:
        group.add_argument(flag, type=tunable.kind, metavar="VALUE", help=help_text)
    if tunable.negation is not None:
        group.add_argument(
            f"--{tunable.negation}", action="store_false", dest=dest, default=None, help=f"not: {help_text}"
        )
    if tunable.old_flags is not None:
        for old_flag, action in zip(tunable.old_flags, ("store_true", "store_false"), strict=True):
            group.add_argument(f"--{old_flag}", action=action, dest=dest, default=None, help=argparse.SUPPRESS)


def _add_elastic(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--min-np", "--min-num-proc", type=int, dest="min_num_proc", metavar="N", help="fewest ranks; go on without "
        "those that are lost")  # fmt: skip
    add(
        "--max-np",
        "--max-num-proc",
        type=int,
        dest="max_num_proc",
        metavar="N",
        help="most ranks; by default all slots",
    )
    add(
        "--slots-per-host", "--slots", type=int, dest="slots", metavar="N", help="slots of hosts found without a number"
    )
    add("--elastic-timeout", type=int, metavar="SECONDS", help="for enough ranks to come (600)")
    add("--reset-limit", type=int, metavar="N", help="how often a world may follow another")
    add("--blacklist-cooldown-range", type=int, nargs=2, dest="cooldown_range", metavar=("LO", "HI"),
        help="seconds until a host of which a rank has failed is used again; by default it is not")  # fmt: skip
    add("--host-discovery-script", metavar="COMMAND", help="prints a line host:slots for each host; asked each second")


def _add_hosts(group: argparse._ArgumentGroup) -> None:
    choice = group.add_mutually_exclusive_group()
    choice.add_argument("-H", "--hosts", metavar="HOST:SLOTS,...", help="hosts and how many ranks each takes")
    choice.add_argument("-hostfile", "--hostfile", metavar="FILE", help="a file with a line 'host slots=N' for each")
    group.add_argument("-p", "--ssh-port", type=int, metavar="PORT", help="port of the ssh servers")
    group.add_argument("-i", "--ssh-identity-file", metavar="FILE", help="private key for ssh")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse `argv`, by default this process's. Ends the process with exit code 2 if that fails.

    What the configuration file says stands among the arguments, unless a flag says otherwise.

    Raises:
        LaunchError: the file cannot be used; or a setting is out of its range, which is a ValueError as well.
    """
    args = make_parser().parse_args(argv)
    if args.command[:1] == ["--"]:
        del args.command[0]
    args.unknown_settings = []
    if args.config_file is not None:
        _apply(_config_file.read(args.config_file), args)
    environment_of(chosen_in(args), refuse)
    # As Horovod's tools know them.
    args.nics = None if args.network_interfaces is None else set(args.network_interfaces.split(","))
    args.log_with_timestamp = None if args.log_without_timestamp is None else not args.log_without_timestamp
    args.run_func = args.executable = None
    return args


def _apply(config: _config_file.ConfigFile, args: argparse.Namespace) -> None:
    _config_file.choose_controller(args, config)
    chosen: dict[str, object] = dict(config.chosen)
    if config.stall_check is not None:
        chosen["no_stall_check"] = not config.stall_check
    for dest, value in chosen.items():
        if getattr(args, dest) is None:
            setattr(args, dest, value)
    args.verbose = args.verbose or bool(config.verbose)
    args.unknown_settings = [f"{place} in {args.config_file}" for place in config.unknown]


#: Flags that change nothing unless the job is elastic.
OF_ELASTIC = ("elastic_timeout", "reset_limit", "cooldown_range")

#: Flags that change nothing unless mpirun starts the ranks.
OF_MPIRUN = ("use_mpi", "mpi_args", "binding_args")


def not_needed(args: argparse.Namespace, by_mpirun: bool = False) -> list[str]:
    """Remarks about the flags given that change nothing."""
    needed = (*(OF_ELASTIC if is_elastic(args) else ()), *(OF_MPIRUN if by_mpirun else ()))
    needed = needed if args.host_discovery_script is None else (*needed, "slots")
    rows = [(dest, row) for dest, row in NOT_NEEDED.items() if dest not in needed]
    given = [row for dest, row in rows if getattr(args, dest, None) not in (None, False)]
    return [f"{flag} ({why})" for flag, why in given]
