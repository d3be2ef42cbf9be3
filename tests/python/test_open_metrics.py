"""What Prometheus gets of the counters."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from ciranda.launch import open_metrics, page
from ciranda.launch.errors import LaunchError
from ciranda.launch.exporter import parse_address

_LINE = re.compile(r'[a-z_]+(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)*\})? [0-9.e+-]+')

USED = {"calls": 3, "failed": 0, "bytes": 12, "agree_seconds": 0.25, "move_seconds": 0.5}
OF_SIZE = {**USED, "calls": 2}
LINK = {"sent_bytes": 5, "received_bytes": 6, "retries": 7, "queued_bytes": 8}
RANK = {
    "rank": 1, "pid": 7, "size": 2, "seconds": 9.0, "steps": 4, "stalls": 1, "waiting": 0, "waited_seconds": 2.5,
    "paths": {"direct": 2, "plan": 1}, "collectives": {"allreduce": {**USED, "sizes": {"64": OF_SIZE}}},
    "algorithms": {"shm one-shot": {"calls": 1, "bytes": 2, "move_seconds": 0.125}}, "links": {"3": LINK},
    "memory_bytes_of": {"slot": 1, "kept": 2, "empty": 3}, "throttled_seconds": 0.75, "core_wait_seconds": 0.0,
    "own_waits_ns": {"0": 500_000_000},
    "process_sets": {"3": USED}, "held_up_ns": {}, "memory_bytes": 1 << 20, "cpu_seconds": 1.5,
    "up": 1,
}  # fmt: skip


def test_each_series_has_its_family_and_labels() -> None:
    text = open_metrics.to_text([RANK], {"job": 'a"b\\c\n', "host": "h"})
    lines = text.splitlines()
    assert lines[-1] == "# EOF"
    assert text.endswith("\n")
    labels = r'job="a\"b\\c\n",host="h",rank="1"'
    assert f'ciranda_calls_total{{{labels},collective="allreduce"}} 3' in lines
    assert f'ciranda_own_wait_seconds_total{{{labels},last_rank="0"}} 0.5' in lines
    assert f"ciranda_steps_total{{{labels}}} 4" in lines
    assert f'ciranda_size_calls_total{{{labels},collective="allreduce",bytes_from="64"}} 2' in lines
    assert f'ciranda_algorithm_move_seconds_total{{{labels},algorithm="shm one-shot"}} 0.125' in lines
    assert f'ciranda_link_queued_bytes{{{labels},peer="3"}} 8' in lines
    assert f'ciranda_engine_memory_bytes{{{labels},kind="empty"}} 3' in lines
    assert f'ciranda_process_set_agree_seconds_total{{{labels},process_set="3"}} 0.25' in lines
    assert f"ciranda_throttled_seconds_total{{{labels}}} 0.75" in lines
    assert "# TYPE ciranda_calls counter" in lines
    assert "# UNIT ciranda_call_bytes bytes" in lines
    assert all(_LINE.fullmatch(line) for line in lines if not line.startswith("# "))
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    units = [line.split()[2:] for line in lines if line.startswith("# UNIT")]
    assert all(name.endswith(f"_{unit}") for name, unit in units)


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool: tools/install-deps.sh monitoring installs it"
)
def test_promtool_finds_nothing_wrong() -> None:
    """It knows the older format, in which the family of a counter has the name of its series."""
    text = open_metrics.to_text([RANK], {"job": "7", "host": "a"})
    counters = set(re.findall(r"(?m)^# TYPE (\S+) counter$", text))
    assert len(counters) > 10
    older = re.sub(r"(?m)^# (TYPE|HELP) (\S+)", lambda m: m[0] + ("_total" if m[2] in counters else ""), text)
    done = subprocess.run(["promtool", "check", "metrics"], input=older, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_rank_has_at_most_200_series() -> None:
    many = {str(rank): 1 + rank for rank in range(4096)}
    full = {**RANK, "paths": dict.fromkeys(page.PATHS, 1), "own_waits_ns": many, "held_up_ns": many}
    sizes = {str(4**number): {**USED, "move_seconds": number} for number in range(16)}
    full["collectives"] = {name: {**USED, "sizes": sizes} for name in page.COLLECTIVES}
    full["algorithms"] = {str(n): {"calls": 1, "bytes": 1, "move_seconds": n} for n in range(16)}
    full["process_sets"] = {str(n): {**USED, "move_seconds": n} for n in range(1, 17)}
    full["links"] = {str(n): {**LINK, "sent_bytes": n} for n in range(page.MOST_LINKS)}
    lines = [line for line in open_metrics.to_text([full], {}).splitlines() if not line.startswith("#")]
    assert len(lines) <= 200
    assert any('last_rank="4095"' in line for line in lines), "the worst are named"
    assert not any('last_rank="0"' in line for line in lines)
    assert sum("ciranda_process_set_calls_total" in line for line in lines) == open_metrics.MOST_SETS
    assert any('process_set="16"' in line for line in lines)
    assert any('peer="7"' in line for line in lines)
    assert any('algorithm="15"' in line for line in lines)
    assert sum("ciranda_size_calls" in line for line in lines) == open_metrics.MOST_SIZES


def test_a_rank_that_has_not_joined_is_up() -> None:
    text = open_metrics.to_text([{"rank": 0, "memory_bytes": 5, "up": 1}], {"job": "j"})
    assert 'ciranda_up{job="j",rank="0"} 1' in text
    assert "ciranda_steps_total" not in text


def test_addresses() -> None:
    assert parse_address("9464") == parse_address(":9464") == ("127.0.0.1", 9464)
    assert parse_address("0.0.0.0:1") == ("0.0.0.0", 1)
    assert parse_address("[::1]:80") == ("::1", 80)
    for wrong in ("", "host", "host:", "1.2.3.4:0", "::99999", "1:2:x"):
        with pytest.raises(LaunchError, match="--metrics"):
            parse_address(wrong)
