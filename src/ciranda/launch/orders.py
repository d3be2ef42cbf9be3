"""The messages that make an agent start its host's ranks. Pure, except that part of the environment is passed on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from ciranda.launch import environment, protocol
from ciranda.launch.job import Job
from ciranda.launch.protocol import Message

#: By rank, the variables that are its alone.
OwnVariables = Mapping[int, Mapping[str, str]]


def orders(
    job: Job,
    host: str,
    ranks: OwnVariables,
    told: Mapping[str, str],
    secret: str,
    is_remote: bool,
    connections: Sequence[str] = (),
) -> Iterator[Message]:
    """The messages for a host and its ranks. ``told`` are variables that all ranks get; ``connections``: Link's."""
    env = environment.forwarded(os.environb, is_remote, job.exclude_env) if job.forwards_env else {}
    env.update({os.fsencode(name): os.fsencode(value) for name, value in told.items()})
    if job.recorded_steps is not None:
        names = (b"CIRANDA_RECORDS_FROM_STEP", b"CIRANDA_RECORDS_UNTIL_STEP")
        env.update(zip(names, map(b"%d".__mod__, job.recorded_steps), strict=True))
    env.setdefault(b"PYTHONUNBUFFERED", b"1")
    yield {
        "t": "spec",
        "version": protocol.VERSION,
        "argv": [protocol.to_text(os.fsencode(argument)) for argument in job.argv],
        "env": {protocol.to_text(name): protocol.to_text(value) for name, value in env.items()},
        "inherit": is_remote or not job.forwards_env,
        "cwd": protocol.to_text(os.fsencode(job.cwd)),
        "ranks": [{"rank": rank, "env": dict(own)} for rank, own in ranks.items()],
        "secret": secret,
        "grace": job.grace_seconds,
        "blobs": list(job.blobs),
        "results": job.want_results,
        "bind_to": job.bind_to,
        "jax_native": job.jax_native,
        "elastic": job.elastic is not None,
        "job": told["CIRANDA_JOB"],
        "host": host,
        "connections": list(connections),
        "metrics": job.metrics,
        "metrics_dir": job.metrics_dir and os.path.join(job.cwd, job.metrics_dir),
        "records": job.recorded_steps is not None,
    }
    for name, content in job.blobs.items():
        for start in range(0, len(content), protocol.CHUNK_BYTES):
            yield {"t": "blob", "name": name, "raw": content[start : start + protocol.CHUNK_BYTES]}
    yield {"t": "start"}
