"""The files of --output-dir with a bound, and the ranks of --ranks."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from random import Random

import pytest

from ciranda.launch.errors import LaunchError
from ciranda.launch.output_dir import OutputDir
from ciranda.launch.rotated_file import RotatedFile
from ciranda.launch.screen_options import parse_max_bytes, parse_ranks


def test_a_bounded_file_keeps_the_newest_whole_lines(tmp_path: Path) -> None:
    random = Random(1)
    n_earlier = 0
    for _ in range(300):
        max_bytes = random.randint(1, 20)
        pieces = ["".join(random.choices("ab\n\r", (4, 4, 1, 1), k=random.randint(0, 9))).encode() for _ in range(20)]
        first, last = written_to(tmp_path / "stdout", max_bytes, pieces)
        n_earlier += bool(first)
        assert max(len(first), len(last)) <= max_bytes
        assert b"".join(pieces).endswith(first + last), "only the oldest is lost"
        assert first or last == b"".join(pieces), "nothing is lost before there is an earlier file"
        if first and not first.endswith((b"\n", b"\r")):
            torn = re.split(rb"[\r\n]", first)[-1] + re.split(rb"[\r\n]", last)[0]
            assert len(torn) >= max_bytes, f"a line that would fit is torn: {first!r} {last!r}"
    assert n_earlier > 200


def written_to(path: Path, max_bytes: int, pieces: list[bytes]) -> tuple[bytes, bytes]:
    file = RotatedFile(path, max_bytes)
    for piece in pieces:
        file.write(piece)
    file.close()
    earlier = path.with_name("stdout.1")
    return earlier.read_bytes() if earlier.exists() else b"", path.read_bytes()


def test_an_unbounded_file_has_all(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "x")
    file.write(b"x" * 100_000)
    file.close()
    assert (tmp_path / "x").stat().st_size == 100_000
    assert os.listdir(tmp_path) == ["x"]


def test_files_of_an_earlier_job_are_not_taken_for_this_one(tmp_path: Path) -> None:
    folder = tmp_path / "rank.0"
    folder.mkdir()
    for name in ("stdout.1", "stderr.1", "stacks.txt", "stacks.txt.1", "stall.json"):
        (folder / name).write_text("old")
    OutputDir(tmp_path, 1, 4096).close()
    assert sorted(os.listdir(folder)) == ["stderr", "stdout"]


def test_ranks_are_chosen() -> None:
    assert parse_ranks("0,3", 4) == {0, 3}
    assert parse_ranks(" 0-2, 5", None) == {0, 1, 2, 5}
    for text in ("", "x", "1-0", "0,", "-1", "0-", "4"):
        with pytest.raises(LaunchError, match="--ranks"):
            parse_ranks(text, 4)


def test_sizes_have_units() -> None:
    assert parse_max_bytes("10000") == 10_000
    assert parse_max_bytes("100M") == parse_max_bytes("100MB") == 100 << 20
    for text in ("", "M", "1", "1.5G"):
        with pytest.raises(LaunchError, match="--output-max-bytes"):
            parse_max_bytes(text)


def test_a_job_shows_chosen_ranks_and_bounds_its_files(tmp_path: Path) -> None:
    script = "i=0; while [ $i -lt 2000 ]; do echo $CIRANDA_RANK line $i; i=$((i+1)); done"
    command = [
        "ciranda",
        "run",
        "-np",
        "3",
        "--ranks",
        "1-1",
        "--output-dir",
        str(tmp_path),
        "--output-max-bytes",
        "8K",
    ]
    done = subprocess.run([*command, "sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"[1]<stdout>:1 line {i}\n" for i in range(2000))
    for rank in range(3):
        folder = tmp_path / f"rank.{rank}"
        found = [(folder / name).read_bytes() for name in ("stdout.1", "stdout")]
        assert max(map(len, found)) <= 8192
        all_lines = "".join(f"{rank} line {i}\n" for i in range(2000)).encode()
        assert all_lines.endswith(b"".join(found))
        assert b"".join(found).startswith(b"%d line " % rank)
    refused = subprocess.run([*command[:5], "7", "true"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "there is no rank 7, of 3" in refused.stderr
