"""``run`` and ``Executor``: ranks that are actors of Ray, in a placement group.

The driver asks Ray for the placement group and the actors, asks the actors where they are, numbers them, and tells each
its place. The store by which ranks meet is in rank 0's actor: the driver may be outside of the cluster's network.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, cast

import ray
import ray.cloudpickle
import ray.exceptions
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

import ciranda
from ciranda.engines.rendezvous import require_one_version
from ciranda.errors import InvalidArgumentError
from ciranda.launch.errors import LaunchError
from ciranda.launch.failure import RankFailure, culprit
from ciranda.launch.hosts import Slot, checked_size, positions
from ciranda.ray.placement import Plan, cluster_words, grouped, plan
from ciranda.ray.rank import Ended, Job, Rank, Whereabouts, interrupt

Result = TypeVar("Result")

_START_SECONDS = 100.0
_BLAME_SECONDS = 1.0  # for ranks to fail because another has, before they are interrupted
_AGAIN_SECONDS = 5.0  # between interruptions of a rank that goes on: each may have to start a process
_STUBBORN_SECONDS = 30.0  # until an executor is shut down whose ranks do not heed an interruption
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Executor:
    """Ranks that are actors of Ray, which run functions one after another, also those of several threads.

    ``with Executor(np=4) as executor: executor.run(function)``; or call start() and shutdown(), from one thread. They
    also end with the driver.
    """

    def __init__(
        self,
        np: int | None = None,
        *,
        hosts: int | None = None,
        cpus_per_worker: float = 1,
        gpus_per_worker: float = 0,
        placement: str | PlacementGroup = "PACK",
        env: Mapping[str, str] | None = None,
        start_timeout: float = _START_SECONDS,
    ) -> None:
        """Start nothing yet: see start().

        Args:
            np: the number of ranks; by default as many as the cluster has CPUs for, or a placement group has bundles.
            hosts: the number of nodes, each with the same number of ranks; by default as ``placement`` says.
            cpus_per_worker, gpus_per_worker: what Ray reserves for each rank. All ranks of a node see the GPUs of all
                of them, as under ``ciranda run``: a rank's own are those from ``local_rank() * gpus_per_worker`` on.
            placement: "PACK" fills nodes, "SPREAD" uses many, "STRICT_PACK" uses one, "STRICT_SPREAD" uses one for each
                rank; or a placement group, which stays when the ranks end.
            env: variables to set for every rank.
            start_timeout: seconds for Ray to place and start all ranks, and for the ranks to find each other.

        Raises:
            HostsError: the numbers make no sense.
        """
        self._group: PlacementGroup | None = None
        self._plan: Plan | None = None
        resources = {"CPU": float(cpus_per_worker), "GPU": float(gpus_per_worker)}
        if isinstance(placement, str):
            self._np = _size_of_cluster(resources) if np is None else np
            self._plan = plan(self._np, hosts, resources, placement)
        else:
            self._np = checked_size(len(placement.bundle_specs) if np is None else np)
            self._group = placement
        self._resources = resources
        self._env = {"CIRANDA_START_TIMEOUT": str(start_timeout), **(env or {})}
        self._start_timeout = start_timeout
        self._actors: list[Any] = []  # in the order of ranks
        self._found: list[Whereabouts] = []
        self._is_settled = False  # no function has failed since the ranks last met
        self._patience = _STUBBORN_SECONDS
        self._in_use = threading.RLock()  # while ranks are given a function: all take those of threads in one order

    def __enter__(self) -> Executor:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._np

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[object] | None = None,
        executable_kwargs: Mapping[str, object] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start the ranks, and wait until all are there.

        Args:
            executable_cls: each rank makes an instance of it, which execute() passes to functions.
            executable_args, executable_kwargs: its arguments.
            env: more variables to set for every rank.

        Raises:
            LaunchError: they cannot be started in time, or the class raised.
        """
        if self._actors:
            raise LaunchError("the executor has been started already: call shutdown() first")
        deadline = time.monotonic() + self._start_timeout
        try:
            self._start(deadline, {**self._env, **(env or {})})
            if executable_cls is not None:
                make = partial(executable_cls, *(executable_args or ()), **(executable_kwargs or {}))
                payload = ray.put(ray.cloudpickle.dumps(make))
                self._in_time([actor.make.remote(payload) for actor in self._actors], deadline)
        except BaseException:
            self.shutdown()
            raise

    def run(
        self,
        func: Callable[..., Result],
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
    ) -> list[Result]:
        """Call ``func(*args, **kwargs)`` on all ranks and return their results, in rank order.

        The function, its arguments and its results are sent by Ray's cloudpickle.

        Raises:
            LaunchError: the function raised on a rank, whose traceback is the message: the executor can be used on, if
                the other ranks ended their functions too. Or a rank has ended: the executor is shut down.
            KeyboardInterrupt: after Ctrl-C. The function was interrupted on all ranks, and the executor can be used on.
        """
        return self._results(False, partial(func, *(args or ()), **(kwargs or {})))

    def run_remote(
        self,
        func: Callable[..., Any],
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
    ) -> list[Any]:
        """Call ``func(*args, **kwargs)`` on all ranks; return Ray's references to their results, in rank order.

        ``ray.get()`` of one raises what the function raised there. This waits for functions that still run.
        """
        with self._in_use:
            payload = self._payload(False, partial(func, *(args or ()), **(kwargs or {})))
            return [actor.call.remote(payload) for actor in self._actors]

    def execute(self, func: Callable[[Any], Result]) -> list[Result]:
        """As run(), but call ``func`` with the rank's own ``executable_cls`` of start(), or None."""
        return self._results(True, func)

    def execute_single(self, func: Callable[[Any], Result]) -> Result:
        """As execute(), but on rank 0 only; the result of that."""
        with self._in_use:
            payload = self._payload(True, func)
            (result,) = self._collect([self._actors[0].attempt.remote(payload)])
        return cast(Result, result)

    def shutdown(self) -> None:
        """End the ranks, and give what they had back to Ray. Idempotent; start() may be called again."""
        actors, self._actors = self._actors, []
        if not ray.is_initialized():
            return  # with the driver's connection they have ended
        for actor in actors:
            ray.kill(actor)
        if self._plan is not None and self._group is not None:
            ray.util.remove_placement_group(self._group)
            self._group = None

    # -- the start ---------------------------------------------------------------------------------------------------

    def _start(self, deadline: float, env: Mapping[str, str]) -> None:
        group = self._placed(deadline)
        cpus, gpus = self._resources["CPU"], self._resources["GPU"]
        bundles = self._plan.bundle_of_worker if self._plan is not None else [-1] * self._np
        for bundle in bundles:
            where = PlacementGroupSchedulingStrategy(group, bundle)
            options = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": where, "max_restarts": 0}
            self._actors.append(ray.remote(Rank).options(**options).remote(env))
        found: list[Whereabouts] = self._in_time([actor.whereabouts.remote() for actor in self._actors], deadline)
        _require_one_version(found)
        order = grouped([each.node for each in found])
        self._actors = [self._actors[worker] for worker in order]
        found = [found[worker] for worker in order]
        self._found, self._is_settled = found, False
        job = Job(os.urandom(8).hex(), os.urandom(32).hex())
        is_on_one_machine = len({each.machine for each in found}) == 1
        (store,) = self._in_time([self._actors[0].host_store.remote(job, self._np, is_on_one_machine)], deadline)
        told = ray.put(replace(job, store=store))
        self._in_time(
            [
                actor.join.remote(told, slot, gpus)
                for actor, (slot, gpus) in zip(self._actors, _places(found), strict=True)
            ],
            deadline,
        )

    def _placed(self, deadline: float) -> PlacementGroup:
        """Return the placement group, once all of its bundles are placed."""
        if self._plan is not None:
            self._group = ray.util.placement_group(self._plan.bundles, strategy=self._plan.strategy)
        assert self._group is not None
        if not self._group.wait(max(1, math.ceil(deadline - time.monotonic()))):  # whole seconds
            asked = "the placement group" if self._plan is None else f"{self._plan.words}, for {self._np} ranks,"
            raise LaunchError(f"Ray has not placed {asked} within {self._start_timeout:g} s: {_cluster()}")
        return self._group

    def _in_time(self, refs: list[Any], deadline: float) -> list[Any]:
        """Return what all ranks answer; LaunchError if one does not in time, or has died."""
        pending = list(refs)
        while pending:
            done, pending = ray.wait(pending, timeout=max(0.0, deadline - time.monotonic()))
            if not done:
                raise LaunchError(
                    f"{len(refs) - len(pending)} of {len(refs)} ranks have started within {self._start_timeout:g} s: "
                    f"{_cluster()}"
                )
            try:
                ray.get(done)
            except Exception as error:
                n_there = len(refs) - len(pending) - 1
                raise LaunchError(f"rank {n_there} of {len(refs)} could not be started: {_words(error)}") from error
        return ray.get(refs)  # type: ignore[no-any-return]

    # -- a call ------------------------------------------------------------------------------------------------------

    def _payload(self, wants_executable: bool, func: Callable[..., Any]) -> Any:
        """Return a reference to what call() and attempt() take, once the ranks can meet."""
        if not self._actors:
            raise LaunchError("the executor has no ranks: call start()")
        payload = ray.put(ray.cloudpickle.dumps((wants_executable, func)))
        if not self._is_settled:
            states = self._collect([actor.settled.remote() for actor in self._actors])
            if any(has_failed for has_failed, _ in states):
                epoch = max(epoch for _, epoch in states)
                self._collect([actor.begin.remote(epoch) for actor in self._actors])
        self._is_settled = False  # until all have returned
        return payload

    def _results(self, wants_executable: bool, func: Callable[..., Any]) -> list[Any]:
        with self._in_use:
            payload = self._payload(wants_executable, func)
            answers = self._collect([actor.attempt.remote(payload) for actor in self._actors])
            self._is_settled = True
        return answers

    def _collect(self, refs: list[Any]) -> list[Any]:
        """Return what the first ranks answer, in rank order; LaunchError for the rank that is to blame."""
        wait = _Wait(refs, self._found)
        try:
            try:
                wait.until_end(self._patience)
            except KeyboardInterrupt:
                wait.interrupt_at = time.monotonic()
                wait.until_end(self._patience)
                raise
        finally:
            if wait.pending or wait.has_lost_rank:
                self.shutdown()
        if not wait.failures:
            return [wait.answers[rank] for rank in range(len(refs))]
        failure = culprit(wait.failures)
        words = failure.stderr_tail.decode("utf-8", "replace").rstrip()
        raise LaunchError(f"rank {failure.rank} on {failure.host} {words}", 1, failure)


