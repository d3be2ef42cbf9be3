"""``--output-dir``: every rank's output, byte for byte, in DIR/rank.N/stdout and DIR/rank.N/stderr.

DIR/rank.N/stacks.txt has the rank's stacks of each time that they were taken, DIR/rank.N/stall.json what it did when
others last waited for some rank; there are none before. DIR/rank.N/records has its calls, where they are recorded, once
the job has ended. Beside them is the job's log (`job_log.py`).
"""

from __future__ import annotations

import os
from pathlib import Path

from ciranda.launch.errors import LaunchError
from ciranda.launch.rotated_file import RotatedFile

STREAMS = ("stdout", "stderr")
STACKS = "stacks.txt"
STALL = "stall.json"
RECORDS = "records"


class OutputDir:
    """Owns the open files. N has as many digits as the highest rank, so that names sort.

    Attributes:
        directory: DIR.
    """

    def __init__(self, directory: Path, size: int, max_bytes: int | None = None) -> None:
        """Create the folders and empty files; LaunchError where that is impossible.

        ``max_bytes`` bounds each file, and each earlier one of the same name (`RotatedFile`).
        """
        self._files: dict[tuple[int, str], RotatedFile] = {}
        self._folders: dict[int, Path] = {}
        self.directory = directory
        self._width = len(str(size - 1))
        self._max_bytes = max_bytes
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
            for name in (STACKS, f"{STACKS}.1", STALL, RECORDS):
                (folder / name).unlink(missing_ok=True)
            for stream in STREAMS:
                self._files[rank, stream] = RotatedFile(folder / stream, self._max_bytes)
        except OSError as error:
            self.close()
            raise LaunchError(f"--output-dir {self.directory}: {error.strerror} ({error.filename})") from None

    def write(self, rank: int, name: str, data: bytes) -> None:
        """Append at once; LaunchError when the disk will not take it."""
        path = self._folders[rank] / name
        try:
            if (rank, name) not in self._files:
                self._files[rank, name] = RotatedFile(path, None if name == RECORDS else self._max_bytes)
            self._files[rank, name].write(data)
        except OSError as error:
            raise LaunchError(f"--output-dir: cannot write {path}: {error.strerror}") from None

    def replace(self, rank: int, name: str, data: bytes) -> None:
        """Make this the content of a file, which a reader finds whole; LaunchError as above."""
        path = self._folders[rank] / name
        new = path.with_name(f".{name}")
        try:
            new.write_bytes(data)
            os.replace(new, path)
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
