"""What a cluster of Kubernetes does with the manifests of a job, by processes: no container, no control plane.

Each index of the Job is a pod: a process namespace on a host that is a network namespace (netns.py), with the command,
the environment, the secret and the /dev/shm that the manifest says, and the names of the headless Service. Pods are
started anew as podFailurePolicy says.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import netns
import yaml
from launch_support import children

_PYTHON = Path(sys.executable).parent


#: Of job().
AJob = AbstractContextManager["Kubelet"]


class Kubelet:
    """Runs the pods of one Job. ``env``: what the image sets."""

    def __init__(self, hosts: netns.Hosts, folder: Path, manifest: str, env: Mapping[str, str]) -> None:
        documents = {each["kind"]: each for each in yaml.safe_load_all(manifest)}
        self.name = documents["Job"]["metadata"]["name"]
        self.spec: dict[str, Any] = documents["Job"]["spec"]
        self.folder = folder
        self.codes: dict[int, list[int]] = {index: [] for index in range(self.spec["completions"])}
        self._hosts = hosts
        self._env = env
        self.secret = documents["Secret"]["stringData"]["secret"]
        self._pod = self.spec["template"]["spec"]
        self._subdomain = documents["Service"]["metadata"]["name"]
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "hosts").write_text("127.0.0.1 localhost\n")

    def know(self, index: int, address: str) -> None:
        """Have the Service know the name of a pod, if it does not yet."""
        name = f"{self.name}-{index}"
        if name not in self.log("hosts"):
            with open(self.folder / "hosts", "a", encoding="ascii") as file:
                file.write(f"{address} {name}.{self._subdomain} {name}\n")

    def start(self, *indices: int) -> None:
        """Start pods; from now on the Service knows their names."""
        for index in indices:
            self.know(index, self._hosts[index].address)
            command = [*self._hosts[index].enter, "unshare", "--mount", "--pid", "--fork", "sh", "-ec"]
            with open(self.folder / f"{index}.log", "ab") as log:
                self._running[index] = subprocess.Popen(
                    [*command, self._script()], env=self._environment(index), stdin=subprocess.DEVNULL, stdout=log,
                    stderr=log, start_new_session=True,
                )  # fmt: skip

    def _environment(self, index: int) -> dict[str, str]:
        of_image = {"PATH": f"{_PYTHON}:{os.environ['PATH']}", "HOME": "/run", **self._env}
        of_pod = {each["name"]: each["value"] for each in self._pod["containers"][0].get("env", [])}
        own = {"HOSTNAME": f"{self.name}-{index}", "JOB_COMPLETION_INDEX": str(index), "SECRET": self.secret}
        return {**of_image, **of_pod, **own}

    def _script(self) -> str:
        """Make what the pod sees, and become its command as the user that it has.

        That one may search all folders, since an image's are for all, and those of the package here may not be.
        """
        container, user = self._pod["containers"][0], self._pod["securityContext"]["runAsUser"]
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        command = shlex.join([word.replace("$$", "$") for word in container["command"]])
        search = "--inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search"
        as_user = f"setpriv --reuid={user} --regid={user} --clear-groups --no-new-privs {search}"
        lines = [
            "mount -t proc proc /proc",
            "mount -t tmpfs tmpfs /run",
            f"mount -t tmpfs -o mode=1777 tmpfs {mounts['shm']}",
            f"mount --bind {self.folder}/hosts /etc/hosts",
            f"mkdir -p {mounts['secret']}",
            f"(umask 337; printf %s $SECRET > {mounts['secret']}/secret; chgrp {user} {mounts['secret']}/secret)",
            "unset SECRET",
            f"exec {as_user} {command}",
        ]
        return "\n".join(lines)

    def log(self, index: int | str) -> str:
        """What a pod has written."""
        path = self.folder / (index if isinstance(index, str) else f"{index}.log")
        return path.read_text(errors="replace") if path.exists() else ""

    def first_process(self, index: int) -> int | None:
        """That of the pod, once it runs its command."""
        found = children(self._running[index].pid)
        return found[0] if found else None

    def kill(self, index: int) -> None:
        """As when its host is reset: nothing of the pod is left, and nothing of it says so."""
        self._signal(index, signal.SIGKILL)

    def terminate(self, index: int) -> None:
        """As when the pod is deleted: SIGTERM to its first process."""
        self._signal(index, signal.SIGTERM)

    def connect(self, index: int, is_connected: bool) -> None:
        """Plug in a pod's host, or pull its plug: then nothing says that it is gone."""
        state = "up" if is_connected else "down"
        subprocess.run([*self._hosts[index].enter, "ip", "link", "set", "eth0", state], check=True)

    def _signal(self, index: int, number: int) -> None:
        pid = self.first_process(index)
        assert pid is not None
        os.kill(pid, number)

    def until_ended(self, *indices: int, seconds: float = 120) -> None:
        """Wait for pods, and keep their exit codes."""
        for index in indices:
            code = self._running[index].wait(seconds)
            self.codes[index].append(code if code >= 0 else 128 - code)

    def is_final(self, code: int) -> bool:
        """Whether the Job has failed by a pod of this exit code: the first rule that matches says so."""
        for rule in self.spec["podFailurePolicy"]["rules"]:
            exit_codes = rule.get("onExitCodes", {"operator": "In", "values": []})
            if (code in exit_codes["values"]) == (exit_codes["operator"] == "In"):
                return bool(rule["action"] == "FailJob")
        return False

    def close(self) -> None:
        """End what is left."""
        for index, process in self._running.items():
            pid = self.first_process(index)
            if pid is not None:
                with suppress(ProcessLookupError):  # it has ended since
                    os.kill(pid, signal.SIGKILL)
            process.wait()


@contextmanager
def cluster(n_hosts: int) -> Iterator[netns.Hosts]:
    """Hosts for the pods of Jobs. REQUIRES: netns.why_not() is None."""
    with netns.hosts(*(f"j-{index}" for index in range(n_hosts))) as hosts:
        yield hosts


@contextmanager
def job(
    hosts: netns.Hosts, options: list[str], command: list[str], env: Mapping[str, str], name: str = "j"
) -> Iterator[Kubelet]:
    """A Job of the manifest that ``ciranda kubernetes manifest`` prints; no pod runs yet."""
    words = [sys.executable, "-m", "ciranda.launch.cli", "kubernetes", "manifest", "--name", name, "--image", "i"]
    manifest = subprocess.run([*words, *options, "--", *command], capture_output=True, text=True, check=True).stdout
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ciranda-pods-")))
        folder.chmod(0o755)
        kubelet = Kubelet(hosts, folder, manifest, env)
        stack.callback(kubelet.close)
        yield kubelet
