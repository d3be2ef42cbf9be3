"""Run torch's own tests of torch.distributed, which come with torch, by this backend and by gloo, and print the score.

    python tests/ecosystem/c10d.py [--ranks 2] [--backends gloo ciranda] [-k all_reduce ...] [--seconds 1800]

They need the package `expecttest`. Each test starts processes of its own, and takes seconds. Tests of GPUs are skipped.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from pathlib import Path
from typing import Any

if "BACKEND" in os.environ:  # in the process that runs the tests by one backend, and in the ranks that it starts
    from torch.testing._internal.common_distributed import DistTestCases

    import ciranda.torch.distributed  # noqa: F401

    for feature in ("ddp", "subgroup"):
        DistTestCases.backend_feature[feature].add("ciranda")

    from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

    class TorchsOwn(TestDistBackend, DistributedTest._DistTestBase):  # type: ignore[misc]
        """The tests, each in as many processes as WORLD_SIZE says."""

        def setUp(self) -> None:
            """Start the processes: by fork, as most of the time would go into importing torch."""
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)


class _Printed(unittest.TestResult):
    """Prints a line for each test when it has ended, for the process that counts."""

    def _print(self, outcome: str, test: unittest.TestCase, why: str = "") -> None:
        sys.stdout.write(f"\n::{outcome} {test.id().rpartition('.')[2]} {' '.join(why.split())[:300]}\n")
        sys.stdout.flush()

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self._print("passed", test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self._print("skipped", test, reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self._print("failed", test, str(err[1])[-300:])

    addError = addFailure  # noqa: N815


def _run_here(words: list[str], seconds: float) -> None:
    """In a process of one backend."""
    deadline = time.monotonic() + seconds
    for name in unittest.TestLoader().getTestCaseNames(TorchsOwn):
        if words and not any(word in name for word in words):
            continue
        if time.monotonic() > deadline:
            break
        TorchsOwn(name).run(_Printed())


def _outcomes(backend: str, options: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """Run the tests by one backend; return each one's outcome and why."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "barrier").touch()
        environment = {**os.environ, "BACKEND": backend, "WORLD_SIZE": str(options.ranks), "TEMP_DIR": folder}
        command = [sys.executable, __file__, "--seconds", str(options.seconds), "-k", *options.k]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            found = {}
            for line in process.stdout:
                if options.verbose:
                    sys.stderr.write(line)
                if line.startswith("::"):
                    outcome, name, *why = line[2:].rstrip().split(" ", 2)
                    found[name] = (outcome, "".join(why))
                    sys.stderr.write(f"{backend}: {name} {outcome}\n")
    return found


def main() -> None:
    """Run the tests by each backend and print the score, and what one does and another does not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=["gloo", "ciranda"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no test of a backend after that time")
    parser.add_argument("-k", nargs="*", default=[], help="only tests with one of these words in their name")
    parser.add_argument("--verbose", action="store_true", help="print what the tests print")
    options = parser.parse_args()
    if "BACKEND" in os.environ:
        _run_here(options.k, options.seconds)
        return
    outcomes = {backend: _outcomes(backend, options) for backend in options.backends}
    for backend, found in outcomes.items():
        counts = Counter(outcome for outcome, _ in found.values())
        score = ", ".join(f"{counts[each]} {each}" for each in ("passed", "failed", "skipped"))
        sys.stdout.write(f"{backend}: {score}\n")
    for name in sorted({name for found in outcomes.values() for name in found}):
        row = {backend: found.get(name, ("not run", "")) for backend, found in outcomes.items()}
        if len({outcome for outcome, _ in row.values()}) > 1:
            sys.stdout.write(
                f"{name}\n" + "".join(f"    {backend}: {' '.join(each)}\n" for backend, each in row.items())
            )


if __name__ == "__main__":
    main()
