"""All checks, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ciranda.doctor import (
    bindings,
    engine,
    gpus,
    launcher,
    limits,
    machine,
    network,
    settings,
    shared_memory,
    software,
)
from ciranda.doctor.finding import Finding

Check = Callable[[], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    software.python,
    software.frameworks,
    bindings.bindings,
    machine.processor,
    machine.cores,
    machine.memory,
    shared_memory.shared_memory,
    limits.open_files,
    limits.processes,
    network.host_name,
    network.interfaces,
    network.loopback,
    network.ports,
    network.congestion_control,
    software.ssh_client,
    engine.library,
    engine.simd,
    gpus.gpus,
    settings.settings,
    launcher.allocation,
    launcher.launcher,
    engine.two_ranks,
)


def examine(checks: Iterable[Check] = CHECKS) -> list[Finding]:
    """Run the checks; one that breaks becomes a failed finding of its name."""
    findings: list[Finding] = []
    for check in checks:
        name = getattr(check, "__name__", "check").replace("_", " ")
        try:
            findings += check()
        except Exception as error:
            findings.append(Finding(name, "fail", f"the check itself broke: {error!r}", "please report this"))
    return findings
