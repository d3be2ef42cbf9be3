# Written by tools/make_stubs.py from ciranda/_collectives/names.py: change it there, then run that.

from collections.abc import Callable
from typing import Any

reduce: Callable[..., Any]
reduce_async: Callable[..., Any]
grouped_reduce: Callable[..., Any]
grouped_reduce_async: Callable[..., Any]
gather: Callable[..., Any]
gather_async: Callable[..., Any]
grouped_gather: Callable[..., Any]
grouped_gather_async: Callable[..., Any]
scatter: Callable[..., Any]
scatter_async: Callable[..., Any]
grouped_scatter: Callable[..., Any]
grouped_scatter_async: Callable[..., Any]
send: Callable[..., Any]
send_async: Callable[..., Any]
grouped_send: Callable[..., Any]
grouped_send_async: Callable[..., Any]
recv: Callable[..., Any]
recv_async: Callable[..., Any]
grouped_recv: Callable[..., Any]
grouped_recv_async: Callable[..., Any]
