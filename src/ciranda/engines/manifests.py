"""The manifests that start a job on Kubernetes: an indexed Job, or what an operator makes one of. Pure.

Exit codes decide what happens after a failure, the same in all pods of a job: 75 (a host was lost) and 143 (SIGTERM)
let the pods be started anew, up to a number of times; a script's own is final. A pod that Kubernetes itself has evicted
does not count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

from ciranda.engines.kubernetes import LOST_A_HOST, PORT, SECRET_FILE
from ciranda.launch.errors import LaunchError
from ciranda.launch.hosts import checked_size

Document = dict[str, Any]

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_MOST_NAME_BYTES = 40  # a pod's has at most 63, with what Kubernetes appends
_ENDED_BY_SIGTERM = 143
_CONTAINER = "ciranda"
_SLACK_SECONDS = 10  # for Python to end, beyond the ranks' grace
_SHM_MOUNT = {"name": "shm", "mountPath": "/dev/shm"}


class Kind(Enum):
    """What makes the pods."""

    JOB = "job"
    JOBSET = "jobset"
    MPIJOB = "mpijob"
    TRAINJOB = "trainjob"


@dataclass(frozen=True)
class Wanted:
    """What a user wants. ``secret``: the new secret; or ``secret_name`` is that of an existing one."""

    name: str
    image: str
    hosts: int
    slots: int
    command: list[str]
    secret: str
    secret_name: str | None = None
    cpu: str | None = None
    memory: str = "4Gi"
    shared_memory: str = "1Gi"
    gpus: int = 0
    user: int = 1000
    env: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 3
    grace: float = 1.0
    start_timeout: float = 600.0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > _MOST_NAME_BYTES:
            raise LaunchError(
                f"--name {self.name!r}: at most {_MOST_NAME_BYTES} lower case letters, digits and dashes, of which the "
                "first is a letter and the last no dash",
                exit_code=2,
            )
        checked_size(self.hosts * self.slots)


def documents(kind: Kind, wanted: Wanted) -> list[Document]:
    """Return all that is to be created."""
    secret = [] if wanted.secret_name is not None or kind is Kind.MPIJOB else [_secret(wanted)]
    return [*secret, *_MAKERS[kind](wanted)]


def _secret(wanted: Wanted) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(wanted),
        "type": "Opaque",
        "immutable": True,
        "stringData": {"secret": wanted.secret},
    }


def _metadata(wanted: Wanted) -> Document:
    return {"name": wanted.name, "labels": {"app.kubernetes.io/name": wanted.name}}


def _of_job(wanted: Wanted) -> list[Document]:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(wanted),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": wanted.name},
            "ports": [{"name": "ciranda", "port": PORT}],
        },
    }
    spec = _job_spec(wanted, f"{wanted.name}-0.{wanted.name}")
    spec["template"]["spec"]["subdomain"] = wanted.name
    return [service, {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(wanted), "spec": spec}]


def _job_spec(wanted: Wanted, launcher: str) -> Document:
    lost = {"containerName": _CONTAINER, "operator": "In", "values": [LOST_A_HOST, _ENDED_BY_SIGTERM]}
    return {
        "completionMode": "Indexed",
        "completions": wanted.hosts,
        "parallelism": wanted.hosts,
        "backoffLimit": wanted.restarts * wanted.hosts,  # each pod that ends because another was lost counts
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "Count", "onExitCodes": lost},
                {"action": "FailJob", "onExitCodes": {**lost, "operator": "NotIn"}},
            ]
        },
        "template": {
            "metadata": {"labels": {"app.kubernetes.io/name": wanted.name}},
            "spec": _pod_spec(wanted, _command(wanted, launcher)),
        },
    }


def _command(wanted: Wanted, launcher: str) -> list[str]:
    words = ["ciranda", "kubernetes", "run", "--hosts", str(wanted.hosts), "--slots", str(wanted.slots)]
    words += ["--launcher", launcher, "--port", str(PORT), "--secret-file", SECRET_FILE]
    words += ["--start-timeout", f"{wanted.start_timeout:g}", "--grace", f"{wanted.grace:g}"]
    return [*words, "--", *_for_kubelet(wanted.command)]


def _for_kubelet(command: list[str]) -> list[str]:
    """As Kubernetes has it, which else puts a variable for $(NAME)."""
    return [word.replace("$", "$$") for word in command]


def _pod_spec(wanted: Wanted, command: list[str]) -> Document:
    folder = str(PurePosixPath(SECRET_FILE).parent)
    container = {
        **_container(wanted, command),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [_SHM_MOUNT, {"name": "secret", "mountPath": folder, "readOnly": True}],
    }
    secret = {
        "secretName": wanted.secret_name or wanted.name,
        "defaultMode": 0o400,
        "items": [{"key": "secret", "path": "secret"}],
    }
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(wanted.grace) + _SLACK_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": wanted.user,
            "runAsGroup": wanted.user,
            "fsGroup": wanted.user,  # so that this user can read the secret
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [_shm(wanted), {"name": "secret", "secret": secret}],
    }


def _shm(wanted: Wanted) -> Document:
    return {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": wanted.shared_memory}}


def _container(wanted: Wanted, command: list[str]) -> Document:
    env = [{"name": name, "value": value} for name, value in wanted.env.items()]
    return {
        "name": _CONTAINER,
        "image": wanted.image,
        "command": command,
        **({"env": env} if env else {}),
        "resources": _resources(wanted),
    }


def _resources(wanted: Wanted) -> Document:
    """What a pod needs, for which nothing else competes."""
    amounts: Document = {"cpu": wanted.cpu or str(wanted.slots), "memory": wanted.memory}
    if wanted.gpus:
        amounts["nvidia.com/gpu"] = str(wanted.gpus)
    return {"requests": amounts, "limits": dict(amounts)}


def _jobset_spec(wanted: Wanted, replicated_job: str) -> Document:
    """A single Job. If a host is lost, JobSet starts it anew as a whole."""
    spec = _job_spec(wanted, f"{wanted.name}-{replicated_job}-0-0.{wanted.name}")
    spec["backoffLimit"] = 0
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": wanted.name},
        "failurePolicy": {
            "maxRestarts": wanted.restarts,
            "rules": [{"name": "script", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
        },
        "replicatedJobs": [{"name": replicated_job, "replicas": 1, "template": {"spec": spec}}],
    }


def _of_jobset(wanted: Wanted) -> list[Document]:
    spec = _jobset_spec(wanted, "host")
    return [
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": _metadata(wanted), "spec": spec},
    ]


def _of_trainjob(wanted: Wanted) -> list[Document]:
    """A runtime of its own, since none of Trainer's has the secret and the memory for /dev/shm, and a TrainJob."""
    template = _jobset_spec(wanted, "node")  # Trainer's name
    job = template["replicatedJobs"][0]["template"]
    job["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    job["spec"]["template"]["spec"]["containers"][0]["name"] = "node"
    for rule in job["spec"]["podFailurePolicy"]["rules"][1:]:
        rule["onExitCodes"]["containerName"] = "node"
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": _metadata(wanted),
        "spec": {"mlPolicy": {"numNodes": wanted.hosts}, "template": {"spec": template}},
    }
    train_job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(wanted),
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": wanted.name},
            "trainer": {"numNodes": wanted.hosts},
        },
    }
    return [runtime, train_job]


