"""Programs of a torch with the fake `torch.cuda`.

`python programs.py NAME...` runs them one after the other, and says which.
"""

from __future__ import annotations

import copy
import io
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

PROGRAMS: dict[str, Callable[[], None]] = {}


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


def is_same(on_cpu: torch.Tensor, on_cuda: torch.Tensor) -> bool:
    return on_cuda.is_cuda and torch.equal(on_cpu, on_cuda.cpu())


def same_on_both(make: Callable[[str], torch.Tensor]) -> None:
    torch.manual_seed(1)
    on_cpu = make("cpu")
    torch.manual_seed(1)
    assert is_same(on_cpu, make("cuda")), make


def twins(module: nn.Module) -> tuple[nn.Module, nn.Module]:
    return module, copy.deepcopy(module).to("cuda")


def conv_net() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 4)
    )


def mlp() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 2))


@program
def properties() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.is_initialized() or torch.cuda.init() is None
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.ones(1, device="cuda").device == torch.device("cuda:0")
    assert torch.ones(1).pin_memory().is_pinned()
    assert not torch.ones(1).is_pinned()
    torch.cuda.set_rng_state(torch.cuda.get_rng_state())
    before = torch.cuda.memory_allocated()
    kept = torch.ones(1000, device="cuda")
    assert torch.cuda.memory_allocated() == before + kept.nbytes
    del kept
    torch.cuda.empty_cache()


@program
def factories() -> None:
    for make in (torch.ones, torch.zeros, torch.rand, torch.randn):
        same_on_both(lambda device, make=make: make(2, 3, device=device))
    same_on_both(lambda device: torch.arange(12.0, device=device))
    same_on_both(lambda device: torch.full((2,), 7, device=device))
    same_on_both(lambda device: torch.tensor([1, 2], device=device))
    same_on_both(lambda device: torch.randperm(9, device=device))
    same_on_both(lambda device: torch.ones(2).to(device, torch.float64))
    same_on_both(lambda device: torch.rand_like(torch.empty(3, device=device)))
    same_on_both(lambda device: torch.empty(3, 4, device=device).t().copy_(torch.ones(1, 3)))


@program
def arithmetic() -> None:
    def matrix(device: str) -> torch.Tensor:
        return torch.arange(12.0, device=device).view(3, 4)

    same_on_both(lambda device: matrix(device) * 2 + matrix(device).sum(1, keepdim=True))
    same_on_both(lambda device: matrix(device) @ matrix(device).t().new_ones(4, 4))
    same_on_both(lambda device: matrix(device)[torch.tensor([0, 2], device=device)])
    same_on_both(lambda device: matrix(device)[matrix(device) > 3])
    same_on_both(lambda device: matrix(device).topk(2).indices)
    same_on_both(lambda device: torch.cat([matrix(device), matrix(device)[:1]]).sort(0, descending=True).values)
    same_on_both(lambda device: torch.add(matrix(device), 1, out=torch.empty(0, device=device)))
    same_on_both(lambda device: torch.where(matrix(device) > 5, 1.0, 0.0).half())
    same_on_both(lambda device: torch.stack(torch._foreach_add([matrix(device), matrix(device)], 1)))
    same_on_both(lambda device: torch._utils._flatten_dense_tensors([matrix(device), matrix(device)[0]]))
    tensor = matrix("cuda")
    assert tensor.sum().item() == 66
    assert tensor[0].tolist() == [0, 1, 2, 3]
    assert bool((tensor >= 0).all())
    assert "device='cuda:0'" in repr(tensor)


