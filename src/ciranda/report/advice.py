"""What to try to make a job faster, from its facts, in the order of what it may gain. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ciranda.launch import in_flight
from ciranda.report import units
from ciranda.report.bandwidth import share_of_bandwidth
from ciranda.report.standstill import first_difference

_LEAST = 0.03  # of a step: less is not worth advice
_BUSY = 0.8  # of a core
_N_SAMPLES = 40
_SMALL_BYTES = 64 << 10

_EVEN_OUT = (
    "Give it as much work as the others, and cores of its own (--bind-to core), or look at what else runs on its host"
)
_LOAD_AHEAD = "Load its data ahead, by more workers, and look at what else runs on its host"
#: By what a rank mostly did, as `ciranda.launch.doing` says it.
_REMEDIES = {
    "computes": _EVEN_OUT,
    "no core": _EVEN_OUT,
    "throttled": "Raise the limit of its cgroup (the CPU limit of its container), or start fewer ranks in it",
    "stopped": "Find out who sends it SIGSTOP, or which debugger holds it",
    "memory": "Start fewer ranks on its host, or raise the memory limit of its cgroup",
}


def advice_of(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Advice with the share of the job's time that it may gain, the most first.

    Before it comes where the job hangs or hung when it ended, then what failed: they gain no time.
    """
    found = [*_hang(facts), *_failures(facts), *sorted(_gains(facts), key=lambda each: -each["gain"])]
    return [each for each in found if each["gain"] is None or each["gain"] >= _LEAST]


def is_notable(event: Mapping[str, Any]) -> bool:
    """Whether an event is more than the end of a rank that succeeded, or was asked to end."""
    return event["kind"] != "exit" or (event["code"] != 0 and not event["asked"])


