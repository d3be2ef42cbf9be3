"""Joining the world by files, under engines that number their processes but give them no store, such as srun.

The files are in a folder that all nodes share and only the user can enter: the job's secret is in one of them until all
ranks have read it. Each job has a folder of its own there, named by what tells it from all others. Every rank writes a
claim: its host, and a number that it has drawn. Rank 0 waits for all claims, hosts the rendezvous, and writes an answer
with those numbers, by which a rank knows that the answer is to its own claim: not to that of a process before it, as in
a requeued job or an earlier command of the same job step.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ciranda import _core
from ciranda.engines import rendezvous
from ciranda.engines.identity import Identity, identity
from ciranda.errors import InvalidArgumentError, TimeoutError

#: Names another folder for the files than the user's cache.
FOLDER = "CIRANDA_HANDOVER_FOLDER"

_PREFIX = "ciranda-"
_OF_A_JOB = re.compile(_PREFIX + r".+-[0-9a-f]{16}")
_OF_A_RANK = re.compile(r"claim-[0-9]+|answer|\.(claim-[0-9]+|answer)-[0-9a-f]{16}")
_ANSWER_SECONDS = 10.0  # for rank 0 to host the rendezvous, once all have come
_SWEEP_SECONDS = 7 * 24 * 3600

# Between looks at the folder. Many ranks look less often: all do at the same file server.
_FIRST_SLEEP_SECONDS = 0.002
_SLEEP_SECONDS_PER_RANK = 0.004
_LONGEST_SLEEP_SECONDS = 0.2


def by_files(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the engine's settings, agreed on by files. REQUIRES: identity(environ) is not None.

    Raises:
        InvalidArgumentError: the folder cannot be used, or others may enter it.
        TimeoutError: a rank did not come within CIRANDA_START_TIMEOUT; the message names it.
    """
    found = identity(environ)
    assert found is not None
    folder = safe_folder(environ)
    if found.rank == 0:
        sweep(folder)
    place = _Place(found, folder / folder_name(found))
    claim = {"nonce": secrets.token_hex(16), **rendezvous.claim(found.local_rank)}
    place.write(f"claim-{found.rank}", claim)
    try:
        if found.rank == 0:
            _answer_all(place)
        answer = _answer_to(place, claim)
    finally:
        place.remove(f"claim-{found.rank}")
        if found.rank == 0:
            place.wait(lambda: not place.claims(), _ANSWER_SECONDS)  # all have read it
            place.remove("answer")
    return rendezvous.told(found.rank, found.size, answer)


def folder_name(found: Identity) -> str:
    """Return the name of the folder of a job: readable, and its own also after a requeue."""
    words = "-".join(re.sub(r"[^A-Za-z0-9]+", ".", found.variables[name]) for name in found.engine.job)
    return f"{_PREFIX}{found.engine.name}-{words[:60]}-{hashlib.sha256(found.job.encode()).hexdigest()[:16]}"


def safe_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder for the files of all jobs of this user, which is made if it is missing.

    Raises:
        InvalidArgumentError: it cannot be made, is another user's, or others may enter it.
    """
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(environ.get(FOLDER) or os.path.join(cache, "ciranda", "handover"))
    remedy = (
        f"set {FOLDER} to a folder that all nodes share and only you can enter, or start the job with 'ciranda run'"
    )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise InvalidArgumentError(
            f"init() cannot use the folder {folder}, where ranks leave the job's address and secret for each other: "
            f"{error.strerror}; {remedy}"
        ) from None
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise InvalidArgumentError(
            f"init() does not leave the job's secret in {folder}, which others may enter (owner {found.st_uid}, mode "
            f"{stat.S_IMODE(found.st_mode):o}): chmod 700 it if it is yours, or {remedy}"
        )
    return folder


def sweep(folder: Path) -> None:
    """Remove what killed jobs have left there: no rank waits so long. All else in the folder is the user's."""
    for left in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _SWEEP_SECONDS and _OF_A_JOB.fullmatch(left.name):
                for file in left.iterdir():
                    if _OF_A_RANK.fullmatch(file.name):
                        file.unlink()
                left.rmdir()