class _Wait:
    """For the answers of ranks. If one fails, the others are interrupted a moment later."""

    def __init__(self, refs: list[Any], found: Sequence[Whereabouts]) -> None:
        self._rank_of = {ref: rank for rank, ref in enumerate(refs)}
        self._found = found
        self.pending = list(refs)
        self.answers: dict[int, Any] = {}
        self.failures: list[RankFailure] = []
        self.has_lost_rank = False
        self.interrupt_at: float | None = None

    def until_end(self, patience: float) -> None:
        """Wait until all have answered, or until so many seconds after the first interruption."""
        give_up_at = None
        while self.pending:
            done, self.pending = ray.wait(self.pending, timeout=self._seconds_left())
            if done:
                self._take(done[0])
            now = time.monotonic()
            if self.interrupt_at is not None and now >= self.interrupt_at:
                give_up_at = give_up_at or now + patience
                if now >= give_up_at:
                    return
                self._interrupt()
                self.interrupt_at = min(now + _AGAIN_SECONDS, give_up_at)

    def _seconds_left(self) -> float | None:
        return None if self.interrupt_at is None else max(0.0, self.interrupt_at - time.monotonic())

    def _take(self, ref: Any) -> None:
        rank = self._rank_of[ref]
        answer, is_lost = _answer(ref)
        if not isinstance(answer, str):
            self.answers[rank] = answer[0]
            return
        self.failures.append(RankFailure(rank, self._found[rank].host, 1, answer.encode("utf-8", "replace")))
        self.has_lost_rank = self.has_lost_rank or is_lost
        self.interrupt_at = self.interrupt_at or time.monotonic() + _BLAME_SECONDS

    def _interrupt(self) -> None:
        """Have a task on each node interrupt the functions there."""
        pids: dict[str, list[int]] = {}
        for ref in self.pending:
            found = self._found[self._rank_of[ref]]
            pids.setdefault(found.node, []).append(found.pid)
        for node, of_node in pids.items():
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            ray.remote(interrupt).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(of_node)