def _of_mpijob(wanted: Wanted) -> list[Document]:
    """The MPI operator's keys and list of hosts: `ciranda run` by ssh, as mpirun."""
    launcher = ["ciranda", "run", "--hostfile", "/etc/mpi/hostfile", "--grace", f"{wanted.grace:g}"]
    launcher += ["--start-timeout", f"{wanted.start_timeout:g}", *_for_kubelet(wanted.command)]
    worker = {
        **_container(wanted, ["/usr/sbin/sshd", "-De"]),
        "readinessProbe": {"tcpSocket": {"port": 22}},
        "volumeMounts": [_SHM_MOUNT],
    }
    pod = {"automountServiceAccountToken": False, "enableServiceLinks": False}
    small = {"cpu": "1", "memory": "1Gi"}
    of_launcher = {**_container(wanted, launcher), "resources": {"requests": small, "limits": dict(small)}}
    return [
        {
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "metadata": _metadata(wanted),
            "spec": {
                "slotsPerWorker": wanted.slots,
                "launcherCreationPolicy": "WaitForWorkersReady",
                "runPolicy": {
                    "backoffLimit": 0,
                    "cleanPodPolicy": "Running",
                },  # it could not tell why the launcher failed
                "mpiReplicaSpecs": {
                    "Launcher": {
                        "replicas": 1,
                        "restartPolicy": "Never",
                        "template": {"spec": {**pod, "containers": [of_launcher]}},
                    },
                    "Worker": {
                        "replicas": wanted.hosts,
                        "template": {"spec": {**pod, "containers": [worker], "volumes": [_shm(wanted)]}},
                    },
                },
            },
        }
    ]


_MAKERS = {Kind.JOB: _of_job, Kind.JOBSET: _of_jobset, Kind.TRAINJOB: _of_trainjob, Kind.MPIJOB: _of_mpijob}
