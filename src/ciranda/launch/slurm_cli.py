"""``ciranda slurm``: what starts a job on Slurm."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ciranda.engines.batch_script import Batch, script

app = typer.Typer(name="slurm", help="Start jobs on Slurm.", no_args_is_help=True)


# With one command alone, its name would not be asked for.
@app.callback()
def _slurm() -> None:
    """Start jobs on Slurm."""


@app.command("script", context_settings={"allow_interspersed_args": False}, no_args_is_help=True)
def _script(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="What each rank runs.", show_default=False)
    ],
    nodes: Annotated[int, typer.Option("--nodes", "-N", min=1, metavar="N", help="Number of nodes.")] = 1,
    per_node: Annotated[
        int, typer.Option("--ntasks-per-node", min=1, metavar="N", help="Number of ranks on each.")
    ] = 1,
    cpus: Annotated[
        int | None, typer.Option("--cpus-per-task", min=1, metavar="N", help="Cores of each rank.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus-per-node", min=1, metavar="N", help="GPUs of each node.")
    ] = None,
    time: Annotated[str | None, typer.Option("--time", metavar="TIME", help="Limit, as 1:30:00.")] = None,
    partition: Annotated[str | None, typer.Option("--partition", metavar="NAME", help="Of the cluster.")] = None,
    name: Annotated[str, typer.Option("--job-name", metavar="NAME", help="Of the job.")] = "ciranda",
    output: Annotated[
        str, typer.Option("--output", metavar="FILE", help="Of all ranks; %x is the name, %j the number of the job.")
    ] = "%x-%j.out",
    more: Annotated[
        list[str] | None,
        typer.Option("--sbatch", metavar="OPTION", help="Another option of sbatch, as --sbatch=--qos=high; repeatable.")
    ] = None,
) -> None:  # fmt: skip
    """Print a batch script that starts COMMAND on all nodes of an allocation, for 'sbatch'."""
    options: dict[str, str | int | None] = {
        "job-name": name,
        "output": output,
        "nodes": nodes,
        "ntasks-per-node": per_node,
        "cpus-per-task": cpus,
        "gpus-per-node": gpus,
        "time": time,
        "partition": partition,
    }
    run = [sys.executable, "-m", "ciranda.launch.cli", "run"]  # also where PATH has no 'ciranda'
    print(script(Batch(run, command, options, more or [])), end="")
