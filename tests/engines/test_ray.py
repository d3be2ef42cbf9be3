"""`ciranda.ray`, and `horovod.ray.RayExecutor`, on a real Ray of two nodes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import sent
from ray.cluster_utils import Cluster
from sent import EXAMPLES, digits_task, run_within, total, until

import ciranda
from ciranda.launch import HostsError, LaunchError
from ciranda.ray import Executor, run

for module in (sys.modules[__name__], sent):  # ranks do not import the tests
    ray.cloudpickle.register_pickle_by_value(module)

OBJECT_STORE = 80 << 20


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Cluster]:
    """Two nodes of two CPUs."""
    args = {"num_cpus": 2, "num_gpus": 2, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=args)
    cluster.add_node(num_cpus=2, object_store_memory=OBJECT_STORE)
    cluster.connect()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def executor() -> Iterator[Executor]:
    """That each test leaves with ranks that can meet."""
    with Executor(np=2) as executor:
        yield executor
        assert executor.run(total) == [2.0, 2.0]


def numbers() -> tuple[int, ...]:
    ciranda.init()
    return (ciranda.rank(), ciranda.size(), ciranda.local_rank(), ciranda.local_size(), ciranda.cross_rank(),
            ciranda.cross_size())  # fmt: skip


def free_cpus() -> float:
    return float(ray.available_resources().get("CPU", 0.0))


# -- one function ------------------------------------------------------------------------------------------------------


def test_ranks_of_a_node_follow_one_another_and_nodes_count_as_hosts() -> None:
    assert run(numbers, np=4) == [(0, 4, 0, 2, 0, 2), (1, 4, 1, 2, 0, 2), (2, 4, 0, 2, 1, 2), (3, 4, 1, 2, 1, 2)]


def test_spread_uses_both_nodes_and_strict_pack_one() -> None:
    until(lambda: free_cpus() == 4)  # else it has no choice
    assert [each[3] for each in run(numbers, np=2, placement="SPREAD")] == [1, 1]
    assert [each[3] for each in run(numbers, np=2, placement="STRICT_PACK")] == [2, 2]


def test_arguments_and_the_number_of_ranks_by_default() -> None:
    ranks = run(lambda a, *, b: (a, b, os.environ["SEEN"]), (1,), {"b": 2}, cpus_per_worker=2, env={"SEEN": "yes"})
    assert ranks == [(1, 2, "yes")] * 2


def test_a_placement_group_of_the_caller_is_used_and_stays() -> None:
    group = ray.util.placement_group([{"CPU": 1}] * 3)
    try:
        assert [each[:2] for each in run(numbers, placement=group)] == [(0, 3), (1, 3), (2, 3)]
        assert ray.util.placement_group_table(group)["state"] == "CREATED"
    finally:
        ray.util.remove_placement_group(group)


def test_two_jobs_in_one_cluster_are_apart() -> None:
    with Executor(np=2) as one, Executor(np=2) as other:
        first, second = one.run_remote(total), other.run_remote(total)
        assert ray.get(first) == ray.get(second) == [2.0, 2.0]


@pytest.mark.parametrize("culprit", [0, 1])
def test_what_a_rank_raises_is_the_error(culprit: int) -> None:
    def fails() -> None:
        ciranda.init()
        if ciranda.rank() == culprit:
            raise ValueError("seen by the driver")
        ciranda.allreduce(1.0, name="waits")

    with pytest.raises(LaunchError, match=rf"^rank {culprit} on .* raised:\nTraceback") as caught:
        run(fails, np=2)
    assert str(caught.value).endswith("ValueError: seen by the driver")
    assert caught.value.failure is not None
    assert caught.value.failure.rank == culprit
    until(lambda: free_cpus() == 4)


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_rank_that_is_killed_ends_the_others(culprit: int) -> None:
    def dies() -> None:
        ciranda.init()
        if ciranda.rank() == culprit:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            time.sleep(0.1)

    with pytest.raises(LaunchError, match=rf"^rank {culprit} on .* has ended: The actor died"):
        run(dies, np=2)
    until(lambda: free_cpus() == 4)


def test_a_function_that_exits_is_an_error() -> None:
    with pytest.raises(LaunchError, match="the function did not return: SystemExit: 3"):
        run(lambda: sys.exit(3), np=2)


class Unpicklable:
    def __reduce__(self) -> Any:
        return _fail_to_load, ()


def _fail_to_load() -> None:
    raise RuntimeError("does not unpickle")


def test_what_does_not_unpickle_is_an_error() -> None:
    with pytest.raises(LaunchError, match="does not unpickle"):
        run(lambda value: value, (Unpicklable(),), np=2)


def test_a_result_that_cannot_be_pickled_is_an_error() -> None:
    with pytest.raises(LaunchError, match=r"rank \d on .* gave no result: (?s:.*)cannot pickle"):
        run(threading.Lock, np=2)


def test_more_ranks_than_the_cluster_has_room_for() -> None:
    with pytest.raises(LaunchError, match=r"9 bundles \(PACK\) with 9 CPU in all, for 9 ranks, within 1 s: the "
                                          r"cluster has 4 CPU and 2 GPU on 2 nodes, of which 4 CPU"):  # fmt: skip
        run(total, np=9, start_timeout=1)
    assert free_cpus() == 4


def test_no_ranks_at_all() -> None:
    with pytest.raises(HostsError, match="1 or more"):
        run(total, np=0)


def test_a_placement_group_without_room() -> None:
    group = ray.util.placement_group([{"CPU": 1}])
    try:
        with pytest.raises(LaunchError, match=r"[01] of 2 ranks have started within 3 s: the cluster has 4 CPU"):
            run(total, np=2, placement=group, start_timeout=3)
    finally:
        ray.util.remove_placement_group(group)


def test_a_node_that_goes_while_ranks_start_is_an_error_in_time(cluster: Cluster) -> None:
    """Once its bundle is placed. The other ranks end, and the cluster has room for the next job."""
    node = cluster.add_node(num_cpus=4, object_store_memory=OBJECT_STORE)

    def is_placed() -> bool:
        return any(group["state"] == "CREATED" for group in ray.util.placement_group_table().values())

    def take_away() -> None:
        until(is_placed)
        cluster.remove_node(node, allow_graceful=False)

    thread = threading.Thread(target=take_away)
    try:
        until(lambda: free_cpus() == 8)
        thread.start()
        with pytest.raises(LaunchError, match=r"of 5 ranks|could not be started|Ray has not placed|has ended"):
            run(time.sleep, (600,), np=5, start_timeout=60)
        thread.join()
    finally:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)
    until(lambda: free_cpus() == 4)
    assert run(total, np=2) == [2.0, 2.0]


def test_all_ranks_of_a_node_see_its_gpus() -> None:
    def visible() -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]

    assert run(visible, np=2, gpus_per_worker=1) in ([["0,1"] * 2, ["1,0"] * 2])


def test_the_secret_is_in_no_environment_and_no_log() -> None:
    def secret() -> tuple[str, bytes]:
        environ = Path("/proc/self/environ").read_bytes() + repr(dict(os.environ)).encode()
        return Path(os.environ["CIRANDA_SECRET_FILE"]).read_text(encoding="ascii"), environ

    (text, environ), _ = run(secret, np=2)
    assert len(text) == 64
    assert text.encode() not in environ
    logs = Path(ray._private.worker.global_worker.node.get_logs_dir_path())
    assert [path.name for path in logs.rglob("*") if path.is_file() and text.encode() in path.read_bytes()] == []


def test_an_outer_jobs_identity_is_not_the_ranks() -> None:
    """Ray itself may have been started by srun or torchrun, once on each node."""
    outer = {"RANK": "5", "WORLD_SIZE": "7", "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1"}

    environ = {**os.environ, **outer, "PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
    script = (
        "import ray, ciranda.ray, test_ray; ray.cloudpickle.register_pickle_by_value(test_ray);"
        f'ray.init("local", num_cpus=2, object_store_memory={OBJECT_STORE}, include_dashboard=False);'
        "print(ciranda.ray.run(lambda: (test_ray.total(), 'WORLD_SIZE' in __import__('os').environ), np=2))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines()[-1] == "[(2.0, False), (2.0, False)]"


def test_ciranda_run_within_a_rank_is_a_job_of_its_own() -> None:
    assert run(run_within, np=2) == [["0 2.0", "1 2.0", ""]] * 2


def test_nothing_is_left_of_a_driver_that_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    script = f"""
import os, ray, time, ciranda, ciranda.ray
ray.init(address="{cluster.address}", log_to_driver=False)
def stay():
    ciranda.init()
    with open(os.path.join({str(tmp_path)!r}, str(ciranda.rank())), "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
ciranda.ray.run(stay, np=2)
"""
    driver = subprocess.Popen([sys.executable, "-c", script])
    try:
        until(lambda: len([path for path in tmp_path.iterdir() if path.read_text(encoding="ascii")]) == 2)
        pids = [int(path.read_text(encoding="ascii")) for path in tmp_path.iterdir()]
    finally:
        driver.kill()
        driver.wait()
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    until(lambda: free_cpus() == 4)


def test_the_example_has_the_parameters_of_ciranda_run() -> None:
    command = [sys.executable, str(EXAMPLES / "ray" / "digits.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    expected = ciranda.launch.run(digits_task().train_here, np=4)
    lines = [line for line in done.stdout.splitlines() if "sha256" in line]
    assert lines == [f"{way}: 4 ranks, sha256 {expected[0]}" for way in ("run", "Executor", "TorchTrainer")]


# -- ranks that stay ---------------------------------------------------------------------------------------------------


def test_processes_stay_and_results_come_in_the_order_of_ranks(executor: Executor) -> None:
    def keep(value: int) -> int:
        sys.kept = value  # type: ignore[attr-defined]
        return os.getpid()

    pids = executor.run(keep, (5,))
    assert executor.run(lambda: (os.getpid(), sys.kept)) == [(pid, 5) for pid in pids]  # type: ignore[attr-defined]


def test_globals_stay(executor: Executor) -> None:
    def assign(value: int) -> None:
        global kept
        kept = value

    executor.run(assign, (5,))
    assert executor.run(lambda: kept) == [5, 5]  # type: ignore[name-defined]


def test_calls_of_several_threads_come_one_after_another(executor: Executor) -> None:
    def work(number: int) -> tuple[int, float]:
        ciranda.init()
        return number, float(ciranda.allreduce(float(number), op=ciranda.Sum, name="threads"))

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: executor.run(work, (number,)), range(24)))
        references = list(threads.map(lambda number: executor.run_remote(work, (number,)), range(24)))
    assert found == [ray.get(each) for each in references] == [[(number, 2.0 * number)] * 2 for number in range(24)]


@pytest.mark.parametrize("culprit", [0, 1])
def test_ranks_meet_again_after_one_has_raised(executor: Executor, culprit: int) -> None:
    def fails() -> None:
        ciranda.init()
        if ciranda.rank() == culprit:
            raise ValueError("mine")
        ciranda.allreduce(1.0, name="waits")

    for _ in range(3):
        with pytest.raises(LaunchError, match=rf"(?s)^rank {culprit} .*ValueError: mine$"):
            executor.run(fails)
        assert executor.run(total) == [2.0, 2.0]


def test_a_rank_that_does_not_wait_is_interrupted_when_another_fails(executor: Executor) -> None:
    def fails() -> None:
        ciranda.init()
        if ciranda.rank() == 1:
            raise ValueError("mine")
        while True:
            time.sleep(0.1)

    with pytest.raises(LaunchError, match="ValueError: mine"):
        executor.run(fails)


def test_ctrl_c_interrupts_the_function_and_the_ranks_stay(executor: Executor) -> None:
    pids = executor.run(os.getpid)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # also if the tests run in the background
    try:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            executor.run(time.sleep, (600,))
    finally:
        signal.signal(signal.SIGINT, previous)
    assert executor.run(os.getpid) == pids


def test_references_give_results_and_raise_what_was_raised(executor: Executor) -> None:
    def fails() -> None:
        raise ValueError("mine")

    assert ray.get(executor.run_remote(lambda x: x + 1, [1])) == [2, 2]
    for ref in executor.run_remote(fails):
        with pytest.raises(ValueError, match="mine"):
            ray.get(ref)


def test_an_executor_whose_rank_is_killed_is_shut_down_and_may_be_started_again() -> None:
    executor = Executor(np=2)
    executor.start()
    try:
        pids = executor.run(os.getpid)
        os.kill(pids[1], signal.SIGKILL)
        until(lambda: not psutil.pid_exists(pids[1]))
        with pytest.raises(LaunchError, match=r"rank 1 on .* has ended"):
            executor.run(total)
        with pytest.raises(LaunchError, match=r"no ranks: call start\(\)"):
            executor.run(total)
        until(lambda: free_cpus() == 4)
        executor.start()
        assert executor.run(total) == [2.0, 2.0]
    finally:
        executor.shutdown()


# -- Horovod's ---------------------------------------------------------------------------------------------------------


class Counter:
    def __init__(self, start: int, step: int = 1) -> None:
        self.value = start
        self.step = step

    def count(self) -> int:
        self.value += self.step
        return self.value


def test_ray_executor_as_a_script_of_horovod_uses_it() -> None:
    from horovod.ray import RayExecutor

    settings = RayExecutor.create_settings(timeout_s=30, placement_group_timeout_s=30)
    executor = RayExecutor(settings, num_hosts=2, num_workers_per_host=2, cpus_per_worker=1)
    executor.start(Counter, [10], {"step": 2}, extra_env_vars={"SEEN": "yes"})
    try:
        assert executor.num_workers == 4
        assert [each[3] for each in executor.run(numbers)] == [2] * 4
        assert executor.execute(lambda counter: counter.count()) == [12] * 4
        assert executor.execute_single(lambda counter: counter.count()) == 14
        assert executor.run(lambda a, b: (a, b, os.environ["SEEN"]), args=[1], kwargs={"b": 2}) == [(1, 2, "yes")] * 4
        assert ray.get(executor.run_remote(total)) == [4.0] * 4
    finally:
        executor.shutdown()
    with pytest.raises(ValueError, match="either num_workers"):
        RayExecutor(settings)
    with pytest.raises(ValueError, match="min_workers"):
        RayExecutor(settings, min_workers=1)
