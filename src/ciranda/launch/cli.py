"""The ``ciranda`` command."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import nullcontext
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

import ciranda
from ciranda.launch import control, kubernetes_cli, merge_cli, report_cli, slurm_cli, stacks_cli, timeline_cli
from ciranda.launch.api import RunOptions, chosen_hosts
from ciranda.launch.api import run as launch_function
from ciranda.launch.discovery import HostScript
from ciranda.launch.elastic import WAIT_SECONDS, ElasticJob, Wishes, cooldown_of, discovered_job, elastic_job
from ciranda.launch.env_option import pairs
from ciranda.launch.errors import HostsError, LaunchError
from ciranda.launch.exporter import parse_address
from ciranda.launch.hosts import assign, by_host
from ciranda.launch.job import Job, Show, default_binding
from ciranda.launch.job_file import read_job_file, to_toml
from ciranda.launch.launcher import launch
from ciranda.launch.num_proc import NUM_PROC, PER_HOST, CommandWithRanks
from ciranda.launch.output import terminal_style
from ciranda.launch.output_dir import OutputDir
from ciranda.launch.processes import heed_signals, open_standard_streams
from ciranda.launch.reach import reach_for
from ciranda.launch.screen_options import parse_max_bytes, parse_ranks
from ciranda.launch.ssh import SshOptions
from ciranda.launch.store import StoreFactory, engine_store
from ciranda.launch.stragglers import SHARE
from ciranda.launch.timeline_steps import parse_steps
from ciranda.launch.trace_writer import TraceFile

app = typer.Typer(
    name="ciranda",
    help="Train one model on many processes and hosts.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(kubernetes_cli.app)
app.add_typer(slurm_cli.app)


class Binding(str, Enum):
    """What ``--bind-to`` may be."""

    NONE = "none"
    NUMA = "numa"
    CORE = "core"


class LogLevel(str, Enum):
    """What ``--log-level`` may be."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    FATAL = "fatal"


class LogFormat(str, Enum):
    """What ``--log-format`` may be."""

    TEXT = "text"
    JSON = "json"


_HOSTS = "Hosts"
_OUTPUT = "Output"
_SSH = "Reaching other hosts"
_JOB = "The job"
_ELASTIC = "Going on without lost ranks"


_FILE = "ciranda.file"  # where a context keeps what --config has


def _use_file(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None and not context.resilient_parsing:
        values = read_job_file(path, context.command.params)
        context.meta[_FILE] = values
        context.default_map = {**(context.default_map or {}), **values}
    return path


def _one_of(context: typer.Context, **values: Any) -> Any:
    """The values of two options of which only one may be given; None for that in the file, if the other is not."""
    is_from_file = {name: name in context.meta.get(_FILE, {}) for name in values}
    is_given = {name: _is_given(context, name) for name in values}
    return tuple(
        None if is_from_file[name] and not is_given[name] and any(is_given.values()) else value
        for name, value in values.items()
    )


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _describe(job: Job, options: SshOptions) -> None:
    """Print what a job would run where."""
    groups = by_host(job.slots)
    reach = reach_for(list(groups), options)
    for host, slots in groups.items():
        way = "this machine" if reach.is_here(host) else reach.label
        print(f"{host} ({way}): ranks {', '.join(str(slot.rank) for slot in slots)}")
    print(f"command: {shlex.join(job.argv)}")
    for name, value in sorted(job.env.items()):
        print(f"sets {name}={shlex.quote(value)}")


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", "-v", help="Show the version and leave.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --version: also what it was built from and by, and what runs here.")
    ] = False,
) -> None:
    """Train one model on many processes and hosts."""
    if version and verbose:
        from ciranda.doctor import versions_here, versions_to_text  # no other command needs it

        print(versions_to_text(versions_here()))
    elif version:
        print(f"ciranda {ciranda.__version__}")
    elif verbose:
        raise LaunchError("--verbose: write ciranda --version --verbose, or ciranda run --verbose COMMAND", exit_code=2)
    if version:
        raise typer.Exit