def run(
    func: Callable[..., Result],
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    np: int | None = None,
    *,
    cpus_per_worker: float = 1,
    gpus_per_worker: float = 0,
    placement: str | PlacementGroup = "PACK",
    env: Mapping[str, str] | None = None,
    start_timeout: float = _START_SECONDS,
) -> list[Result]:
    """Call ``func(*args, **kwargs)`` on ``np`` ranks, which are actors of Ray; their results, in rank order.

    The arguments are those of ``Executor``. When this returns or raises, no rank is left.

    Raises:
        HostsError: the numbers make no sense.
        LaunchError: Ray cannot place the ranks in time; or one failed: the message has its traceback.
        KeyboardInterrupt: after Ctrl-C.
    """
    executor = Executor(
        np,
        cpus_per_worker=cpus_per_worker,
        gpus_per_worker=gpus_per_worker,
        placement=placement,
        env=env,
        start_timeout=start_timeout,
    )
    executor._patience = 0.0  # to end a rank is enough
    with executor:
        return executor.run(func, args, kwargs)


def _size_of_cluster(resources: Mapping[str, float]) -> int:
    """How many ranks the cluster has room for."""
    total = ray.cluster_resources()
    return int(min(total.get(name, 0.0) // amount for name, amount in resources.items() if amount > 0))


def _cluster() -> str:
    n_nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    return cluster_words(ray.cluster_resources(), ray.available_resources(), n_nodes)


def _require_one_version(found: Sequence[Whereabouts]) -> None:
    on_hosts = {each.host: getattr(each, "version", "another") for each in found}  # an older one does not say it
    try:
        require_one_version({"the driver": ciranda.__version__, **on_hosts})
    except InvalidArgumentError as error:
        raise LaunchError(str(error)) from None


def _places(found: Sequence[Whereabouts]) -> list[tuple[Slot, list[str]]]:
    """Return each rank's numbers, and the GPUs of all ranks of its node. Nodes count as hosts."""
    slots = positions([each.node for each in found])
    on_node = {each.node: [gpu for other in found if other.node == each.node for gpu in other.gpus] for each in found}
    return [(replace(slot, host=each.host), on_node[each.node]) for slot, each in zip(slots, found, strict=True)]


def _answer(ref: Any) -> tuple[tuple[Any] | str, bool]:
    """Return what a rank answered, in a tuple, or the words of its failure; and whether the rank is gone."""
    try:
        value = ray.get(ref)
    except ray.exceptions.RayActorError as error:
        return f"has ended: {_words(error)}", True
    except Exception as error:  # of Ray, such as a result that cannot be pickled
        return f"gave no result: {_words(error)}", False
    if isinstance(value, Ended):
        return (f"raised:\n{value.value}", False) if value.has_raised else ((value.value,), False)
    return (value,), False


def _words(error: Exception) -> str:
    return _COLOURS.sub("", str(error)).strip()
