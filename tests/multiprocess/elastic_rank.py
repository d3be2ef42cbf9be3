"""A rank of an elastic job that keeps account of what it does, and has a fault at one place, once in the job.

python elastic_rank.py FOLDER STEPS [FAULT ...]

A fault is "SLOT:PLACE:STEP", or "SLOT:PLACE" where there are no steps. The state is one number, to which every
step adds what the ranks agree on, so that it shows how often each step was done. Accounts are lines of JSON in
FOLDER/PID.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import ciranda as hvd
from ciranda import _core
from ciranda._frameworks.objects import allgather_object, broadcast_object
from ciranda.elastic import ObjectState, run_fn
from ciranda.errors import RanksLostError

FOLDER = Path(sys.argv[1])
STEPS = int(sys.argv[2])
FAULTS = sys.argv[3:]
IS_FIRST_LIFE = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
SLOT = os.environ["CIRANDA_RANK"]  # in its first life
FULL_SIZE = int(os.environ["FULL_SIZE"])
SIZE = int(os.environ.get("SIZE", "4"))


def note(what: str, **more: Any) -> None:
    row = {"pid": os.getpid(), "what": what, "rank": hvd.rank(), "size": hvd.size(), "at": time.monotonic(), **more}
    with (FOLDER / str(os.getpid())).open("a") as file:
        file.write(json.dumps(row) + "\n")


def is_first(name: str) -> bool:
    """Whether no process has done this before."""
    try:
        (FOLDER / f"fault-{name}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def maybe(place: str, step: int | None = None) -> None:
    """Have the fault of this place, if this process is to have one here."""
    name = f"{SLOT}:{place}" if step is None else f"{SLOT}:{place}:{step}"
    if place.endswith("_always") and not IS_FIRST_LIFE:
        name = next((fault for fault in FAULTS if fault.endswith(place)), "")
    if name in FAULTS and (place.endswith("_always") or (IS_FIRST_LIFE and is_first(name))):
        if place in ("raise", "raise_always"):
            raise ValueError(f"slot {SLOT} cannot go on")
        if place == "leave":
            sys.exit(0)
        if place == "leave_forming":
            os._exit(0)
        if place == "pause":
            subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {os.getpid()}"])
        if place == "memory":
            use_all_memory(Path(os.environ["MEMORY_GROUP"]))
        worker = os.getppid()
        if place in ("guardian", "agent_and_guardian"):
            os.kill(psutil.Process(worker).ppid(), signal.SIGKILL)
        if place in ("agent", "agent_and_guardian"):
            os.kill(worker, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGSTOP if place in ("stop", "pause") else signal.SIGKILL)


def use_all_memory(group: Path) -> None:
    """Enter a control group, and write to more memory than it has."""
    (group / "cgroup.procs").write_text(str(os.getpid()))
    taken = []
    while True:
        taken.append(bytearray(b"x") * (8 << 20))


class State(ObjectState):
    """Two objects that are synchronized one after the other, with faults in between."""

    def on_too_few(self) -> None:
        note("too_few", step=self.step, total=self.total)

    def check_host_updates(self) -> None:
        maybe("commit", self.step)
        super().check_host_updates()

    def sync(self) -> None:
        self.step = broadcast_object(self.step)
        maybe("sync")
        if hvd.size() == FULL_SIZE and self.n_commits > 0:
            maybe("later_sync")
        super().sync()


connect = _core.connect


def connect_with_faults(epoch: int, *args: Any) -> Any:
    maybe("forming")
    if epoch > 0:
        maybe("forming_again")
        maybe("leave_forming")
    return connect(epoch, *args)


_core.connect = connect_with_faults
maybe("before_init")
while "LATE" in os.environ and not IS_FIRST_LIFE and not (FOLDER / "half").exists():
    time.sleep(0.01)  # as long as its imports take
if os.environ.get("TOLD_OTHERWISE") == SLOT:
    os.environ["CIRANDA_CROSS_SIZE"] = "7"  # as if a host had come after the others were started
hvd.init()
note("start")


def lost_with(handle: Any) -> dict[str, Any]:
    try:
        hvd.synchronize(handle)
    except RanksLostError as error:
        return {"ranks": error.ranks, "epoch": error.epoch, "text": str(error)}
    raise AssertionError("it came to an end without the lost rank")


@cache
def buffer() -> Any:
    """Memory that the ranks of the first world share; they keep it, those that come later have their own."""
    return hvd.empty(SIZE) if IS_FIRST_LIFE else np.zeros(SIZE)


def step_of(state: Any) -> None:
    mine = buffer() if "IN_PLACE" in os.environ else np.empty(SIZE)
    mine[:] = state.step + 1
    before, state.total = state.total, -1.0  # a step that is cut off leaves the state in between
    if "PENDING" in os.environ and f"{SLOT}:idle:{state.step}" in FAULTS and IS_FIRST_LIFE:
        while len(list(FOLDER.glob(f"pending-{state.step}-*"))) < hvd.size() - 1:
            time.sleep(0.01)  # until no other is still in the commit before, which would fail there
    maybe("idle", state.step)
    if f"{SLOT}:allreduce:{state.step}" in FAULTS:
        start = hvd.allreduce_async_ if "IN_PLACE" in os.environ else hvd.allreduce_async
        start(mine, op=hvd.Average, name="gradient")
    maybe("allreduce", state.step)
    maybe("stop", state.step)
    maybe("pause", state.step)
    pending = hvd.allreduce_async(mine, op=hvd.Average, name="pending") if "PENDING" in os.environ else None
    (FOLDER / f"pending-{state.step}-{SLOT}").touch()
    try:
        add = hvd.allreduce_ if "IN_PLACE" in os.environ else hvd.allreduce
        agreed = add(mine, op=hvd.Average, name="gradient")
    except RanksLostError as error:
        note("lost", ranks=error.ranks, epoch=error.epoch, text=str(error))
        if pending is not None:
            note("lost", **lost_with(pending))
        raise
    if pending is not None:
        hvd.synchronize(pending)
    state.total = 0.75 * before + agreed[0]
    state.step += 1


def train(state: Any) -> str:
    note("train", step=state.step, total=state.total)
    assert len(set(allgather_object((state.step, state.total)))) == 1, "the ranks differ after their synchronization"
    while state.step < STEPS:
        if state.step == STEPS // 2:
            (FOLDER / "half").touch()
        while state.step == STEPS // 2 and hvd.size() < FULL_SIZE:
            state.commit()  # until all are back
        maybe("raise_always")
        maybe("raise", state.step)
        maybe("leave", state.step)
        for place in ("agent", "guardian", "agent_and_guardian", "memory"):
            maybe(place, state.step)
        step_of(state)
        note("step", step=state.step, total=state.total)
        state.commit()
        note("commit", step=state.step, total=state.total)
    if f"{SLOT}:further" in FAULTS:
        hvd.allreduce(np.ones(1), name="a step more")
    if f"{SLOT}:save" in FAULTS:
        while len(list(FOLDER.glob("returned-*"))) < FULL_SIZE - 1:
            time.sleep(0.01)
        maybe("save")
        note("saved")
    (FOLDER / f"returned-{SLOT}").touch()
    return "done"


def adapt() -> None:
    """What all ranks of a world do together, or none."""
    note("adapt")
    assert hvd.allreduce(np.ones(1), op=hvd.Sum, name="adapted")[0] == hvd.size()


state = State(broadcast_object, hvd.rank, step=0, total=0.0)
state.register_reset_callbacks([adapt])
assert run_fn(train, lambda: None)(state) == "done"
note("end", step=state.step, total=state.total)