@app.command(
    "run",
    cls=CommandWithRanks,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    no_args_is_help=True,
    epilog="Examples:\n\n[bold]ciranda run -np 4 python train.py --lr 0.1[/bold]\n\n"
    "[bold]ciranda run -H hostA:2,hostB:2 python train.py[/bold]",
)
def _run(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="What each rank runs.", show_default=False)
    ] = None,
    num_proc: Annotated[
        int | None,
        typer.Option(*NUM_PROC, metavar="N", help="Number of ranks.", show_default="all slots, or tasks of Slurm",
                     rich_help_panel=_HOSTS),
    ] = None,
    per_host: Annotated[
        int | None,
        typer.Option(*PER_HOST, metavar="N", help="Number of ranks on each host, instead.", rich_help_panel=_HOSTS),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option("-H", "--hosts", metavar="HOST:SLOTS,...", help="Hosts and how many ranks each takes.",
                     show_default="the nodes of Slurm's allocation, or this machine", rich_help_panel=_HOSTS),
    ] = None,
    hostfile: Annotated[
        Path | None,
        typer.Option("--hostfile", metavar="FILE", help="A file with a line 'host slots=N' for each host.",
                     rich_help_panel=_HOSTS),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", metavar="DIR",
                     help="Also write each rank's output to DIR/rank.N/stdout and stderr, and what "
                          "[bold]ciranda report[/bold] needs.", rich_help_panel=_OUTPUT),
    ] = None,
    output_max_bytes: Annotated[
        str | None,
        typer.Option("--output-max-bytes", metavar="SIZE", show_default="no bound",
                     help="Of each file there, as 100M: a full one becomes stdout.1, and the one before is dropped.",
                     rich_help_panel=_OUTPUT),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option("--ranks", metavar="LIST", show_default="all", help="Show the output of these alone, as 0,3-5.",
                     rich_help_panel=_OUTPUT),
    ] = None,
    prefix: Annotated[
        bool, typer.Option("--prefix/--no-prefix", help="Put \\[rank]<stream>: in front of each line.",
                           rich_help_panel=_OUTPUT),
    ] = True,
    prefix_timestamp: Annotated[
        bool, typer.Option("--prefix-timestamp", help="Put the time in front as well.",
                           rich_help_panel=_OUTPUT),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say what is done.", rich_help_panel=_OUTPUT)] = False,
    log_level: Annotated[
        LogLevel | None, typer.Option("--log-level", show_default="warning", case_sensitive=False,
                                      help="The least severe messages of the engine.", rich_help_panel=_OUTPUT),
    ] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option("--log-format", show_default="short lines", case_sensitive=False,
                                       help="How they are written.", rich_help_panel=_OUTPUT),
    ] = None,
    log_file: Annotated[
        str | None,
        typer.Option("--log-file", metavar="FILE", show_default="standard error",
                     help="Where each rank writes them; %r in the name is the rank, %h the host.",
                     rich_help_panel=_OUTPUT),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="[ADDR:]PORT",
                     help="Serve metrics to Prometheus there, on every host; on the loopback interface without ADDR.",
                     rich_help_panel=_OUTPUT),
    ] = None,
    metrics_dir: Annotated[
        Path | None,
        typer.Option("--metrics-dir", metavar="DIR",
                     help="Write metrics to a file in DIR, on every host, for node_exporter's textfile collector.",
                     rich_help_panel=_OUTPUT),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option("--timeline", metavar="FILE",
                     help="Write the calls of all ranks to FILE at the end, for Perfetto; compressed if it ends with "
                          ".gz.", rich_help_panel=_OUTPUT),
    ] = None,
    timeline_steps: Annotated[
        str | None,
        typer.Option("--timeline-steps", metavar="FROM:UNTIL", show_default="all",
                     help="Only those between so many steps and so many; 10:20 are ten. Without --timeline, for the "
                          "report on --output-dir.", rich_help_panel=_OUTPUT),
    ] = None,
    ssh_port: Annotated[
        int | None, typer.Option("--ssh-port", "-p", min=1, max=65535, metavar="PORT",
                                 help="Port of the ssh servers.", rich_help_panel=_SSH),
    ] = None,
    ssh_identity_file: Annotated[
        str | None, typer.Option("--ssh-identity-file", "-i", metavar="FILE", help="Private key for ssh.",
                                 rich_help_panel=_SSH),
    ] = None,
    ssh_config: Annotated[
        str | None, typer.Option("--ssh-config", "-F", metavar="FILE", help="Configuration file for ssh.",
                                 show_default="the user's", rich_help_panel=_SSH),
    ] = None,
    remote_python: Annotated[
        str | None, typer.Option("--remote-python", metavar="PATH", help="Python on the other hosts.",
                                 show_default="same path as here", rich_help_panel=_SSH),
    ] = None,
    network_interface: Annotated[
        str | None, typer.Option("--network-interface", metavar="NAME",
                                 help="Network interface that the ranks use; several by comma to use them together.",
                                 show_default="the one that reaches the others", rich_help_panel=_SSH),
    ] = None,
    port_range: Annotated[
        str | None, typer.Option("--port-range", metavar="LOW-HIGH", help="The only ports the ranks may listen on.",
                                 show_default="any", rich_help_panel=_SSH),
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Set a variable for the ranks; repeatable.",
                                       rich_help_panel=_JOB),
    ] = None,
    exclude_env: Annotated[
        list[str] | None, typer.Option("--exclude-env", metavar="PATTERN",
                                       help="Do not pass on variables of this name; repeatable.", rich_help_panel=_JOB),
    ] = None,
    bind_to: Annotated[
        Binding | None, typer.Option("--bind-to", show_default="none",
                                     help="Give each rank its share of its host's cores, or those of a NUMA node, "
                                          "or let all run anywhere.",
                                     rich_help_panel=_JOB),
    ] = None,
    jax_native: Annotated[
        bool, typer.Option("--jax-native", help="Route JAX's collectives (lax.psum, sharded jit) through Ciranda, "
                                                "in programs that use jax.distributed.", rich_help_panel=_JOB),
    ] = False,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", is_eager=True, callback=_use_file,
                                  help="Take options, and COMMAND, from a TOML file; those given here win.",
                                  rich_help_panel=_JOB),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print all options as such a file, and leave.",
                           rich_help_panel=_JOB),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run where, and leave.", rich_help_panel=_JOB),
    ] = False,
    start_timeout: Annotated[
        float, typer.Option("--start-timeout", min=0.1, metavar="SECONDS",
                            help="For all hosts to answer and all ranks to find each other.", rich_help_panel=_JOB),
    ] = 30.0,
    grace: Annotated[
        float, typer.Option("--grace", min=0.0, metavar="SECONDS", help="From asking ranks to stop to killing them.",
                            rich_help_panel=_JOB),
    ] = 1.0,
    stall_warning_seconds: Annotated[
        float | None, typer.Option("--stall-warning-seconds", min=0.0, metavar="SECONDS",
                                   help="Name ranks that the others have waited for this long.", rich_help_panel=_JOB),
    ] = None,
    straggler_share: Annotated[
        float, typer.Option("--straggler-share", min=0.0, max=1.0, metavar="SHARE",
                            help="Warn of a rank for which the others wait for this share of the time, in 30 steps and "
                                 "the next 30; 0: of none.", rich_help_panel=_JOB),
    ] = SHARE,
    stall_shutdown_seconds: Annotated[
        float | None, typer.Option("--stall-shutdown-seconds", min=0.0, metavar="SECONDS",
                                   help="End the job when ranks were waited for this long.", rich_help_panel=_JOB),
    ] = None,
    elastic: Annotated[
        bool, typer.Option("--elastic", help="When a rank fails, the others go on from their last commit, and another "
                                             "process takes its place.", rich_help_panel=_ELASTIC),
    ] = False,
    min_np: Annotated[
        int | None, typer.Option("--min-np", "--min-num-proc", metavar="N", show_default="as -np",
                                 help="Fewer ranks wait for others.", rich_help_panel=_ELASTIC),
    ] = None,
    max_np: Annotated[
        int | None, typer.Option("--max-np", "--max-num-proc", metavar="N", show_default="as -np",
                                 help="Up to this number, ranks join after the start.", rich_help_panel=_ELASTIC),
    ] = None,
    reset_limit: Annotated[
        int | None, typer.Option("--reset-limit", metavar="N", show_default="none",
                                 help="How often a world may follow another.", rich_help_panel=_ELASTIC),
    ] = None,
    elastic_timeout: Annotated[
        float, typer.Option("--elastic-timeout", min=0.1, metavar="SECONDS",
                            help="How long too few ranks wait for others.", rich_help_panel=_ELASTIC),
    ] = WAIT_SECONDS,
    stopped_seconds: Annotated[
        float | None, typer.Option("--stopped-seconds", min=0.0, metavar="SECONDS", show_default="60",
                                   help="Kill a rank that a signal has stopped for this long; 0: never.",
                                   rich_help_panel=_ELASTIC),
    ] = None,
    host_discovery_script: Annotated[
        str | None, typer.Option("--host-discovery-script", metavar="COMMAND",
                                 help="Prints a line 'host:slots' for each host that there is; asked each second.",
                                 rich_help_panel=_ELASTIC),
    ] = None,
    slots_per_host: Annotated[
        int | None, typer.Option("--slots-per-host", "--slots", min=1, metavar="N", show_default=False,
                                 help="Slots of hosts that it prints without a number.", rich_help_panel=_ELASTIC),
    ] = None,
    cooldown: Annotated[
        tuple[float, float] | None, typer.Option(
            "--cooldown", metavar="LOW HIGH", show_default="start the rank again",
            help="Seconds for which nothing is started on a host of which a rank has failed, twice as long each time.",
            rich_help_panel=_ELASTIC),
    ] = None,
) -> None:  # fmt: skip
    """Run COMMAND on every rank: here, on several hosts over ssh, or on the nodes of an allocation of Slurm by srun.

    Options of [bold]ciranda run[/bold] precede the command; later arguments belong to the command.
    Each line of output has the rank as prefix. If a rank fails, the others are ended; the end of its stderr is the last
    output on the screen, and its exit code becomes that of this command.
    """
    from_file: list[str] = context.meta.get(_FILE, {}).get("env", [])
    variables = pairs([*from_file, *(env or [])])
    num_proc, per_host = _one_of(context, num_proc=num_proc, per_host=per_host)
    hosts, hostfile = _one_of(context, hosts=hosts, hostfile=hostfile)
    if print_config:
        chosen = {"num_proc": num_proc, "per_host": per_host, "hosts": hosts, "hostfile": hostfile}
        shown = {**context.params, **chosen, "env": [f"{name}={value}" for name, value in variables.items()]}
        print(to_toml(context.command.params, shown))
        raise typer.Exit
    if not command or not command[0]:  # the latter of a variable that is not set
        raise typer.BadParameter("say what to run: ciranda run -np 2 python train.py", ctx=context)
    going_on: ElasticJob | None = None
    n_slots = num_proc
    if elastic and jax_native:
        raise LaunchError("--jax-native does not go with --elastic: jax.distributed cannot change its processes", 2)
    if output_max_bytes is not None and output_dir is None:
        raise LaunchError("--output-max-bytes is for --output-dir: add it", exit_code=2)
    is_recorded = timeline is not None or timeline_steps is not None
    if timeline_steps is not None and timeline is None:
        if elastic:
            raise LaunchError("--timeline-steps of an elastic job is for --timeline: add it", exit_code=2)
        if output_dir is None:
            raise LaunchError("--timeline-steps is for --timeline or --output-dir: add one", exit_code=2)
    bounds = (min_np, max_np, reset_limit, elastic_timeout, stall_shutdown_seconds, cooldown_of(cooldown))
    if elastic and host_discovery_script is not None:
        if hosts is not None or hostfile is not None or per_host is not None:
            raise LaunchError("--host-discovery-script finds the hosts: leave out -H, --hostfile and the like", 2)
        script = HostScript(host_discovery_script, slots_per_host)
        going_on = discovered_job(
            script, Wishes(num_proc, *bounds), lambda text: print(f"ciranda: {text}", file=sys.stderr)
        )
    elif elastic:
        n_start = num_proc
        if n_start is None:
            n_start = sum(host.slots for host in chosen_hosts(num_proc, hosts, hostfile, per_host))
        going_on = elastic_job(n_start, *bounds)
        n_slots = going_on.most
    elif any(x is not None for x in (min_np, max_np, reset_limit, stopped_seconds, host_discovery_script, cooldown)):
        raise LaunchError(
            "--min-np, --max-np, --reset-limit, --stopped-seconds, --host-discovery-script and --cooldown are for "
            "--elastic: add it",
            exit_code=2,
        )
    if metrics is not None:
        parse_address(metrics)
    if going_on is not None and going_on.finder is not None:
        slots = going_on.first_slots()
    else:
        slots = assign(chosen_hosts(n_slots if per_host is None else num_proc, hosts, hostfile, per_host), n_slots)
    settings = {
        "CIRANDA_START_TIMEOUT": start_timeout,
        "CIRANDA_INTERFACE": network_interface,
        "CIRANDA_PORT_RANGE": port_range,
        "CIRANDA_LOG_LEVEL": log_level and log_level.value,
        "CIRANDA_LOG_FORMAT": log_format and log_format.value,
        "CIRANDA_LOG_FILE": log_file,
        "CIRANDA_STALL_WARNING_SECONDS": stall_warning_seconds,
        "CIRANDA_STALL_SHUTDOWN_SECONDS": stall_shutdown_seconds,
        "CIRANDA_STOPPED_SECONDS": stopped_seconds,
    }
    job = Job(
        argv=command,
        slots=slots,
        env={**variables, **{name: _plain(value) for name, value in settings.items() if value is not None}},
        exclude_env=exclude_env or [],
        grace_seconds=grace,
        start_timeout_seconds=start_timeout,
        network_interface=network_interface,
        port_range=port_range,
        bind_to=bind_to.value if bind_to else default_binding(),
        jax_native=jax_native,
        elastic=going_on,
        metrics=metrics or "",
        metrics_dir=str(metrics_dir or ""),
        recorded_steps=parse_steps(timeline_steps or ":") if is_recorded else None,
        straggler_share=straggler_share,
    )
    max_bytes = parse_max_bytes(output_max_bytes) if output_max_bytes is not None else None
    shown_ranks = parse_ranks(ranks, None if elastic else len(slots)) if ranks is not None else None
    options = SshOptions(ssh_port, ssh_identity_file, ssh_config, remote_python=remote_python)
    if dry_run:
        _describe(job, options)
        raise typer.Exit
    files = OutputDir(output_dir, len(slots), max_bytes) if output_dir is not None else None
    trace = TraceFile(timeline) if timeline is not None else None
    store_factory: StoreFactory = context.obj or engine_store
    show = Show(terminal_style(prefix, prefix_timestamp, shown_ranks), files, verbose, timeline=trace)
    try:
        outcome = launch(job, options, show, store_factory)
    finally:
        for opened in (files, trace):
            if opened is not None:
                opened.close()
    raise typer.Exit(outcome.exit_code)


