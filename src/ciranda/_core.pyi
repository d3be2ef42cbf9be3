"""The engine. Everything here is an implementation detail of the package `ciranda`."""

from collections.abc import Callable
from typing import Any, TypedDict

__version__: str

#: Name to number, from the engine's own tables.
DATA_TYPES: dict[str, int]
REDUCE_OPS: dict[str, int]
COLLECTIVES: dict[str, int]
#: Of a rank's counters; `ciranda.launch.page` repeats it.
PAGE_LAYOUT: PageLayout
#: A capsule of a ciranda_table (ciranda/table.h), and below its address.
TABLE: object

class SettingRow(TypedDict):
    name: str
    horovod_name: str
    default: bool | int | float | str
    lowest: float | None
    highest: float | None
    meaning: str

class PageLayout(TypedDict):
    magic: int
    version: int
    n_bytes: int
    fields: dict[str, tuple[int, int]]
    call_fields: list[str]
    link_fields: list[str]
    paths: list[str]

class ReduceOpRow(TypedDict):
    name: str
    number: int
    meaning: str
    takes: list[str]
    scales: list[str]

class CollectiveRow(TypedDict):
    name: str
    number: int
    is_reduction: bool
    has_root: bool
    has_tensors: bool
    first_dim_may_differ: bool

class HostCostRow(TypedDict):
    name: str
    default: int
    lowest: int
    highest: int
    meaning: str

class LauncherVariableRow(TypedDict):
    name: str
    launcher: str
    is_index: bool
    describes_hosts: bool

class PairRow(TypedDict):
    line_ns: int
    distance: str
    hand_over_gb_per_s: dict[str, float]
    read_gb_per_s: float

class PeerRow(TypedDict):
    rank: int
    pid: int
    host: str
    address: str
    shares_memory: bool
    # What this rank measured with it at init(); None where it did not.
    pair: PairRow | None

def detain_other_threads() -> None: ...
def stay_if_detained() -> None: ...
def forget_other_threads() -> None: ...
def reduce_op_table() -> list[ReduceOpRow]: ...
def collective_table() -> list[CollectiveRow]: ...
def settings() -> list[SettingRow]: ...
def host_costs_table() -> list[HostCostRow]: ...
def measured_costs() -> dict[str, int] | None: ...
def save_measured_costs(values: dict[str, int]) -> str: ...
def effective_settings() -> dict[str, bool | int | float | str]: ...
def launcher_variables() -> list[LauncherVariableRow]: ...
def why_not_alone(environ: dict[str, str]) -> str: ...
def doubt_of_being_alone(environ: dict[str, str]) -> str: ...
def simd_level() -> str: ...
def best_simd_level() -> str: ...
def set_simd_level(name: str) -> None: ...

# Opens and tries every device: its name, what is wrong with it ("": nothing), and why it has no kernels ("": it has).
def examine_devices() -> list[tuple[str, str, str]]: ...

# Opens the NCCL that would be used: its version (0: none), its file, and why it cannot be used ("": it can).
def find_nccl(named: str) -> tuple[int, str, str]: ...

# The same of the NCCL that this process has loaded.
def loaded_nccl() -> tuple[int, str, str] | None: ...

# The number of calls of this process that are to be part of CUDA graphs.
def n_captured_calls() -> int: ...

# How this process writes staging buffers over what others have read: "cached" or "past-caches".
def staging_copy() -> str: ...

class LineProbe:
    # `memory`: a writable buffer that two processes share, zeroed, of at least 8 bytes, alone on its cache lines; one
    # of them is first.
    def __init__(self, memory: object, is_first: bool) -> None: ...
    # One way of a cache line; both call it at the same time. None where the other has not come in time: it is then of
    # no further use.
    def one_way_ns(self, seconds: float) -> float | None: ...

# Calls dump() for each byte that can be read from `fd`, with the GIL, on a thread that also receives `signal`, even
# while it waits for the GIL. The thread lives as long as the process.
def watch_stacks(fd: int, signal: int, dump: Callable[[], None]) -> None: ...

