"""Bad input and faults with tensors on the fake GPU, as users of `ciranda.torch` meet them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch_cuda

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("faults.py")
# The streams of a program that makes one after a call: the default one, the engine's two for it, or one by peer, and
# its own.
STAGED = {"CIRANDA_GPU_WAY": "staged", "STILL_STREAM": "4"}
PEER = {"CIRANDA_GPU_WAY": "peer", "STILL_STREAM": "3"}
SOON = {"CIRANDA_STALL_WARNING_SECONDS": "1", "CIRANDA_STALL_SHUTDOWN_SECONDS": "3"}

needs_kernels = pytest.mark.usefixtures("kernels_of_gpus")


NCCL = {"STILL_STREAM": "5"}  # and torch_cuda.with_nccl()
# By the call whose result it does not make, of which it tells itself, or by the next, to which it does not come.
BY_NCCL_RANK_2_IS_AWAITED = (
    "TimeoutError: allreduce 'second' began on all ranks but has not moved for 3 s. Waiting for the tensors of rank 2 ",
    "TimeoutError: 'third' has waited 3.0 s for rank 2",
)


def need_kernels_for(way: dict[str, str], request: pytest.FixtureRequest) -> None:
    if way is not STAGED:
        request.getfixturevalue("kernels_of_gpus")


def settings_of(way: dict[str, str]) -> dict[str, str]:
    return way | torch_cuda.with_nccl(3) if way is NCCL else way


def run(
    np: int, *programs: str, grace: int = 1, through: Sequence[str] = (), each: Sequence[str] = (), **settings: str
) -> subprocess.CompletedProcess[str]:
    """`grace`: the seconds in which ranks may say their last words after one has failed. `each`: what starts a rank."""
    environment = {**os.environ, **torch_cuda.environment(), "OMP_NUM_THREADS": "1", **settings}
    command = [*through, sys.executable, "-m", "ciranda.launch.cli", "run", "--no-prefix", "-np", str(np)]
    command += ["--grace", str(grace), *each, sys.executable, str(PROGRAM), *programs]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


def found(np: int, program: str, **settings: str) -> list[str]:
    return found_by_each(np, program, **settings)[program]


def found_by_each(np: int, *programs: str, **settings: str) -> dict[str, list[str]]:
    """What programs found that the ranks ran one after the other."""
    done = run(np, *programs, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return {program: _found(done, program) for program in programs}


def _found(done: subprocess.CompletedProcess[str], program: str) -> list[str]:
    begin = f"FOUND {program} "
    return sorted(line.removeprefix(begin) for line in done.stdout.splitlines() if line.startswith(begin))


@pytest.fixture(scope="module")
def without_delays() -> dict[str, list[str]]:
    return found_by_each(2, "freed", "begins_anew", FAKE_CUDA_DELAY_SEED="0")


@pytest.fixture(scope="module")
def with_delays() -> dict[str, list[str]]:
    return found_by_each(2, "freed", "shapes", "two_gpus", FAKE_CUDA_DELAY_SEED="1", FAKE_CUDA_DEVICES="2")


@pytest.mark.parametrize(
    ("np", "settings", "reason"),
    [
        (2, {"FAKE_CUDA_VERSION": "11080"}, "the NVIDIA driver is too old: it supports CUDA 11.8. Tensors on a GPU ne"),
        (1, {"FAKE_CUDA_MISSING": "cuEventQuery"}, "has no cuEventQuery. Tensors on a GPU need NVIDIA driver 525"),
        # The first is torch's.
        (1, {"FAKE_CUDA_FAIL": "cuInit:2:999"}, "cuInit failed: CUDA_ERROR_UNKNOWN (999, unknown error): see nvidia-s"),
    ],
)
def test_a_driver_that_is_no_good_is_refused_and_the_cpu_goes_on(
    np: int, settings: dict[str, str], reason: str
) -> None:
    lines = found(np, "refused", **settings)
    assert lines.count("on the CPU as ever") == np
    refusals = [line for line in lines if reason in line]
    assert len(refusals) == 2 * np, lines
    assert refusals[0].startswith("allreduce 'on the GPU': its tensors lie on GPU 0, but ")


@pytest.mark.parametrize(
    ("how", "way", "error"),
    [
        ("killed", STAGED, "RanksLostError: rank 2 (host "),
        ("killed", NCCL, "RanksLostError: rank 2 (host "),
        ("exits", STAGED, "RanksLostError: rank 2 (host "),
        ("raises", STAGED, "AbortedError: rank 2 (host "),
        ("raises", NCCL, BY_NCCL_RANK_2_IS_AWAITED),
        ("stopped", STAGED, "TimeoutError: allreduce 'second' began on all ranks but has not moved"),
    ],
)
def test_ranks_that_end_before_their_input_is_there(
    how: str, way: dict[str, str], error: str | tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """By peer: test_phases.py."""
    need_kernels_for(way, request)
    # One that is stopped does not end before it is killed.
    done = run(3, f"a_rank_ends={how}", grace=1 if how == "stopped" else 60, **settings_of(way), **SOON)
    assert done.returncode != 0
    lines = _found(done, f"a_rank_ends={how}")
    assert len(lines) == 2, done.stdout + done.stderr
    for rank, line in enumerate(lines):
        errors = (error,) if isinstance(error, str) else error
        assert line.startswith(tuple(f"rank {rank}: {each}" for each in errors)), line
        assert "rank 2" in line, line


@needs_kernels
def test_a_rank_ends_while_it_makes_its_communicator_of_nccl() -> None:
    done = run(3, "ends_in_init=killed", grace=60, **settings_of(NCCL), **SOON)
    lines = _found(done, "ends_in_init=killed")
    assert len(lines) == 2, done.stdout + done.stderr
    assert all(": RanksLostError: rank 2 (host " in line for line in lines), lines


@needs_kernels
def test_a_graph_is_not_replayed_after_a_loss() -> None:
    done = run(2, "a_graph", grace=60, **settings_of(NCCL), **SOON)
    lines = _found(done, "a_graph")
    assert len(lines) == 2, done.stdout + done.stderr
    assert lines[0].startswith("rank 0: RanksLostError: rank 1 (host "), lines
    assert "in another world: the world has ended whose collectives this CUDA graph has" in lines[1]


@needs_kernels
def test_nothing_of_a_void_result_is_committed(tmp_path: Path) -> None:
    """A rank is killed when all waits have let a call of NCCL pass whose result is lost."""
    command = [sys.executable, "-m", "ciranda.launch.cli", "run", "--elastic", "-np", "3", "--min-np", "2"]
    command += ["--no-prefix", sys.executable, str(PROGRAM.with_name("elastic_by_nccl.py")), str(tmp_path)]
    environment = {**os.environ, **torch_cuda.environment(), **torch_cuda.with_nccl(3), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": right\n") in (2, 3), done.stdout + done.stderr
    assert len(list(tmp_path.iterdir())) == 3, "nobody was killed"
    assert "The result of allreduce 'update' is void" in done.stderr, done.stderr


@needs_kernels
def test_the_next_world_trains_on_by_nccl() -> None:
    """A new world has communicators of its own."""
    done = run(2, "begins_anew", **torch_cuda.with_nccl(2))
    assert _found(done, "begins_anew") == ["right"] * 2, done.stdout + done.stderr
    assert "NCCL cannot be used" not in done.stderr, done.stderr


@needs_kernels
@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ({"FAKE_CUDA_IPC": "no_import"}, {"cuIpcOpenMemHandle on GPU 0 (GPU-5f5f5f00) failed": 1}),
        (
            {"CIRANDA_GPU_WAY": "peer", "FAKE_CUDA_PINNED": "0"},
            {
                "'adasum.0' is staged in host memory, although CIRANDA_GPU_WAY is peer: all": 2,
                "'adasum.0' and others are staged in pageable memory, which takes longer: ": 2,
            },
        ),
    ],
)
def test_what_cannot_go_by_peer_is_staged_and_said_once(settings: dict[str, str], warnings: dict[str, int]) -> None:
    done = run(2, "sums", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert _found(done, "sums") == ["right"] * 2
    assert {warning: done.stderr.count(warning) for warning in warnings} == warnings, done.stderr


@pytest.mark.netns
def test_without_room_in_shared_memory_it_is_staged_and_said_once() -> None:
    full = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"', "sh"]
    done = run(2, "sums", through=full, CIRANDA_GPU_WAY="peer")
    assert done.returncode == 0, done.stdout + done.stderr
    assert _found(done, "sums") == ["right"] * 2
    assert done.stderr.count("/dev/shm is too small: ") == 1, done.stderr
    assert done.stderr.count(" is staged in host memory, although CIRANDA_GPU_WAY is peer") == 2, done.stderr


@pytest.mark.parametrize("way", [STAGED, PEER], ids=["staged", "peer"])
def test_work_that_never_ends_is_named_with_its_gpu_on_all_ranks(
    tmp_path: Path, way: dict[str, str], request: pytest.FixtureRequest
) -> None:
    need_kernels_for(way, request)
    done = run(3, f"never_ends={tmp_path}", **way, **SOON)
    lines = _found(done, f"never_ends={tmp_path}")
    assert len(lines) == 3, done.stdout + done.stderr
    for line in lines:
        assert "TimeoutError: allreduce 'second' began on all ranks but has not moved" in line, line
        assert "the tensors of rank 1 (host " in line, line
        assert "on GPU 0 (GPU-5f5f5f00): the work that was queued there before the call has not ended" in line, line


def test_a_kernel_of_the_program_that_fails_is_told_to_all(tmp_path: Path) -> None:
    """With its rank and GPU, and all processes end. (By peer: test_gpu_check.py.)"""
    done = run(2, f"illegal_address={tmp_path}", **STAGED)
    lines = _found(done, f"illegal_address={tmp_path}")
    assert (done.returncode, lines[:2]) == (0, ["ends"] * 2), done.stdout + done.stderr
    assert lines[2].startswith("rank 0: InternalError: rank 1 (host "), lines
    for line in lines[2:]:  # rank 1 may hear of it when it makes the call
        assert "on GPU 0 (GPU-5f5f5f00) failed: CUDA_ERROR_ILLEGAL_ADDRESS (700, " in line, line


def test_the_next_world_trains_on(without_delays: dict[str, list[str]]) -> None:
    assert without_delays["begins_anew"] == ["right"] * 2


@pytest.fixture(scope="module")
def compared() -> dict[str, list[str]]:
    return found_by_each(3, "careless=cpu", "careless=cuda", CIRANDA_CHECK_CONSISTENCY="4")


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_results_are_compared_where_they_lie(
    compared: dict[str, list[str]], where: str, request: pytest.FixtureRequest
) -> None:
    """One memory for two results is seen, on a GPU by peer: what is staged is compared before it is copied there."""
    if where == "cuda":
        request.getfixturevalue("kernels_of_gpus")
    lines = compared[f"careless={where}"]
    assert lines[-3:] == ["right"] * 3
    text = "MismatchError: The result of broadcast 'pair', tensor 0 of the group has other bits on rank 1 than on ranks"
    assert [text in line for line in lines[:-3]] == [True] * 3, lines


@pytest.mark.parametrize(("way", "reader"), [(STAGED, "cuMemcpyDtoHAsync"), (PEER, "copy_bytes")])
def test_a_tensor_that_is_overwritten_after_its_call_is_seen(
    way: dict[str, str], reader: str, request: pytest.FixtureRequest
) -> None:
    """By the fake's checker, which knows that the engine reads it."""
    need_kernels_for(way, request)
    done = run(2, "overwritten", **way)
    assert done.returncode != 0
    assert "two uses of memory that nothing orders" in done.stderr
    assert reader in done.stderr