class _Place:
    """The folder of a job, and how long its ranks wait for each other there."""

    def __init__(self, found: Identity, path: Path) -> None:
        self.identity = found
        self.path = path
        self.seconds = float(_core.effective_settings()["CIRANDA_START_TIMEOUT"])
        self._deadline = time.monotonic() + self.seconds

    def write(self, name: str, content: object) -> None:
        """Write a file that is complete when it appears. Another job's last rank may just remove the folder."""
        temporary = self.path / f".{name}-{secrets.token_hex(8)}"
        while True:
            try:
                self.path.mkdir(mode=0o700, exist_ok=True)
                fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise InvalidArgumentError(f"init() cannot write to {self.path}: {error.strerror}") from None
            break
        with open(fd, "w", encoding="ascii") as file:
            json.dump(content, file)
        temporary.replace(self.path / name)

    def read(self, name: str) -> Any:
        """Return the content of a file, or None if it is not there."""
        try:
            return json.loads((self.path / name).read_text(encoding="ascii"))
        except OSError:
            return None

    def claims(self) -> list[str]:
        """Return the names of all claims."""
        try:
            return [name for name in os.listdir(self.path) if name.startswith("claim-")]
        except OSError:
            return []

    def remove(self, name: str) -> None:
        """Remove a file, and the folder if it was the last."""
        with suppress(OSError):
            (self.path / name).unlink()
        with suppress(OSError):
            self.path.rmdir()

    def wait(self, is_done: Callable[[], bool], more_seconds: float = 0.0) -> bool:
        """Wait until it is done; return whether it is."""
        sleep = _FIRST_SLEEP_SECONDS
        longest = min(_SLEEP_SECONDS_PER_RANK * self.identity.size, _LONGEST_SLEEP_SECONDS)
        while not is_done():
            if time.monotonic() > self._deadline + more_seconds:
                return False
            time.sleep(sleep)
            sleep = min(1.5 * sleep, longest)
            with suppress(OSError):
                os.utime(self.path)  # a client of NFS looks anew for names that it did not find
        return True


def _answer_all(place: _Place) -> None:
    """Wait for all claims, and write an answer to those that have come: the rendezvous, or why there is none."""
    size = place.identity.size
    claims: dict[int, Any] = {}

    def all_have_come() -> bool:
        for rank in range(size):
            if rank not in claims and (claim := place.read(f"claim-{rank}")) is not None:
                claims[rank] = claim
        return len(claims) == size

    try:
        if not place.wait(all_have_come):
            missing = [str(rank) for rank in range(size) if rank not in claims]
            names = rendezvous.listed(missing)
            raise TimeoutError(
                f"rank {names} of {size} did not come to {place.path} within {place.seconds:g} s: {_hint(place)}"
            )
        answer = rendezvous.host([claims[rank] for rank in range(size)])
    except (InvalidArgumentError, TimeoutError) as error:
        answer = rendezvous.failure(error)
    place.write("answer", {"nonces": [claim["nonce"] for claim in claims.values()], **answer})


def _answer_to(place: _Place, claim: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for the answer to this rank's claim."""
    found: dict[str, Any] = {}

    def is_answered() -> bool:
        answer = place.read("answer") or {}
        if claim["nonce"] in answer.get("nonces", ()):
            found.update(answer)
        return bool(found)

    rank, size = place.identity.rank, place.identity.size
    if not place.wait(is_answered, _ANSWER_SECONDS):
        raise TimeoutError(
            f"init() of rank {rank} of {size}: rank 0 gave no answer in {place.path} within "
            f"{place.seconds + _ANSWER_SECONDS:g} s: {_hint(place)}"
        )
    rendezvous.raise_failure(rank, size, found)
    return found


def _hint(place: _Place) -> str:
    return (
        f"do all processes of {place.identity.words} call init()? Is the folder on a file system that all nodes share? "
        f"{FOLDER} names another, and 'ciranda run' needs none"
    )