# Gives each line of the loggers of this process, a JSON object, to take(), on a thread of its own that is in Python
# meanwhile only. close() returns when the lines of until now have been given.
class LogWatch:
    def __init__(self, take: Callable[[bytes], None]) -> None: ...
    def close(self) -> None: ...

# How far apart cores are between which a line takes so long: "near" or "far".
def distance_of(line_ns: float) -> str: ...

class TensorDescription:
    # Of a tensor on a GPU: the library (_cuda_arrays.Library), and the GPU's number.
    def __init__(
        self,
        address: int,
        shape: list[int] | tuple[int, ...],
        dtype: int,
        owner: object,
        library: object | None = None,
        gpu: int = 0,
    ) -> None: ...

class Operation:
    # TimeoutError when the seconds are over; the operation goes on.
    def wait(self, seconds: float | None = None) -> None: ...
    def poll(self) -> bool: ...
    def outputs(self) -> list[Any]: ...
    def value(self) -> int: ...

class CompletionQueue:
    def __init__(self) -> None: ...
    # Once it is done, or the seconds are over, one next() returns the key.
    def watch(self, operation: Operation, key: int, seconds: float | None = None) -> None: ...
    # Sleeps until there is one. None: the queue is closed, and nothing that is done is left.
    def next(self) -> int | None: ...
    def close(self) -> None: ...

def wait_all(operations: list[Operation]) -> None: ...

class Recording:
    # Of each call that is done since the last read: its name, collective, path (as cpp/observe/stages.hpp says),
    # outcome (0: ok), bytes, process set, lane; and when it was submitted, taken in by the engine, ready, agreed on,
    # started, and done, on the clock of time.monotonic_ns(). 0: that stage never came.
    def read(self) -> list[tuple[str, str, str, int, int, int, int, tuple[int, int, int, int, int, int]]]: ...
    # How many calls were overwritten before they were read.
    @property
    def n_lost(self) -> int: ...
    def stop(self) -> None: ...

# What ranks must ask alike of a call, beside its tensors.
class Terms:
    def __init__(
        self, collective: int, op: int, root: int, prescale: float, postscale: float, divides_by_all: bool
    ) -> None: ...

class PreparedCall:
    def __init__(self, name: str, terms: Terms, process_set: int = 0, priority: int = 0) -> None: ...
    @property
    def name(self) -> str: ...

# How a caller waits for a call, and how the call is matched: bits of `how`. The caller of an early call waits soon;
# until then the call may come to a direct round. Numbered calls of one name may follow each other before the first is
# done; ranks match them in their order.
DEFERRABLE: int
AWAITED: int
EARLY: int
NUMBERED: int