@program
def views() -> None:
    tensor = torch.zeros(4, 6, device="cuda")
    tensor[1:3, ::2].add_(1)
    tensor.t()[5].fill_(7)
    tensor.view(-1)[0] = 9
    tensor.split(2)[1].mul_(2)
    torch.add(torch.ones(2, device="cuda"), 1, out=tensor[0, 2:4])
    assert tensor.tolist() == [[9, 0, 2, 2, 0, 7], [1, 0, 1, 0, 1, 7], [2, 0, 2, 0, 2, 14], [0, 0, 0, 0, 0, 14]]
    assert tensor[1:].data_ptr() == tensor.data_ptr() + 24
    assert tensor.detach().untyped_storage().data_ptr() == tensor.data_ptr()
    assert is_same(torch.view_as_real(torch.ones(2) * 1j), torch.view_as_real(torch.ones(2, device="cuda") * 1j))


@program
def storages() -> None:
    saved = io.BytesIO()
    torch.save(torch.arange(5.0, device="cuda")[1:3], saved)
    for where, device in ((None, "cuda"), ("cpu", "cpu")):
        saved.seek(0)
        loaded = torch.load(saved, map_location=where)
        assert loaded.device.type == device
        assert loaded.tolist() == [1, 2]
    tensor = torch.ones(4, device="cuda")
    assert copy.deepcopy(tensor).tolist() == [1, 1, 1, 1]
    tensor.untyped_storage().resize_(0)
    tensor.untyped_storage().resize_(16)
    assert tensor.fill_(2).tolist() == [2, 2, 2, 2]
    assert tensor.resize_(6)[:4].tolist() == [2, 2, 2, 2]
    assert torch.from_dlpack(tensor).data_ptr() == tensor.data_ptr()


@program
def modules() -> None:
    for module, shape in ((mlp(), (5, 4)), (conv_net(), (2, 3, 8, 8))):
        for mode in (True, False):
            on_cpu, on_cuda = twins(module.train(mode))
            batch = torch.randn(shape)
            mine, theirs = batch.clone().requires_grad_(), batch.to("cuda").requires_grad_()
            expected, found = on_cpu(mine), on_cuda(theirs)
            assert is_same(expected, found)
            expected.square().sum().backward()
            found.square().sum().backward()
            assert is_same(mine.grad, theirs.grad)
            for a, b in zip(on_cpu.parameters(), on_cuda.parameters(), strict=True):
                assert is_same(a.grad, b.grad)
            for a, b in zip(on_cpu.buffers(), on_cuda.buffers(), strict=True):
                assert is_same(a, b)
            on_cpu.zero_grad()


@program
def optimizers() -> None:
    batch = torch.randn(5, 4)
    makers: list[Callable[..., Any]] = [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
        lambda parameters: torch.optim.Adam(parameters, lr=0.1),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.1, foreach=False),
    ]
    for make in makers:
        pairs = [(module, make(module.parameters())) for module in twins(mlp())]
        for step in range(4):
            for module, optimizer in pairs:
                optimizer.zero_grad()
                module(batch.to(next(module.parameters()).device)).square().mean().backward()
                torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                optimizer.step()
                if step == 1:
                    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for a, b in zip(pairs[0][0].parameters(), pairs[1][0].parameters(), strict=True):
            assert is_same(a, b)


@program
def sparse() -> None:
    indices, values = torch.tensor([[2, 0, 2]]), torch.arange(6.0).view(3, 2)
    on_cpu = torch.sparse_coo_tensor(indices, values, (4, 2))
    on_cuda = torch.sparse_coo_tensor(indices.cuda(), values.cuda(), (4, 2))
    assert on_cuda.is_sparse
    assert on_cuda.device == torch.device("cuda:0")
    assert on_cuda._indices().is_cuda
    assert is_same(on_cpu.to_dense(), on_cuda.to_dense())
    assert is_same(on_cpu.coalesce().values(), on_cuda.coalesce().values())
    for moved in (on_cuda.cpu(), on_cuda.coalesce().cpu().cuda().cpu()):
        assert torch.equal(moved.to_dense(), on_cpu.to_dense())
    tables = twins(nn.Embedding(5, 3, sparse=True))
    for table in tables:
        optimizer = torch.optim.SGD(table.parameters(), lr=0.5)
        for _ in range(2):
            optimizer.zero_grad()
            for _ in range(2):
                table(torch.tensor([1, 4, 1], device=table.weight.device)).square().sum().backward()
            assert table.weight.grad.is_sparse
            optimizer.step()
    assert is_same(tables[0].weight, tables[1].weight)