def _plain(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


@app.command(
    "bench",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    help="Measure collectives, and compare with other systems.",
)
def _bench(context: typer.Context) -> None:
    try:
        from ciranda.bench.cli import app as bench  # with NumPy and the engine, which the launcher does without
    except ImportError as error:
        raise LaunchError(f"ciranda bench cannot be loaded: {error}") from None
    bench(args=context.args, prog_name="ciranda bench")


@app.command("tune", cls=CommandWithRanks)
def _tune(
    num_proc: Annotated[
        int, typer.Option(*NUM_PROC, *PER_HOST, metavar="N", help="Number of ranks; two are all that it takes.")
    ] = 2,
    hosts: Annotated[
        str | None,
        typer.Option("-H", "--hosts", metavar="HOST,HOST", help="Measure the link between two hosts instead.",
                     show_default="this machine's memory"),
    ] = None,
    ssh_config: Annotated[
        str | None, typer.Option("--ssh-config", "-F", metavar="FILE", help="Configuration file for ssh.",
                                 show_default="the user's"),
    ] = None,
) -> None:  # fmt: skip
    """Measure the costs that choose the algorithms, in 50 ms, and store them in each user's cache folder."""
    from ciranda.bench.tune import defaults, main  # as above

    if num_proc != 2:
        raise LaunchError(
            f"ciranda tune measures between two ranks, not {num_proc}: leave out {NUM_PROC[0]}", exit_code=2
        )
    options = RunOptions(prefix=False, ssh=SshOptions(config_file=ssh_config))
    found = launch_function(main, np=2, hosts=hosts or "localhost:2", options=options)
    if found[0].problem:
        raise LaunchError(found[0].problem)
    usual = defaults()
    memory = "shared memory" if found[0].kind == "shm" else "the link"
    print(f"# {memory}, two ranks; ns: a round or call, fs: a byte")
    for name, value in found[0].costs.items():
        print(f"{name:<18} {value:>10}   (without measuring: {usual[name]})")
    for path in sorted({each.path for each in found if each.path}):
        print(f"# kept in {path}")


@app.command("jobs")
def _jobs() -> None:
    """List your jobs whose launchers run on this machine."""
    for name, job in control.jobs():
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job["began"]))
        hosts = ", ".join(job["hosts"])
        print(f"{name}  since {began}  {job['ranks']} ranks on {hosts}  {shlex.join(job['command'])}")