class Engine:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def cross_rank(self) -> int: ...
    @property
    def cross_size(self) -> int: ...
    @property
    def num_lanes(self) -> int: ...
    # The file by which this process keeps its slot, for programs that it starts; empty if it keeps none.
    @property
    def kept_slot(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    # A collective of all ranks has failed here, or a rank has left or was lost.
    @property
    def has_failed(self) -> bool: ...
    @property
    def shares_memory_with_all(self) -> bool: ...
    def peer(self, rank: int) -> PeerRow: ...
    # A collective of all ranks: zeroed bytes, as the library of the tensor `like` has them, that are combined where
    # they lie; and whether they are (else they are this process's own, on all ranks alike).
    def allocate_shared(self, n_bytes: int, like: object) -> tuple[Any, bool]: ...
    @property
    def n_bytes_in_place(self) -> int: ...
    # How the world could carry it out: see ciranda.bench.plan.Candidate.
    def candidates(
        self, collective: int, n_bytes: int
    ) -> list[tuple[str, int, float | None, float | None, bool, bool]]: ...
    # How it agrees on a blocking call made again, of which a rank contributes n_bytes; empty on ranks other than
    # the lowest.
    def agreement(self, collective: int, n_bytes: int) -> str: ...
    # Until the results of all calls that are done are there, on this rank's GPU; raises what made one of them void.
    def await_results(self) -> None: ...
    def shutdown(self) -> None: ...
    def abandon(self) -> None: ...
    def checksum(self, tensor: object) -> int: ...
    # `inputs`: a tensor, or a list or tuple of them; `outputs`: the same object for in place, None where the engine
    # allocates. An allgather uses given outputs only where all ranks have as many rows, and allocates where not.
    # `splits`: a list for each tensor, empty for equal parts. run() returns the tensors that the engine allocated: for
    # an alltoall, the outputs and then the rows received from each rank, for each tensor.
    def submit(
        self,
        terms: Terms,
        inputs: object,
        outputs: object,
        name: str | None,
        process_set: int = 0,
        splits: list[list[int]] | None = None,
        weight: float | None = None,
        priority: int = 0,
        how: int = ...,
    ) -> Operation: ...
    def run(
        self,
        terms: Terms,
        inputs: object,
        outputs: object,
        name: str | None,
        process_set: int = 0,
        splits: list[list[int]] | None = None,
        weight: float | None = None,
    ) -> list[Any]: ...
    # What this rank's calls do from here on, until it is stopped or dropped.
    def record(self) -> Recording: ...
    def count_step(self) -> None: ...
    # As `ciranda.launch.page` reads it.
    def counter_page(self) -> bytes: ...
    # Of rank 0; on others it does nothing.
    def start_timeline(self, path: str, marks_cycles: bool) -> None: ...
    def stop_timeline(self) -> None: ...
    def start_records(self, path: str) -> None: ...
    def stop_records(self) -> None: ...
    # A collective without tensors: join, add_process_set (arguments: the ranks), remove_process_set (its number).
    def submit_bare(self, collective: int, arguments: list[int], process_set: int = 0) -> Operation: ...
    def ranks_of(self, process_set: int) -> list[int]: ...
    def pair_with(self, rank: int) -> int: ...
    # A process set that only its own ranks make, all of them; `nth` is the same on all and new to the first.
    def form_set(self, ranks: list[int], nth: int) -> int: ...
    # With a weight the average divides by the sum of the weights.
    def submit_prepared(
        self, prepared: PreparedCall, tensors: object, weight: float | None = None, is_early: bool = False
    ) -> Operation: ...

# `num_lanes` stands above the setting CIRANDA_NUM_LANES; `told` are variables that stand above the environment's.
# `slot`: what tells this rank's slot from all others; None: the engine's variables do. `interrupted` is asked several
# times a second during the wait, which it ends with AbortedError if it returns true; it must not raise.
def connect(
    epoch: int,
    num_lanes: int | None = None,
    told: dict[str, str] = ...,
    slot: str | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Engine: ...

# Why this slot cannot be taken: the process that started this program keeps it. Empty if it is free.
def why_taken(slot: str | None) -> str: ...

# The world that C or C++ has joined in this process; None without one.
def attach() -> Engine | None: ...
def next_epoch() -> int: ...
def table_address() -> int: ...

# X25519: a private key, by default a new one, and what it agrees on with the holder of another. ValueError if a key has
# not 32 bytes, or is none to agree with.
class KeyAgreement:
    def __init__(self, private_key: bytes | None = None) -> None: ...
    @property
    def public_key(self) -> bytes: ...
    def agreed(self, public_key_of_other: bytes) -> bytes: ...

class StoreServer:
    # Listens on all addresses of `bind`, on `port` (0: any). `secret` is 64 hexadecimal digits.
    def __init__(self, bind: list[str], port: int, secret: str, size: int, job: str) -> None: ...
    @property
    def port(self) -> int: ...
    # `rank` never comes again: whoever waits for it, now or later, gets RanksLostError with the reason `why`.
    def lose(self, rank: int, why: str) -> None: ...
    def close(self) -> None: ...