def _hang(facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    hang = facts["end"]["hang"]
    if hang is None:
        return
    long, who = units.seconds(hang["seconds"]), f"rank {hang['rank']} ({hang['host']})"
    if facts["end"]["how"] == "running":
        stands = f", which stands at {hang['where']}" if hang["where"] else ""
        yield _advice(None, f"The job hangs: the others have waited {long} for {who}{stands}. See all its stacks with "
                            f"'ciranda stacks {_identifier(facts)} --ranks {hang['rank']}'.")  # fmt: skip
    else:
        stood = (
            f", which stood at {hang['where']}. Its stacks are in {_folder(facts, hang['rank'])}/stacks.txt."
            if hang["where"] else "."
        )  # fmt: skip
        yield _advice(None, f"The job hung when it ended: the others had waited {long} for {who}{stood}")


def _failures(facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    end = facts["end"]
    if end["failed"]:
        failed = end["failed"]
        yield _advice(None, f"Rank {failed['rank']} ({failed['host']}) failed first: {failed['how']}."
                            f"{_was_in(facts, failed['rank'])} The end "
                            f"of its output is in {_folder(facts, failed['rank'])}/stderr.")  # fmt: skip
    elif end["how"] == "failed":
        yield _advice(None, f"The job failed: {end['message'] or 'exit code ' + str(end['exit_code'])}")
    stuck = [event for event in facts["events"] if event["kind"] == "stall"]
    if stuck and facts["end"]["hang"] is None:
        last = stuck[-1]
        stacks = f"{_folder(facts, last['rank'])}/stacks.txt"
        who = f"rank {last['rank']} ({last['host']})"
        yield _advice(None, f"Others waited long for {who}: {last['where']}. Its stacks are in {stacks}.")
    if facts["standstill"] and (difference := first_difference(facts["standstill"])):
        yield _advice(None, difference)


def _was_in(facts: Mapping[str, Any], number: int) -> str:
    """The call that a rank was in when it ended, else the last one that is known; empty without any."""
    rank = next((rank for rank in facts["ranks"] if rank["rank"] == number), None)
    if rank is not None and rank["calls_in_flight"]:
        return f" It was in {in_flight.named(rank['calls_in_flight'][0])}."
    if rank is not None and rank["last_calls"]:
        return f" The last call that is known of it is {in_flight.named(rank['last_calls'][0])}, which had ended."
    return ""


def _identifier(facts: Mapping[str, Any]) -> str:
    """As much of the job's as a command needs."""
    return str(facts["job"]["id"][:8])


def _folder(facts: Mapping[str, Any], rank: int) -> str:
    """As `ciranda.launch.output_dir` names it."""
    highest = max(max(host["ranks"]) for host in facts["job"]["hosts"])
    return f"rank.{rank:0{len(str(highest))}d}"


def _gains(facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    ranks = [rank for rank in facts["ranks"] if rank["seconds"] > 0]
    if len(ranks) < 2:
        return
    hangs = facts["hangs"]
    lost = max((hang["seconds"] for hang in hangs if not hang["is_over"]), default=0.0)
    counts = max(rank["seconds"] for rank in ranks)
    share = counts / (counts + lost)  # the time in which the ranks hung gains nothing
    stood = sum(hang["seconds"] for hang in hangs if hang["is_over"])
    most_waited = max(max(0.0, rank["waited_seconds"] - stood) / rank["seconds"] for rank in ranks)
    held_up = {rank: min(each, most_waited) * share for rank, each in _held_up(facts, ranks).items()}
    yield from _of_waiting(facts, ranks, held_up, most_waited * share)
    yield from _of_moving(ranks, share * share_of_bandwidth(facts))
    yield from _of_agreeing(facts, share)


def _held_up(facts: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """For each rank the share of the time in which others waited for it; in recorded steps, if there are some.

    Without the times in which they hung.
    """
    recorded = facts["recorded"]
    if recorded and recorded["steps"]:
        seconds = {rank["rank"]: rank["held_up_seconds"] for rank in recorded["ranks"]}
        of = {rank["rank"]: rank["seconds"] for rank in recorded["ranks"]}
    else:
        seconds = {rank["rank"]: rank["waited_for_seconds"] for rank in ranks}
        of = dict.fromkeys(seconds, max(rank["seconds"] for rank in ranks))
    for hang in facts["hangs"]:
        if hang["is_over"] and seconds.get(hang["rank"], 0.0) >= hang["seconds"]:  # else it was not recorded
            seconds[hang["rank"]] -= hang["seconds"]
    return {rank: each / of[rank] for rank, each in seconds.items()}


def _of_waiting(
    facts: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]], held_up: Mapping[int, float], most_waited: float
) -> Iterator[dict[str, Any]]:
    """What the ranks would not wait if one came no later than others do, and the rest; no more than one waits."""
    *_, second, worst = sorted(ranks, key=lambda rank: held_up.get(rank["rank"], 0.0))
    excess = held_up.get(worst["rank"], 0.0) - held_up.get(second["rank"], 0.0)
    if all(hang["is_over"] or hang["rank"] != worst["rank"] for hang in facts["hangs"]):
        yield _advice(excess, f"The others wait for rank {worst['rank']} ({worst['host']}); {_remedy(worst)}. "
                              f"{_in_which_lines(facts, worst['rank'])}.")  # fmt: skip
    in_turn = (
        "The ranks wait for each other in turn: their work differs from step to step. Even it out (batches of like "
        "length), or let ranks go on alone for some steps (ciranda.torch's local SGD)."
    )
    yield _advice(min(sum(held_up.values()), most_waited) - excess, in_turn)


def _remedy(rank: Mapping[str, Any]) -> str:
    """For a rank for which the others wait: what it did, more than others if it did, and what to do about it."""
    cpu = rank["cpu_seconds"] / rank["seconds"]
    if rank.get("unlike_others"):
        return f"it {rank['unlike_others']['words']}. {_REMEDIES.get(rank['unlike_others']['mostly'], _LOAD_AHEAD)}"
    if rank.get("doing"):
        return f"it {rank['doing']['words']}. {_REMEDIES.get(rank['doing']['mostly'], _LOAD_AHEAD)}"
    if cpu >= _BUSY:
        return f"it computes ({cpu:.0%} of a core). {_EVEN_OUT}"
    return f"it sleeps, waits for input, or lacks a core ({cpu:.0%} of one). {_LOAD_AHEAD}"


def _in_which_lines(facts: Mapping[str, Any], rank: int) -> str:
    """The command that says so, of this job if it runs."""
    runs = facts["end"]["how"] == "running"
    when, job = ("While it runs", f"{_identifier(facts)} ") if runs else ("While such a job runs", "")
    return f"{when}, 'ciranda stacks {job}--ranks {rank} --samples {_N_SAMPLES}' names the lines"


def _of_moving(ranks: Sequence[Mapping[str, Any]], of_time: float) -> Iterator[dict[str, Any]]:
    """``of_time``: the part of the time in which fewer bytes would be moved sooner."""
    share = sum(rank["moved_seconds"] for rank in ranks) / sum(rank["seconds"] for rank in ranks) * of_time
    yield _advice(share / 2, "Data moves for long. Send half of it (Compression.fp16, or bfloat16 between hosts), or "
                             "less often (backward_passes_per_step); 'ciranda tune' measures this machine, so that the "
                             "algorithms suit it.")  # fmt: skip


def _of_agreeing(facts: Mapping[str, Any], of_time: float) -> Iterator[dict[str, Any]]:
    """Known where calls were recorded."""
    recorded = facts["recorded"]
    if not recorded:
        return
    share = sum(rank["agreed_seconds"] for rank in recorded["ranks"]) / sum(
        rank["seconds"] for rank in recorded["ranks"]
    )
    small = sum(row["calls"] for row in recorded["sizes"] if row["bytes_from"] < _SMALL_BYTES)
    if small:
        yield _advice(share * of_time, f"The ranks agree on many calls, {small} of less than 64 KiB. Group them "
                             "(grouped_allreduce), or hand over several before waiting (allreduce_async).")  # fmt: skip


def _advice(gain: float | None, text: str) -> dict[str, Any]:
    return {"gain": gain, "text": text}
