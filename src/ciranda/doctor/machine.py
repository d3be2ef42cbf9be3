"""Processor, cores and memory."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import psutil

from ciranda.doctor.finding import Finding

_CGROUP = Path("/sys/fs/cgroup")
_INTERESTING_FLAGS = ("avx2", "f16c", "fma", "avx512f", "avx512bw", "avx512_bf16", "avx512_fp16", "amx_bf16")


def processor() -> Iterator[Finding]:
    """Its model and the instruction sets that matter here."""
    facts = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines())
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    model = facts.get("model name", platform.machine())
    flags = set(facts.get("flags", "").split())
    found = [flag for flag in _INTERESTING_FLAGS if flag in flags]
    text = f"{model} ({platform.machine()}): {', '.join(found) or 'no vector extensions that matter here'}"
    if platform.machine() == "x86_64" and "avx2" not in flags:
        yield Finding("processor", "warn", text, "without AVX2 reductions are several times slower; it works")
        return
    yield Finding("processor", "ok", text)


def cores() -> Iterator[Finding]:
    """How many this process may use, of how many, and whether a quota takes away more."""
    usable = len(os.sched_getaffinity(0))
    present = os.cpu_count() or usable
    quota = cpu_quota()
    text = f"{usable} of {present} cores usable"
    if quota is not None:
        text += f", quota of {quota:.2g} cores"
    if quota is not None and quota < usable:
        advice = f"a control group allows {quota:.2g} cores: start at most {max(1, int(quota))} ranks here, or raise it"
        yield Finding("cores", "warn", text, advice)
    elif usable < 2:
        yield Finding("cores", "warn", text, "several ranks share one core: they work, but take turns")
    else:
        yield Finding("cores", "ok", text)


def cpu_quota(root: Path = _CGROUP, own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Cores that control groups (v2, this one and those above) allow, or None without a limit."""
    limits = []
    for folder in _groups(root, own):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue
        if quota != "max":
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def _groups(root: Path, own: Path) -> Iterator[Path]:
    try:
        entries = own.read_text().splitlines()
    except OSError:
        return
    for entry in entries:
        if entry.startswith("0::"):
            folder = root / entry[3:].lstrip("/")
            yield from (path for path in (folder, *folder.parents) if path == root or root in path.parents)


def memory() -> Iterator[Finding]:
    """Total and available."""
    state = psutil.virtual_memory()
    text = f"{state.available / 2**30:.1f} GiB available of {state.total / 2**30:.1f} GiB"
    if state.available < 1 << 30:
        yield Finding("memory", "warn", text, "less than 1 GiB is left: end other programs, or start fewer ranks")
    else:
        yield Finding("memory", "ok", text)
