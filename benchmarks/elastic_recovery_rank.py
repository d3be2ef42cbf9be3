"""A rank of benchmarks/elastic_recovery.py. It notes what happens as lines of JSON in FOLDER/PID.

python elastic_recovery_rank.py FOLDER ROUNDS MEGABYTES

In each round a rank is killed, and its successor joins; the ranks are those of an elastic job, torchrun's, or replicas
of torchft. All ranks of a machine share its monotonic clock.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(sys.argv[1])
ROUNDS = int(sys.argv[2])
MEGABYTES = float(sys.argv[3])
STEPS = 20  # of a round, with all ranks
STEP_SECONDS = 0.005


def note(what: str, **more: Any) -> None:
    row = {"what": what, "at": time.monotonic(), "pid": os.getpid(), **more}
    with (FOLDER / str(os.getpid())).open("a") as file:
        file.write(json.dumps(row) + "\n")


def die_once(turn: int) -> None:
    try:
        (FOLDER / f"kill-{turn}").touch(exist_ok=False)
    except FileExistsError:
        return
    note("kill", turn=turn)
    os.kill(os.getpid(), signal.SIGKILL)


def timed(call: Callable[..., None], what: str) -> Callable[..., None]:
    def wrapper(*args: Any) -> None:
        began = time.monotonic()
        call(*args)
        note(what, began=began)

    return wrapper


def elastic() -> None:
    import ciranda as hvd
    from ciranda import _init
    from ciranda._frameworks.objects import broadcast_object
    from ciranda.elastic import ObjectState, run_fn
    from ciranda.errors import RanksLostError

    _init.join = timed(_init.join, "formed")  # where a rank has been told of a world until it is in it
    hvd.init()
    n_ranks = int(os.environ["N_RANKS"])
    if MEGABYTES:
        import torch

        import ciranda.torch

        model = torch.nn.Linear(1, round(MEGABYTES * 1e6 / 4), bias=False)
        state: Any = ciranda.torch.elastic.TorchState(model, turn=0, n_full=0)
    else:
        state = ObjectState(broadcast_object, hvd.rank, turn=0, n_full=0)
    gradient = np.ones(1 << 10, np.float32)

    def train(state: Any) -> None:
        while state.turn < ROUNDS or state.n_full < STEPS:
            if hvd.size() == n_ranks and state.n_full == STEPS and hvd.rank() == state.turn % n_ranks:
                die_once(state.turn)
            time.sleep(STEP_SECONDS)
            try:
                hvd.allreduce(gradient, name="gradient")
                if hvd.size() < n_ranks and state.n_full:
                    state.turn, state.n_full = state.turn + 1, 0
                state.n_full += hvd.size() == n_ranks
                state.commit()
            except RanksLostError:
                note("noticed", turn=state.turn)
                raise
            note("step", turn=state.turn, size=hvd.size())

    run_fn(train, lambda: None)(state)


def torchrun() -> None:
    """As torchrun has it: all processes are started again, and load what rank 0 has written."""
    import torch
    import torch.distributed as dist

    turn = len(list(FOLDER.glob("kill-*")))
    # Not at the agent's store: gloo finds the addresses of processes there that have ended.
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", f"file://{FOLDER}/store-{turn}", rank=rank, world_size=size)
    saved = FOLDER / "checkpoint"
    done = torch.load(saved) if saved.exists() else 0
    gradient = torch.ones(1 << 10)
    for step in range(done, (ROUNDS + 1) * STEPS):
        if step == (turn + 1) * STEPS and turn < ROUNDS and dist.get_rank() == turn % dist.get_world_size():
            die_once(turn)
        time.sleep(STEP_SECONDS)
        dist.all_reduce(gradient)
        if dist.get_rank() == 0:
            torch.save(step + 1, saved)
        dist.barrier()
        note("step", turn=turn, size=dist.get_world_size())
    dist.destroy_process_group()


def torchft() -> None:
    """A replica of torchft, which survivors leave out of their next step; it gets its state from one of them."""
    import torch
    import torch.distributed as dist
    from torchft import Manager, ProcessGroupGloo  # type: ignore[import-not-found]

    n_ranks = int(os.environ["N_RANKS"])
    place = int(os.environ["PLACE"])
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    gradient = torch.ones(1 << 10)
    n_full = 0

    def load(kept: dict[str, int]) -> None:
        nonlocal n_full
        n_full = kept["n_full"]

    manager = Manager(
        pg=ProcessGroupGloo(),
        load_state_dict=load,
        state_dict=lambda: {"n_full": n_full},
        min_replica_size=1,
        replica_id=f"{place}-{os.getpid()}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
    )
    turn = len(list(FOLDER.glob("kill-*")))
    while turn < ROUNDS or n_full < STEPS:
        seen = len(list(FOLDER.glob("kill-*")))
        if seen > turn:
            turn, n_full = seen, 0
        if n_full >= STEPS and place == turn % n_ranks:
            die_once(turn)
        manager.start_quorum()
        time.sleep(STEP_SECONDS)
        manager.allreduce(gradient.clone()).wait()
        if manager.should_commit():
            n_full += manager.num_participants() == n_ranks
            note("step", turn=turn, size=manager.num_participants())
    os._exit(0)


if "CIRANDA_JOB" in os.environ:
    elastic()
elif "TORCHFT_LIGHTHOUSE" in os.environ:
    torchft()
else:
    torchrun()
