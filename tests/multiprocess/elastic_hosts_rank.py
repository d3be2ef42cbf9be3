"""A rank of an elastic job whose hosts change: rank 0 writes what the discovery script prints.

python elastic_hosts_rank.py FOLDER STEP=HOSTS>SIZE ...

At each of the steps FOLDER/hosts becomes HOSTS ("a:2,b:1"; "-" removes the file), and training waits, committing, until
the world has SIZE ranks. Without ">SIZE" rank 0 waits until the script was asked twice more, and nobody commits. With
"kill" for HOSTS the last rank is killed once, with "kill agent" its agent. With "await HOST" the script's later answers
begin, and training waits, committing, until a rank is on HOST. Each rank that ends prints its size, its steps and its
host.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import ciranda as hvd
from ciranda._frameworks.objects import allgather_object, broadcast_object
from ciranda.elastic import ObjectState, run_fn

FOLDER = Path(sys.argv[1])
PLAN = [(int(step), then) for step, _, then in (argument.partition("=") for argument in sys.argv[2:])]
STEPS = 5


def set_hosts(text: str) -> None:
    if text == "-":
        (FOLDER / "hosts").unlink()
        return
    (FOLDER / "new").write_text(text.replace(",", "\n") + "\n")
    (FOLDER / "new").rename(FOLDER / "hosts")


def wait_for_questions(number: int) -> None:
    asked = FOLDER / "asked"
    n_bytes = asked.stat().st_size + number
    while asked.stat().st_size < n_bytes:
        time.sleep(0.01)


def follow(plan: str, state: Any) -> None:
    hosts, _, size = plan.partition(">")
    if hosts in ("kill", "kill agent"):
        if hvd.rank() == hvd.size() - 1 and not (FOLDER / "killed").exists():
            (FOLDER / "killed").touch()
            os.kill(os.getpid() if hosts == "kill" else os.getppid(), signal.SIGKILL)
            signal.pause()
    elif hosts.startswith("await "):
        (FOLDER / "begun").touch()
        while hosts.removeprefix("await ") not in allgather_object(os.environ["CIRANDA_HOST"]):
            state.commit()
    elif hvd.rank() == 0:
        set_hosts(hosts)
        if not size:
            wait_for_questions(2)
    while size and hvd.size() != int(size):
        hvd.allreduce(np.ones(1), name="which notices that another was lost")
        state.commit()


hvd.init()


def train(state: Any) -> None:
    while state.step < STEPS:
        for number, (step, plan) in enumerate(PLAN):
            if step == state.step and number >= state.n_done:
                follow(plan, state)
                state.n_done = number + 1
        hvd.allreduce(np.ones(1), name="gradient")
        state.step += 1
        state.commit()


state = ObjectState(broadcast_object, hvd.rank, step=0, n_done=0)
run_fn(train, lambda: None)(state)
sys.stdout.write(f"{hvd.size()} {state.step} {os.environ['CIRANDA_HOST']}\n")
