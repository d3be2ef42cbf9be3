"""The workers of a compute service for tf.data.

    horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker FILE

Rank 0 writes to FILE how the service is reached; the processes of a training job read it there.
"""

from __future__ import annotations

import argparse

from horovod.runner.common.service.compute_service import ComputeService
from horovod.runner.common.util import env, secret
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """Run this process's part of the service, until it is shut down.

    Raises:
        ValueError: the processes cannot be divided among so many dispatchers.
    """
    rank, size = env.get_env_rank_and_size()
    if dispatchers <= 0 or size % dispatchers:
        raise ValueError(f"Number of processes ({size}) must be a multiple of number of dispatchers ({dispatchers}).")
    if rank != 0:
        compute_worker_fn(TfDataServiceConfig.read(configfile, wait_for_file_creation=True))
        return
    n_workers = size // dispatchers
    key = secret.make_secret_key()
    service = ComputeService(dispatchers, n_workers, key=key)
    try:
        config = TfDataServiceConfig(
            dispatchers=dispatchers,
            workers_per_dispatcher=n_workers,
            dispatcher_side=dispatcher_side,
            addresses=service.addresses(),
            key=key,
            timeout=timeout,
        )
        config.write(configfile)
        compute_worker_fn(config)
    finally:
        service.shutdown()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prepare data for the training processes of another job.")
    parser.add_argument("configfile", help="the file to which rank 0 writes how the service is reached")
    parser.add_argument(
        "--dispatchers", type=int, default=1, help="1: one for all training processes; else one for each"
    )
    parser.add_argument(
        "--dispatcher-side", default="compute", choices=("compute", "training"), help="where the dispatchers run"
    )
    parser.add_argument("--timeout", type=int, default=60, help="how many seconds processes wait for each other")
    return parser.parse_args()


if __name__ == "__main__":
    parsed = _parse()
    main(parsed.dispatchers, parsed.dispatcher_side, parsed.configfile, parsed.timeout)
