"""``ciranda kubernetes``: the manifests of a job, and what its pods run."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ciranda.engines.kubernetes import Pod, index_of, run_in_pod, secret_text
from ciranda.engines.manifests import Kind, Wanted, documents
from ciranda.engines.to_yaml import to_yaml
from ciranda.launch.env_option import pairs
from ciranda.launch.errors import LaunchError

app = typer.Typer(name="kubernetes", help="Start jobs on Kubernetes.", no_args_is_help=True)

_BEFORE_COMMAND = {"allow_interspersed_args": False}

# What the manifest is asked for, its pods are told.
_Command = Annotated[list[str], typer.Argument(metavar="COMMAND", help="What each rank runs.", show_default=False)]
_Hosts = Annotated[int, typer.Option("--hosts", min=1, metavar="N", help="Number of pods.")]
_Slots = Annotated[int, typer.Option("--slots", min=1, metavar="N", help="Number of ranks in each.")]
_Grace = Annotated[
    float, typer.Option("--grace", min=0.0, metavar="SECONDS", help="From asking ranks to stop to killing them.")
]
_StartTimeout = Annotated[
    float, typer.Option("--start-timeout", min=0.1, metavar="SECONDS", help="For all pods to come.")
]


@app.command("manifest", context_settings=_BEFORE_COMMAND, no_args_is_help=True)
def _manifest(
    command: _Command,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Of the job, and of all that is made for it.")],
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="With Ciranda, on the PATH, and what COMMAND needs.")
    ],
    hosts: _Hosts = 1,
    slots: _Slots = 1,
    jobset: Annotated[bool, typer.Option("--jobset", help="A JobSet instead of a Job.")] = False,
    mpijob: Annotated[bool, typer.Option("--mpijob", help="An MPIJob of Kubeflow's MPI operator instead.")] = False,
    trainjob: Annotated[bool, typer.Option("--trainjob", help="A TrainJob of Kubeflow's Trainer instead.")] = False,
    secret: Annotated[
        str | None, typer.Option("--secret", metavar="NAME", show_default="a new one, which is printed",
                                 help="An existing Secret, whose key 'secret' has 64 hex digits.")
    ] = None,
    cpu: Annotated[
        str | None, typer.Option("--cpu", metavar="N", help="Cores of each pod.", show_default="one a rank")
    ] = None,
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory of each pod.")] = "4Gi",
    shared_memory: Annotated[
        str, typer.Option("--shared-memory", metavar="SIZE", help="Of it, what /dev/shm may take.")
    ] = "1Gi",
    gpus: Annotated[int, typer.Option("--gpus", min=0, metavar="N", help="NVIDIA's GPUs of each pod.")] = 0,
    user: Annotated[int, typer.Option("--user", min=1, metavar="UID", help="User that runs COMMAND.")] = 1000,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Set a variable; repeatable.")
    ] = None,
    restarts: Annotated[
        int, typer.Option("--restarts", min=0, metavar="N", help="How often all pods start anew if some are lost.")
    ] = 3,
    grace: _Grace = 1.0,
    start_timeout: _StartTimeout = 600.0,
) -> None:  # fmt: skip
    """Print what starts COMMAND on pods of Kubernetes, for 'kubectl apply -f -'."""
    chosen = [kind for kind, is_wanted in
              ((Kind.JOBSET, jobset), (Kind.MPIJOB, mpijob), (Kind.TRAINJOB, trainjob)) if is_wanted]  # fmt: skip
    if len(chosen) > 1:
        raise LaunchError("give one of --jobset, --mpijob and --trainjob", exit_code=2)
    wanted = Wanted(
        name=name,
        image=image,
        hosts=hosts,
        slots=slots,
        command=command,
        secret=secret_text(),
        secret_name=secret,
        cpu=cpu,
        memory=memory,
        shared_memory=shared_memory,
        gpus=gpus,
        user=user,
        env=pairs(env or []),
        restarts=restarts,
        grace=grace,
        start_timeout=start_timeout,
    )
    print(to_yaml(documents(chosen[0] if chosen else Kind.JOB, wanted)), end="")


@app.command("run", context_settings=_BEFORE_COMMAND, no_args_is_help=True)
def _run(
    command: _Command,
    hosts: _Hosts,
    slots: _Slots,
    launcher: Annotated[
        str, typer.Option("--launcher", metavar="NAME", help="Of the pod of index 0, as the others reach it.")
    ],
    port: Annotated[int, typer.Option("--port", min=1, max=65535, metavar="PORT", help="Where it listens.")],
    secret_file: Annotated[str, typer.Option("--secret-file", metavar="FILE", help="Where the secret is mounted.")],
    start_timeout: _StartTimeout = 600.0,
    grace: _Grace = 1.0,
) -> None:
    """Run the part of a pod in a job: what the pods of 'ciranda kubernetes manifest' run."""
    pod = Pod(index_of(os.environ), hosts, slots, launcher, port, secret_file, start_timeout, grace)
    raise typer.Exit(run_in_pod(pod, command))
