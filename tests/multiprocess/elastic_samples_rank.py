"""A rank of an elastic job that accounts for samples: within its epochs ranks leave, ranks join, and one is killed.

python elastic_samples_rank.py FOLDER: rank 0 writes what the discovery script prints, FOLDER/hosts, for two hosts with
two slots each. Each rank that ends prints the samples that all ranks together have used, with their epochs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import ciranda as hvd
from ciranda._frameworks.objects import allgather_object
from ciranda._frameworks.sampler import ElasticIndices
from ciranda._frameworks.states import HandledState, SamplerStateHandler
from ciranda.elastic import run_fn

FOLDER = Path(sys.argv[1])
N_SAMPLES = 48
N_BETWEEN_COMMITS = 8
LEAVING, JOINING, DYING = range(3)  # the epochs


def wait_for(size: int, hosts: str, state: Any) -> None:
    """Wait, without a commit, until the world has this size."""
    if hvd.rank() == 0:
        (FOLDER / "new").write_text(hosts)
        (FOLDER / "new").rename(FOLDER / "hosts")
    while hvd.size() != size:
        state.check_host_updates()


def use_one(state: Any) -> None:
    mine = state.sampler.get_indices(0, 1)
    state.used = state.used + [(state.epoch, index) for each in allgather_object(mine) for index in each]
    state.sampler.record_batch(0, 1)
    state.sampler.reset()


def die_once() -> None:
    if hvd.rank() == hvd.size() - 1 and not (FOLDER / "killed").exists():
        (FOLDER / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def train(state: Any) -> None:
    assert len(set(map(tuple, allgather_object(state.used)))) == 1, "the ranks differ after their synchronization"
    while state.epoch <= DYING:
        while state.sampler.processed_num < N_SAMPLES:
            use_one(state)
            if state.sampler.processed_num == N_BETWEEN_COMMITS + 4:  # all differ from their last commits
                if state.epoch == LEAVING:
                    wait_for(2, "localhost:2\n", state)
                elif state.epoch == JOINING:
                    wait_for(4, "localhost:2\n127.0.0.2:2\n", state)
                else:
                    die_once()
            if state.sampler.processed_num % N_BETWEEN_COMMITS == 0:
                state.commit()
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


hvd.init()
sampler = ElasticIndices(range(N_SAMPLES), pad=False)
kept = {"sampler": sampler, "epoch": 0, "used": []}
state = HandledState([(ElasticIndices, SamplerStateHandler)], {}, kept)
run_fn(train, lambda: None)(state)
sys.stdout.write(json.dumps(sorted(state.used)) + "\n")
