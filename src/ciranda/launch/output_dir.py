"""``--output-dir``: every rank's output, byte for byte, in DIR/rank.N/stdout and DIR/rank.N/stderr.

DIR/rank.N/stacks.txt has the rank's stacks of each time that they were taken; there is none before. DIR/rank.N/records
has its calls, where they are recorded, once the job has ended. Beside them is the job's log (`job_log.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from ciranda.launch.errors import LaunchError

RECORDS = "records"  # the name of a file


class OutputDir:
    """Owns the open files. N has as many digits as the highest rank, so that names sort.

    Attributes:
        directory: DIR.
    """

    def __init__(self, directory: Path, size: int) -> None:
        """Create the folders and empty files; LaunchError where that is impossible."""
        self._files: dict[tuple[int, str], BinaryIO] = {}
        self._folders: dict[int, Path] = {}
        self.directory = directory
        self._width = len(str(size - 1))
        for rank in range(size):
            self.add(rank)

    def add(self, rank: int) -> None:
        """Create a rank's folder and empty files, if it has none; LaunchError where that is impossible."""
        if rank in self._folders:
            return
        folder = self.directory / f"rank.{rank:0{self._width}d}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._folders[rank] = folder
            for name in ("stacks.txt", RECORDS):
                (folder / name).unlink(missing_ok=True)
            for stream in ("stdout", "stderr"):
                self._files[rank, stream] = (folder / stream).open("wb", buffering=0)
        except OSError as error:
            self.close()
            raise LaunchError(f"--output-dir {self.directory}: {error.strerror} ({error.filename})") from None

    def write(self, rank: int, stream: str, data: bytes) -> None:
        """Append at once; LaunchError when the disk will not take it."""
        if (rank, stream) not in self._files:
            self._open(rank, stream)
        file = self._files[rank, stream]
        view = memoryview(data)
        try:
            while view:
                view = view[file.write(view) or 0 :]
        except OSError as error:
            raise LaunchError(f"--output-dir: cannot write {file.name}: {error.strerror}") from None

    def _open(self, rank: int, name: str) -> None:
        path = self._folders[rank] / name
        try:
            self._files[rank, name] = path.open("wb", buffering=0)
        except OSError as error:
            raise LaunchError(f"--output-dir: cannot write {path}: {error.strerror}") from None

    def close(self) -> None:
        """Close the files, all of them; LaunchError if the disk has not taken what was written. Idempotent."""
        failure: OSError | None = None
        while self._files:
            _, file = self._files.popitem()
            try:
                file.close()
            except OSError as error:
                failure = error
        if failure is not None:
            raise LaunchError(f"--output-dir: the files are incomplete: {failure.strerror}")