@app.command("top")
def _top_of(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="The beginning of its identifier.", show_default="the only one")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one table, and leave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it once, as JSON.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--interval",
            min=0.1,
            metavar="SECONDS",
            help="The time that each table is about.",
            show_default="1; live, of more than 16 ranks, longer",
        ),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option("--ranks", metavar="LIST", help="Show these alone, as 0,3-5.", show_default="all")
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", metavar="COLUMN", help="The column to sort by, the most first, as 'waited for'.")
    ] = "rank",
) -> None:
    """Show what the ranks of a job do: calls, bytes, how long they wait, and for whom. The job goes on.

    No rank is asked, so those that are stuck, stopped or dead are shown, too.
    """
    from ciranda.launch import rates, top  # with rich's tables

    if sort not in top.SORTS:
        raise LaunchError(f"--sort {sort!r}: must be one of {', '.join(top.SORTS)}", exit_code=2)
    view = top.View(parse_ranks(ranks, None) if ranks is not None else None, sort)

    def look() -> rates.Counters:
        return rates.by_rank(control.ask(job, "totals"))

    if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(top.once(look, seconds or 1.0, as_json, view))
    else:
        top.live(look, seconds, f"ciranda job {job or ''}".rstrip(), view)


app.command("stacks")(stacks_cli.stacks)
app.command("report")(report_cli.report)
app.command("merge")(merge_cli.merge)
app.command("timeline")(timeline_cli.timeline)


@app.command("doctor")
def _doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE", help="Also write a zip for a report of a bug: findings, versions, "
                                                      "settings without secrets, installed packages."),
    ] = None,
) -> None:  # fmt: skip
    """Check this machine: print what works, and a remedy for each problem."""
    from ciranda.doctor import examine, show, to_json, write_bundle  # no other command needs it

    with bundle.open("wb") if bundle is not None else nullcontext() as file:  # before the seconds that checks take
        findings = examine()
        print(to_json(findings)) if as_json else show(findings)
        if file is not None:
            write_bundle(file, findings)
            print(f"written to {bundle}: look at it before you send it", file=sys.stderr)
    raise typer.Exit(1 if any(finding.status == "fail" for finding in findings) else 0)


def main(args: list[str] | None = None, store_factory: StoreFactory | None = None) -> None:
    """The console script. Never returns."""
    open_standard_streams()
    heed_signals()
    try:
        app(args=args, prog_name="ciranda", obj=store_factory)
    except (HostsError, LaunchError) as error:
        print(f"ciranda: {error}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
    except OSError as error:  # as where what it prints finds no room
        print(f"ciranda: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
