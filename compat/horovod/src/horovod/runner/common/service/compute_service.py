"""`horovod.runner.common.service.compute_service`: how training processes find those that prepare data for them.

Data comes from dispatchers, each with as many workers. Who starts one registers it here; who needs one waits here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from horovod.runner.common.util.network import Addresses, BasicClient, BasicService
from horovod.runner.common.util.timeout import Timeout, TimeoutException

__all__ = ["ComputeClient", "ComputeService"]

_NAME = "Compute service"


class ComputeService(BasicService):
    """What is known of `dispatchers` dispatchers, numbered from 0, with `workers_per_dispatcher` workers each.

    Args:
        dispatchers: 1: one for all training processes; else one for each.
        workers_per_dispatcher: how many must be there before a dispatcher is used.
        key: which clients must have.
        nics: the network interfaces at which it is to be found; None: all.

    Raises:
        ValueError: a number is less than 1.
    """

    NAME = _NAME

    def __init__(
        self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Sequence[str] | None = None
    ) -> None:
        if dispatchers <= 0:
            raise ValueError(f"The number of dispatchers must be larger than 0: {dispatchers}")
        if workers_per_dispatcher <= 0:
            raise ValueError(f"The number of workers per dispatcher must be larger than 0: {workers_per_dispatcher}")
        self._n_workers = workers_per_dispatcher
        self._dispatchers: list[str | None] = [None] * dispatchers
        self._workers: list[set[int]] = [set() for _ in range(dispatchers)]
        self._is_shut_down = False
        self._changed = threading.Condition()
        super().__init__(_NAME, key, nics)
        self._calls.update(
            register_dispatcher=self._register_dispatcher,
            register_worker=self._register_worker,
            wait_for_dispatcher=self._wait_for_dispatcher,
            wait_for_workers=self._wait_for_workers,
            wait_for_shutdown=self._wait_for_shutdown,
            shutdown=lambda: threading.Thread(target=self.shutdown).start(),
        )

    def shutdown(self) -> None:
        """Answer those who wait for this, and take no more calls."""
        with self._changed:
            self._is_shut_down = True
            self._changed.notify_all()
        super().shutdown()

    def _register_dispatcher(self, number: int, address: str) -> None:
        with self._changed:
            self._check(number)
            known = self._dispatchers[number]
            if known is not None and known != address:
                raise ValueError(
                    f"Dispatcher {number} is registered already, at another address: {known}, not {address}"
                )
            self._dispatchers[number] = address
            self._changed.notify_all()

    def _register_worker(self, number: int, worker: int) -> None:
        with self._changed:
            self._check(number)
            self._workers[number].add(worker)
            self._changed.notify_all()

    def _wait_for_dispatcher(self, number: int, seconds: float) -> str | None:
        self._check(number)
        self._wait(lambda: self._dispatchers[number] is not None, seconds, f"dispatcher {number} to register")
        return self._dispatchers[number]

    def _wait_for_workers(self, number: int, seconds: float) -> None:
        place = number if len(self._dispatchers) > 1 else 0  # the one of all
        self._check(place)
        has_all = lambda: len(self._workers[place]) >= self._n_workers  # noqa: E731
        self._wait(has_all, seconds, f"workers for dispatcher {place} to register")

    def _wait_for_shutdown(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_shut_down)

    def _check(self, number: int) -> None:
        last = len(self._dispatchers) - 1
        if not 0 <= number <= last:
            raise IndexError(f"Dispatcher id must be within [0..{last}]: {number}")

    def _wait(self, is_so: Callable[[], bool], seconds: float, what: str) -> None:
        limit = Timeout(seconds, "Timed out waiting for {activity}. See what keeps it, or raise the timeout.")
        with self._changed:
            self._changed.wait_for(lambda: is_so() or self._is_shut_down, seconds)
            if is_so():
                return
        limit.check_time_out_for(what)
        raise TimeoutException(f"The compute service was shut down while it waited for {what}.")


class ComputeClient(BasicClient):
    """Calls a `ComputeService`; what that refuses is raised here.

    Raises:
        NoValidAddressesFound: there is no such service, or it has another key.
    """

    def __init__(self, compute_addresses: Addresses, key: bytes, verbose: int = 1) -> None:
        super().__init__(_NAME, compute_addresses, key, verbose)

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Say where a dispatcher is.

        Raises:
            IndexError: there is no such number.
            ValueError: it is registered already, at another address.
        """
        self._call("register_dispatcher", dispatcher_id, dispatcher_address)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """Return where a dispatcher is, as soon as it is registered.

        Raises:
            IndexError: there is no such number.
            TimeoutException: that took more than `timeout` seconds.
        """
        address: str = self._call("wait_for_dispatcher", dispatcher_id, timeout)
        return address

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Say that a dispatcher has a worker. Raises IndexError if there is no such dispatcher."""
        self._call("register_worker", dispatcher_id, worker_id)

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Return as soon as a dispatcher has all its workers; the only one, whatever its number, if there is one.

        Raises:
            IndexError: there is no such number.
            TimeoutException: that took more than `timeout` seconds.
        """
        self._call("wait_for_workers", dispatcher_id, timeout)

    def shutdown(self) -> None:
        """Have the service end, once it has answered all that wait."""
        self._call("shutdown")

    def wait_for_shutdown(self) -> None:
        """Return when the service is shut down; raise ConnectionError if it is lost."""
        self._call("wait_for_shutdown")