@pytest.mark.parametrize("how", ["without_delays", "with_delays"])
def test_a_tensor_may_be_dropped_after_its_call(how: str, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(how)["freed"] == ["right"] * 2


def test_calls_that_nobody_waits_for_leak_nothing() -> None:
    memory = {"FAKE_CUDA_MEMORY": str(48 << 20), "FAKE_CUDA_PINNED": str(48 << 20)}
    assert found(2, "never_waited_for", **memory) == ["no leak"] * 2


def test_any_shape_alignment_and_type(with_delays: dict[str, list[str]]) -> None:
    lines = with_delays["shapes"]
    assert lines[:2] == ["right"] * 2
    assert all("float8_e4m3fn cannot be combined" in line for line in lines[2:]), lines
    assert len(lines) == 4


def test_two_gpus_in_one_call_are_refused_and_in_turn_are_right(with_delays: dict[str, list[str]]) -> None:
    lines = with_delays["two_gpus"]
    assert lines[2:] == ["right"] * 2
    refusal = "allreduce 'both', tensor 1 of the group: it lies on GPU 1, tensor 0 on GPU 0; "
    assert all(line.startswith(refusal) for line in lines[:2]), lines


# Starts a rank that sees the four GPUs from that of its own number on.
ROTATED = ["sh", "-c", 'i=$CIRANDA_LOCAL_RANK; CUDA_VISIBLE_DEVICES=$i,$(((i+1)%4)),$(((i+2)%4)) exec "$@"', "sh"]


@needs_kernels
@pytest.mark.parametrize(("each", "n_lines"), [([], 1), (ROTATED, 0)], ids=["all alike", "rotated"])
def test_ranks_that_share_a_gpu_beside_others_are_asked_whether_they_mean_it(each: list[str], n_lines: int) -> None:
    """All use their GPU 0, which may be another for each."""
    done = run(3, "which_gpu", each=each, FAKE_CUDA_DEVICES="4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert _found(done, "which_gpu") == ["right"] * 3
    advice = [line for line in done.stderr.splitlines() if "torch.cuda.set_device(hvd.local_rank())?" in line]
    assert len(advice) == n_lines, done.stderr
    assert all("[rank 2]" in line and "GPU 0 (GPU-5f5f5f00) of 4" in line for line in advice), advice
