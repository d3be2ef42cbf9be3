"""`horovod.runner.common.util.network`: a service that processes of a job call, on whichever host they are.

Who connects proves that it has the key, and so does the service, by the challenges of `multiprocessing.connection`.
Then one request and one answer travel, as JSON: nothing that comes over the network is run.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

import psutil

from horovod.runner.common.util.timeout import TimeoutException

__all__ = ["BasicClient", "BasicService", "NoValidAddressesFound"]

#: By network interface.
Addresses = Mapping[str, Sequence[tuple[str, int]]]

_MOST_BYTES = 1 << 20
_CONNECT_SECONDS = 20.0
# What a call may fail with, and is raised again where it was made.
_ERRORS: dict[str, type[Exception]] = {
    error.__name__: error for error in (IndexError, ValueError, TimeoutException, NotImplementedError)
}


class NoValidAddressesFound(Exception):
    """The service was found at none of its addresses."""


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False


class BasicService:
    """Answers calls at a port of its own, each in a thread of its own.

    Args:
        service_name: which clients must ask for.
        key: which clients must have.
        nics: the network interfaces at which it is to be found; None: all.

    Raises:
        NoValidAddressesFound: none of `nics` is there.
    """

    def __init__(self, service_name: str, key: bytes, nics: Sequence[str] | None = None) -> None:
        self._service_name = service_name
        self._key = key
        self._calls: dict[str, Callable[..., Any]] = {"name": lambda: service_name}
        self._n_answering = 0
        self._answered = threading.Condition()
        self._server = _Server(("", 0), self._handler())
        self._port: int = self._server.server_address[1]
        self._addresses = self._local_addresses(nics)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """Where it is: addresses and ports, by network interface."""
        return dict(self._addresses)

    def get_port(self) -> int:
        """At which port."""
        return self._port

    def shutdown(self) -> None:
        """Take no more calls, and return when those that were made are answered. May be called again."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._answered:
            self._answered.wait_for(lambda: self._n_answering == 0)

    def _local_addresses(self, nics: Sequence[str] | None) -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = {}
        for nic, addresses in psutil.net_if_addrs().items():
            ours = [(each.address, self._port) for each in addresses if each.family == socket.AF_INET]
            if ours and (not nics or nic in nics):
                found[nic] = ours
        if not found:
            self._server.server_close()
            raise NoValidAddressesFound(f"no network interface of this host is one of {nics}, and has an IPv4 address")
        return found

    def _handler(self) -> type[socketserver.BaseRequestHandler]:
        service = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with Connection(self.request.detach()) as connection:
                    service._serve(connection)

        return Handler

    def _serve(self, connection: Connection) -> None:
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            request = json.loads(connection.recv_bytes(_MOST_BYTES))
        except (AuthenticationError, OSError, EOFError, ValueError):
            return  # nobody who could be answered
        with self._answered:
            self._n_answering += 1
        try:
            connection.send_bytes(json.dumps(self._answer(request)).encode())
        except OSError:
            pass  # who asked has gone
        finally:
            with self._answered:
                self._n_answering -= 1
                self._answered.notify_all()

    def _answer(self, request: Any) -> dict[str, Any]:
        try:
            if not isinstance(request, list) or not request or request[0] not in self._calls:
                raise NotImplementedError(f"{self._service_name} has no such call: {request!r}")
            return {"value": self._calls[request[0]](*request[1:])}
        except Exception as error:
            return {"error": type(error).__name__, "message": str(error)}


class BasicClient:
    """Calls a `BasicService`.

    Raises:
        NoValidAddressesFound: at none of `addresses` there is one of that name, with that key.
    """

    def __init__(
        self, service_name: str, addresses: Addresses, key: bytes, verbose: int = 1, attempts: int = 3
    ) -> None:
        self._service_name = service_name
        self._key = key
        self._addresses = self._find({(host, port) for each in addresses.values() for host, port in each}, attempts)

    def addresses(self) -> list[tuple[str, int]]:
        """Those at which the service was found."""
        return list(self._addresses)

    def _find(self, addresses: set[tuple[str, int]], attempts: int) -> list[tuple[str, int]]:
        why = ["it has no address"]
        for _ in range(attempts if addresses else 0):
            why = []
            pool = ThreadPoolExecutor(len(addresses))
            asked = {pool.submit(self._call_at, address, "name"): address for address in addresses}
            pool.shutdown(wait=False)
            for done in as_completed(asked):
                error = done.exception()
                if error is None and done.result() == self._service_name:
                    return [asked[done]]
                why.append(f"{asked[done]}: {error or 'another service, ' + repr(done.result())}")
        raise NoValidAddressesFound(
            f"{self._service_name} cannot be reached ({'; '.join(why)}). It must run, have the same key, and be "
            "reachable from this host by one of its network interfaces"
        )

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._call_at(self._addresses[0], name, *arguments)

    def _call_at(self, address: tuple[str, int], name: str, *arguments: Any) -> Any:
        try:
            answer = self._ask(address, [name, *arguments])
        except AuthenticationError:
            raise ConnectionError(f"{self._service_name} at {address} has another key") from None
        except EOFError:
            raise ConnectionError(f"{self._service_name} at {address} has ended before it answered") from None
        if "error" in answer:
            raise _ERRORS.get(answer["error"], RuntimeError)(answer["message"])
        return answer["value"]

    def _ask(self, address: tuple[str, int], request: list[Any]) -> dict[str, Any]:
        stream = socket.create_connection(address, _CONNECT_SECONDS)
        stream.settimeout(None)
        # A host that is gone without a word is noticed, however long the call may take.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
        with Connection(stream.detach()) as connection:
            answer_challenge(connection, self._key)
            deliver_challenge(connection, self._key)
            connection.send_bytes(json.dumps(request).encode())
            answer: dict[str, Any] = json.loads(connection.recv_bytes(_MOST_BYTES))
            return answer
