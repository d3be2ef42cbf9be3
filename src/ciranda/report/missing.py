"""What a report lacks, in sentences: what was recorded and could not be kept, and ranks of which nothing is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ciranda.report import units
from ciranda.report.job import LeftJob

_MOST_NAMED = 16


def missing_of(job: LeftJob, facts: Mapping[str, Any]) -> Iterator[str]:
    """The sentences; none if nothing is known to be missing."""
    if job.lacks_records is not None:
        yield f"Not all recorded calls could be kept ({job.lacks_records}): the steps are those before."
    recorded = facts["recorded"]
    if job.has_records and recorded is None:
        yield "No rank has recorded a call: the recorded steps did not come, or the ranks ended before."
    if recorded:
        known = {rank["rank"] for rank in recorded["ranks"]}
        without = [rank for rank in job.host_of if rank not in known]
        if without:
            yield f"There are no recorded calls of {_ranks(without)}: they are in no figure on recorded steps."
        if recorded["lost_calls"]:
            yield f"{recorded['lost_calls']} calls came faster than they could be recorded: they are in no such figure."
    counted = {rank["rank"] for rank in facts["ranks"]}
    uncounted = [rank for rank in job.host_of if rank not in counted]
    if job.looks and uncounted:
        yield f"The counters of {_ranks(uncounted)} were never read: they never ran, or their host was lost before."


def _ranks(ranks: Sequence[int]) -> str:
    return units.ranks(sorted(ranks)[:_MOST_NAMED], max(0, len(ranks) - _MOST_NAMED))
