"""What a machine with a GPU can tell of Ciranda: each part in a world of its own, a row and a line of JSON for each.

    python tests/gpu/check.py --json gpu-check.json      # some minutes; `make gpu-check` brings what it needs

Ranks share the GPU. A part that fails shows the end of its output, and the others go on. The exit code is 1 if any has.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

PARTS = Path(__file__).with_name("parts.py")
EXAMPLES = Path(__file__).parents[2] / "examples"
IN_TURN = Path(__file__).parents[1] / "multiprocess" / "in_turn.py"
#: Each part, and in worlds of how many ranks. Those that are not "staged" go by peer where they can.
PLAN = {
    "probe": (1,),
    "doctor": (1,),
    "collectives": (1, 2, 4),
    "collectives, staged": (2,),
    "large": (2,),
    "large, staged": (2,),
    "together": (2,),
    "streams": (2,),
    "shapes": (2,),
    "freed": (2,),
    "never_waited_for": (2,),
    "trainings": (2,),
    "trainings, staged": (2,),
    "examples": (2,),
    "begins_anew": (2,),
    "a_rank_is_killed": (3,),
    "a_rank_is_stopped": (3,),
    "a_kernel_fails": (2,),
    "a_kernel_takes_long": (2,),
    "figures": (2,),
    "figures, staged": (2,),
}
STAGED = ", staged"
_LARGE_BYTES = 20 << 30  # what two ranks stage, and as much again on a GPU that is simulated
#: In which a rank does not end well, as it should.
END_BADLY = ("a_rank_is_killed", "a_rank_is_stopped")
#: For faults that only the limit of stalls ends.
SOON = {"CIRANDA_STALL_WARNING_SECONDS": "1", "CIRANDA_STALL_SHUTDOWN_SECONDS": "3"}
_TAIL = 3000


def program_of(part: str, small: bool) -> list[str]:
    """Return what each rank runs."""
    if part != "examples":
        return [str(PARTS), part.removesuffix(STAGED), *(["--small"] if small else [])]
    names = ["ddp"] if small else ["accumulation", "ddp", "gradient_clipping", "mixed_precision", "uneven_batches"]
    return [str(IN_TURN), "--device", "cuda", *(str(EXAMPLES / f"{name}.py") for name in names)]


def found_by(part: str, said: str) -> Any:
    """Return what the part has found, or nothing if it has not ended well."""
    if part == "examples":
        return [line for line in said.splitlines() if line.startswith("same as one process")]
    return next((json.loads(line[5:]) for line in said.splitlines() if line.startswith("JSON ")), None)


def worlds_of(part: str, small: bool) -> tuple[int, ...]:
    """Return how many ranks each world of the part has: of one world, if all is small."""
    worlds = PLAN[part]
    return worlds[len(worlds) // 2 :][:1] if small else worlds


def cannot_run(part: str) -> str:
    """Return why a part cannot run here; nothing if it can."""
    if part == "examples" and importlib.util.find_spec("sklearn") is None:
        return "needs scikit-learn"
    if part.startswith("large") and psutil.virtual_memory().available < _LARGE_BYTES:
        return f"needs {_LARGE_BYTES >> 30} GiB of free memory"
    return ""


def run(part: str, n_ranks: int, small: bool, seconds: float) -> dict[str, Any]:
    """Run one part; return its row."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", "--no-prefix", "--grace", "5", "-np", str(n_ranks)]
    command += [sys.executable, *program_of(part, small)]
    settings = {"CIRANDA_GPU_WAY": "staged"} if part.endswith(STAGED) else {}
    settings |= SOON if part in ("a_rank_is_stopped", "a_kernel_takes_long") else {}
    try:
        done = subprocess.run(
            command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=seconds, check=False
        )
        status, said = done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        status, said = 124, "".join(str(each or b"") for each in (late.stdout, late.stderr))
    found = found_by(part, said)
    row: dict[str, Any] = {"part": part, "ranks": n_ranks, "seconds": round(time.monotonic() - begin, 1)}
    is_right = bool(found) and (status == 0 or part in END_BADLY)
    row |= {"passed": is_right, "found": found}
    if not is_right:
        row |= {"status": status, "output": said[-_TAIL:]}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="a line for each part, written as it ends")
    parser.add_argument(
        "--small", action="store_true", help="few worlds, small sizes and few turns: to try the check itself"
    )
    parser.add_argument("--seconds", type=float, default=90, help="at most, for each part")
    parser.add_argument("parts", nargs="*", default=list(PLAN), help=f"of {', '.join(PLAN)}; all by default")
    arguments = parser.parse_args()
    n_failed = 0
    for part in arguments.parts:
        for n_ranks in worlds_of(part, arguments.small):
            if why_not := cannot_run(part):
                row: dict[str, Any] = {"part": part, "ranks": n_ranks, "left out": why_not}
                print(f"{part:19} {n_ranks} ranks left out: {why_not}", flush=True)
            else:
                row = run(part, n_ranks, arguments.small, arguments.seconds)
                n_failed += not row["passed"]
                print(f"{part:19} {n_ranks} ranks {row['seconds']:6.1f} s  {'passed' if row['passed'] else 'FAILED'}")
                print(f"    {json.dumps(row['found'])}" if row["passed"] else row["output"], flush=True)
            if arguments.json:
                with arguments.json.open("a") as lines:
                    lines.write(json.dumps(row) + "\n")
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()