def work_stream_of_dlpack() -> int:
    import ctypes

    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    n_pointers_before = 6  # of the table: version and previous table, and four functions
    table = get(torch.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    place = ctypes.c_void_p.from_address(table + n_pointers_before * ctypes.sizeof(ctypes.c_void_p))
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
    stream = ctypes.c_void_p()
    assert function(place.value)(2, 0, ctypes.byref(stream)) == 0
    return stream.value or 0


@program
def streams() -> None:
    side = torch.cuda.Stream()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert torch.cuda.current_stream().cuda_stream == 0
    assert work_stream_of_dlpack() == 0
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        assert torch.cuda.current_stream().cuda_stream == side.cuda_stream != 0
        assert work_stream_of_dlpack() == side.cuda_stream
        tensor = torch.ones(4, device="cuda")
        done = side.record_event()
    done.wait()
    tensor.add_(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert tensor.tolist() == [2, 2, 2, 2]
    done.record(side)
    done.synchronize()
    assert done.query()
    side.synchronize()
    assert side.query()
    torch.cuda.synchronize()
    assert torch.cuda.ExternalStream(side.cuda_stream) == side


@program
def backward_on_the_stream_of_forward() -> None:
    """Autograd orders the streams: those of the nodes, and the caller's after all of them."""
    parameter = torch.ones(3, device="cuda", requires_grad=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss = (parameter * 2).sum()
    torch.cuda.current_stream().wait_stream(side)
    (loss * 3).backward()
    assert parameter.grad.add_(1).tolist() == [7, 7, 7]


@program
def pinned_copies() -> None:
    pinned = torch.arange(1000.0).pin_memory()
    tensor = pinned.to("cuda", non_blocking=True)
    back = torch.empty(1000).pin_memory()
    back.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    assert torch.equal(pinned, back)


@program
def freed_memory_is_used_at_once() -> None:
    first = torch.ones(1000, device="cuda")
    address = first.data_ptr()
    del first
    assert torch.ones(999, device="cuda").data_ptr() != address
    second = torch.zeros(1000, device="cuda")
    assert second.data_ptr() == address
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.ones(1000, device="cuda").data_ptr() != address
        second.add_(1)
    second.record_stream(side)
    del second
    torch.ones(1000, device="cuda")  # other memory, or after the end of what `side` does


@program
def write_without_a_wait() -> None:
    tensor = torch.zeros(4, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        tensor.add_(1)


@program
def read_without_a_wait() -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        tensor = torch.zeros(4, device="cuda")
    tensor.tolist()


@program
def free_without_record_stream() -> None:
    tensor = torch.zeros(1000, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        tensor.add_(1)
    del tensor
    torch.ones(1000, device="cuda")


@program
def touch_by_the_host() -> None:
    import ctypes

    bytes(ctypes.c_char.from_address(torch.ones(4, device="cuda").data_ptr()))


@program
def another_gpu() -> None:
    """With two devices."""
    assert torch.cuda.device_count() == 2
    there = torch.arange(3.0).to("cuda:1")
    assert there.device.index == 1
    here = there.to("cuda:0")
    assert (here + 1).tolist() == [1, 2, 3]
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1
        assert torch.ones(1, device="cuda").device.index == 1
    assert torch.cuda.current_device() == 0
    # On both, as a backward pass starts a thread for each: one that first asks for the GIL as Python ends is torn down.
    for device in ("cuda:1", "cuda:0"):
        module = mlp().to(device)
        module(torch.ones(1, 4, device=device)).sum().backward()
        assert next(module.parameters()).grad.device == torch.device(device)


if __name__ == "__main__":
    for _name in sys.argv[1:]:
        sys.stderr.write(f"{_name}\n")
        PROGRAMS[_name]()
