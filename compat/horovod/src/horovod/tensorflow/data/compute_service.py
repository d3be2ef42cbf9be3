"""`horovod.tensorflow.data.compute_service`: tf.data's service for training processes of another job.

One job, of `compute_worker`, runs the service's workers, and writes to a file how it is reached. The processes of
another, which trains, read the file and send their datasets there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

import ciranda
from horovod.runner.common.service.compute_service import ComputeClient

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]

_SIDES = ("compute", "training")
_HEARTBEAT_MILLISECONDS = 1000


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """How the compute service is reached, and what it is made of.

    Attributes:
        dispatchers: 1: one for all training processes; else one for each of them.
        workers_per_dispatcher: how many prepare data for each.
        dispatcher_side: where dispatchers run: in the "compute" job, or in the "training" processes.
        addresses: of the compute service, by network interface.
        key: of the compute service; who has it may use it.
        timeout: how many seconds processes wait for each other.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Sequence[tuple[str, int]]]
    key: bytes
    timeout: int = 60

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """Return a client of the compute service."""
        return ComputeClient(self.addresses, self.key, verbose=verbose)

    def to_dict(self) -> Mapping[str, Any]:
        """Return it as JSON can have it."""
        return {**vars(self), "key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """Return what `to_dict()` was made of."""
        addresses = {nic: [(host, port) for host, port in each] for nic, each in config["addresses"].items()}
        return TfDataServiceConfig(**{**config, "addresses": addresses, "key": bytes.fromhex(config["key"])})

    def write(self, filename: str) -> None:
        """Write it to a file, which is there when it is whole, and which nobody else can read: it has the key."""
        path = Path(filename)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
            json.dump(self.to_dict(), file)
        os.replace(file.name, path)

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """Return what was written to a file. Wait for it, without limit, if `wait_for_file_creation` says so."""
        while wait_for_file_creation and not os.path.exists(filename):
            time.sleep(0.2)
        return TfDataServiceConfig.from_dict(json.loads(Path(filename).read_text()))


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """Within this, training process `rank` has a dispatcher with all its workers; gives the dispatcher's address.

    Raises:
        TimeoutException: the dispatcher, or a worker of it, has not come in `compute_config.timeout` seconds.
    """
    client = compute_config.compute_client(verbose=2)
    number = rank if compute_config.dispatchers > 1 else 0
    is_its_own = compute_config.dispatcher_side == "training" and number == rank
    with _dispatcher(client, number) if is_its_own else contextlib.nullcontext():
        address = client.wait_for_dispatcher_registration(number, compute_config.timeout)
        client.wait_for_dispatcher_worker_registration(number, compute_config.timeout)
        yield address


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """Have the service prepare a dataset; also a method of `tf.data.Dataset`.

    Args:
        dataset: what to prepare.
        compute_config: how the service is reached.
        rank: of this training process.
        size: how many training processes there are; needed for `round_robin`.
        processing_mode: see tf.data.experimental.service.distribute().
        reuse_dataset: all training processes with the same dispatcher share one pass over the dataset.
        round_robin: and take turns at it.

    Raises:
        RuntimeError: dispatchers run in the training processes: use `tf_data_service()`, which ends them.
        TimeoutException: the dispatcher, or a worker of it, has not come in `compute_config.timeout` seconds.
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError(
            "the dispatcher runs on the training side: use tf_data_service(), which ends it, as in `with`"
        )
    takes_turns = reuse_dataset and round_robin
    with tf_data_service(compute_config, rank) as address:
        service = tf.data.experimental.service.distribute(
            processing_mode=processing_mode,
            service=address,
            job_name="job" if reuse_dataset else None,
            consumer_index=rank if takes_turns else None,
            num_consumers=size if takes_turns else None,
        )
        return dataset.apply(service)


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Run a worker, and on some ranks a dispatcher, until the compute service is shut down. Each rank calls it."""
    if compute_config.dispatcher_side not in _SIDES:
        raise ValueError(f"dispatcher_side must be one of {_SIDES}, not {compute_config.dispatcher_side!r}")
    ciranda.init()
    rank = ciranda.rank()
    number, place = divmod(rank, compute_config.workers_per_dispatcher)
    client = compute_config.compute_client(verbose=2)
    has_dispatcher = compute_config.dispatcher_side == "compute" and place == 0
    with _dispatcher(client, number) if has_dispatcher else contextlib.nullcontext():
        address = client.wait_for_dispatcher_registration(number, compute_config.timeout)
        with _worker(address, compute_config.timeout):
            client.register_worker_for_dispatcher(number, rank)
            client.wait_for_shutdown()


@contextlib.contextmanager
def _dispatcher(client: ComputeClient, number: int) -> Iterator[None]:
    server = tf.data.experimental.service.DispatchServer()
    try:
        client.register_dispatcher(number, server.target)
        yield
    finally:
        _end(server)


@contextlib.contextmanager
def _worker(dispatcher: str, seconds: int) -> Iterator[None]:
    server = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(
            dispatcher_address=dispatcher.partition("://")[2],
            heartbeat_interval_ms=_HEARTBEAT_MILLISECONDS,
            dispatcher_timeout_ms=1000 * seconds,
        )
    )
    try:
        yield
    finally:
        _end(server)


def _end(server: Any) -> None:
    server._stop()  # no public method does it
    server.join()
