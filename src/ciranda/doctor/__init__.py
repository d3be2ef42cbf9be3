"""``ciranda doctor``: what this machine has, what works, and what to do about what does not.

Every check is a small function without arguments that returns Findings, tries the thing itself where it can, and never
raises: what goes wrong inside one is a finding too.
"""

from __future__ import annotations

from ciranda.doctor.bundle import write as write_bundle
from ciranda.doctor.examine import examine
from ciranda.doctor.finding import Finding, Status
from ciranda.doctor.report import show, to_json, versions_to_text
from ciranda.doctor.versions import versions_here

__all__ = ["Finding", "Status", "examine", "show", "to_json", "versions_here", "versions_to_text", "write_bundle"]
