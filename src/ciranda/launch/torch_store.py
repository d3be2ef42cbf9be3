"""The process that hosts torch.distributed's TCPStore for a job: one, on rank 0's host, while ranks run.

So the store outlives the process group of a rank, as torchrun's does, and the ranks may form another. It has a port of
its own, which CIRANDA_TORCH_STORE names: at MASTER_PORT rank 0 may host what it wants, as torch itself does, or Paddle.
The agent listens there, and starts this process when a rank connects: jobs that do not use it have none. Standard
library only; the process itself imports torch.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys

from ciranda.launch.processes import die_with_parent

# Without the working directory on the path, as the agent. Ranks that are asked to end may still need the store.
_PROGRAM = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.path[:] = [path for path in sys.path if path]
from torch.distributed import TCPStore
fd, port = map(int, sys.argv[1:])
store = TCPStore("localhost", port, is_master=True, wait_for_workers=False, master_listen_fd=fd)
while True:
    signal.pause()
"""


def is_possible() -> bool:
    """Whether torch is installed."""
    return importlib.util.find_spec("torch") is not None


class TorchStore:
    """The running process, a child of the agent, which reaps it.

    Attributes:
        pid: its number.
    """

    def __init__(self, listening_fd: int, port: int) -> None:
        """Start it on a socket that listens at ``port``; OSError if there is no process left."""
        agent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _PROGRAM, str(listening_fd), str(port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the agent's own carries its messages; its stderr is shown to the user
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"},
            pass_fds=[listening_fd],
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(signal.SIGKILL, agent),  # noqa: PLW1509  (the agent has one thread)
        )
        self.pid = self._process.pid

    def kill(self) -> None:
        """End it. REQUIRES: it has not been reaped."""
        os.kill(self.pid, signal.SIGKILL)
