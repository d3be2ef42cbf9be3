"""The torch interface in a world of one: arguments, types, memory, autograd."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ciranda.torch as hvd  # noqa: E402
from ciranda._frameworks import restarts  # noqa: E402
from ciranda.errors import InvalidArgumentError  # noqa: E402
from ciranda.torch import tensors  # noqa: E402

pytestmark = pytest.mark.usefixtures("alone")

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@pytest.fixture(params=["exchange table", "address"])
def handover(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors by the exchange table, and as from a torch that has none."""
    if request.param == "address":
        monkeypatch.setattr(tensors, "HAS_EXCHANGE_TABLE", False)
    elif not tensors.HAS_EXCHANGE_TABLE:
        pytest.skip("this torch has no exchange table")


@pytest.mark.usefixtures("handover")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)], ids=str)
def test_every_type_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(24)[: torch.Size(shape).numel()].reshape(shape).to(dtype)
    results = [hvd.allreduce(tensor, op=hvd.Max), hvd.broadcast(tensor, 0)]
    if shape:
        results.append(hvd.allgather(tensor))
    for result in results:
        assert result.dtype == dtype
        assert torch.equal(result, tensor)
        assert result.numel() == 0 or result.data_ptr() != tensor.data_ptr()
    assert hvd.allreduce_(tensor, op=hvd.Min) is tensor


@pytest.mark.usefixtures("handover")
def test_views_and_parameters() -> None:
    matrix = torch.arange(12.0).reshape(3, 4)
    assert torch.equal(hvd.allreduce(matrix.t(), op=hvd.Sum), matrix.t())
    hvd.allreduce_(matrix[:, 1], op=hvd.Sum, postscale_factor=3.0)
    assert matrix[:, 1].tolist() == [3.0, 15.0, 27.0]
    assert matrix[:, 0].tolist() == [0.0, 4.0, 8.0]
    tail = torch.arange(10.0)[3:]
    assert torch.equal(hvd.allreduce(tail), tail)
    parameter = torch.nn.Parameter(torch.ones(3))
    assert hvd.broadcast_(parameter, 0) is parameter
    channels_last = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert torch.equal(hvd.allreduce(channels_last), channels_last)


class _Wrapper(torch.Tensor):
    """A tensor whose values are another's."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> _Wrapper:
        made: _Wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any) -> Any:
        if function is torch.ops.aten.detach.default:
            return cls(torch.ones(2))
        raise NotImplementedError(function)


def _fake() -> torch.Tensor:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(2)


def _jagged() -> torch.Tensor:
    if not hasattr(torch, "jagged"):
        pytest.skip("this torch has no jagged tensors")
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore:The PyTorch API of nested tensors")
@pytest.mark.usefixtures("handover")
@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        (lambda: torch.ones(2, dtype=torch.float32).to(torch.float8_e5m2), "float8_e5m2"),
        (
            lambda: torch.ones(2).to_sparse(),
            r"torch\.sparse_coo cannot be communicated; .* sparse_allreduce_async",
        ),
        (lambda: torch.ones(2).to_mkldnn(), r"torch\._mkldnn cannot be communicated; .* to_dense\(\)"),
        (_fake, r"a FakeTensor cannot be communicated: .* no values"),
        (lambda: _Wrapper(torch.ones(2)), r"a _Wrapper cannot be communicated: it wraps other tensors"),
        (
            lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
            r"a quantized tensor of dtype torch.qint8 .* dequantize",
        ),
        (
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]),
            r"a nested tensor cannot be communicated: .* unbind\(\)",
        ),
        (_jagged, r"a nested tensor cannot be communicated: .* values\(\) and offsets\(\)"),
        (lambda: torch.ones(2, device="meta"), "meta, which Ciranda has no access to|communicated: .* on meta"),
        (lambda: [1.0, 2.0], "expected a torch tensor, got list"),
    ],
)
def test_tensors_that_cannot_be_communicated(make: Callable[[], torch.Tensor], pattern: str) -> None:
    with pytest.raises(InvalidArgumentError, match=pattern):
        hvd.allreduce(make())
    with pytest.raises(InvalidArgumentError, match=pattern):
        hvd.grouped_allreduce_([torch.ones(2), make()])
    if "float8" not in pattern:  # which is moved
        with pytest.raises(InvalidArgumentError, match=pattern):
            hvd.broadcast_(make(), 0)


@pytest.mark.usefixtures("handover")
def test_groups_of_all_kinds_of_views() -> None:
    matrix = torch.arange(12.0).reshape(3, 4)
    negative = torch._neg_view(torch.arange(3.0))
    with torch.inference_mode():
        fixed = torch.ones(2)
    views = [torch.ones(2), matrix.t(), negative, fixed]
    expected = [3.0 * view.clone() for view in views]
    for chosen in (views[:1], views[1:2], views[2:3], views[3:], views):
        results = hvd.grouped_allreduce(chosen, op=hvd.Sum, postscale_factor=3.0)
        assert all(torch.equal(result, 3.0 * view) for result, view in zip(results, chosen, strict=True))
    assert all(map(torch.equal, hvd.grouped_allreduce_(views, op=hvd.Sum, postscale_factor=3.0), expected))
    assert all(map(torch.equal, views, expected))


def test_gathered_memory_outlives_everything() -> None:
    gathered = hvd.allgather(torch.arange(1000))
    hvd.shutdown()
    assert torch.equal(gathered, torch.arange(1000))
    hvd.init()


def test_in_place_invalidates_what_autograd_saved() -> None:
    weight = torch.ones(3, requires_grad=True)
    tensor = torch.ones(3)
    product = weight * tensor
    hvd.allreduce_(tensor, op=hvd.Sum, postscale_factor=2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    product = weight * tensor
    hvd.grouped_allreduce_([torch.ones(3), tensor], op=hvd.Sum, postscale_factor=2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_compression() -> None:
    tensor = torch.tensor([1.0, 1e-3, 70000.0], dtype=torch.float64)
    result = hvd.allreduce(tensor, compression=hvd.Compression.fp16)
    assert result.dtype == torch.float64
    assert torch.equal(result, tensor.half().double())
    integers = torch.arange(3)
    assert torch.equal(hvd.allreduce(integers, compression=hvd.Compression.fp16), integers)

    class Halving(hvd.Compressor):
        @staticmethod
        def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, float]:
            return tensor / 2, 2.0

        @staticmethod
        def decompress(tensor: torch.Tensor, ctx: float) -> torch.Tensor:
            return tensor * ctx

    assert torch.equal(hvd.allreduce(tensor, compression=Halving), tensor)
    assert torch.equal(hvd.grouped_allreduce([tensor], compression=Halving)[0], tensor)


def test_gradients_of_one_rank_are_those_of_the_identity() -> None:
    for function in (
        lambda x: hvd.allreduce(x, op=hvd.Average),
        lambda x: hvd.allreduce(x, op=hvd.Sum),
        lambda x: hvd.allreduce(x, op=hvd.Min),
        hvd.allgather,
        lambda x: hvd.broadcast(x, 0),
        lambda x: hvd.grouped_allreduce([x, x.detach()])[0],
        lambda x: hvd.grouped_allgather([x])[0],
    ):
        x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(function, (x,))
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: hvd.allreduce(x**2, prescale_factor=2.0), (x,))
    with pytest.raises(ValueError, match="has a gradient with op=Average, Sum, Min and Max only"):
        hvd.allreduce(x, op=hvd.Product).sum().backward()


def test_no_gradient_is_asked_for_in_no_grad() -> None:
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert not hvd.allreduce(x).requires_grad
    assert hvd.allreduce(x).requires_grad
    assert not hvd.allreduce(x.detach()).requires_grad


@pytest.mark.parametrize("root", [0])
def test_broadcast_parameters_takes_what_models_give(root: int) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hvd.broadcast_parameters(model.state_dict(), root)
    hvd.broadcast_parameters(model.named_parameters(), root_rank=root)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="params"):
        hvd.broadcast_parameters(list(model.parameters()), root)
    with pytest.raises(ValueError, match="params"):
        hvd.broadcast_parameters(3, root)
    with pytest.raises(ValueError, match="root_rank"):
        hvd.broadcast_parameters(model.state_dict(), 9)


# Name: the signature of horovod.torch, as users know it.
SIGNATURES = {
    "allreduce_async": "tensor average=None name=None op=None prescale_factor=1.0 postscale_factor=1.0 process_set",
    "allreduce": "tensor average=None name=None compression op=None prescale_factor=1.0 postscale_factor=1.0 "
    "process_set",
    "allreduce_async_": "tensor average=None name=None op=None prescale_factor=1.0 postscale_factor=1.0 process_set",
    "allreduce_": "tensor average=None name=None op=None prescale_factor=1.0 postscale_factor=1.0 process_set",
    "grouped_allreduce": "tensors average=None name=None compression op=None prescale_factor=1.0 "
    "postscale_factor=1.0 process_set",
    "grouped_allreduce_async_": "tensors average=None name=None op=None prescale_factor=1.0 postscale_factor=1.0 "
    "process_set",
    "allgather": "tensor name=None process_set",
    "allgather_async": "tensor name=None process_set",
    "grouped_allgather": "tensors name=None process_set",
    "broadcast": "tensor root_rank name=None process_set",
    "broadcast_async_": "tensor root_rank name=None process_set",
    "grouped_allreduce_async": "tensors average=None name=None op=None prescale_factor=1.0 postscale_factor=1.0 "
    "process_set",
    "grouped_allreduce_": "tensors average=None name=None op=None prescale_factor=1.0 postscale_factor=1.0 process_set",
    "sparse_allreduce_async": "tensor name op process_set",
    "grouped_allgather_async": "tensors name=None process_set",
    "broadcast_async": "tensor root_rank name=None process_set",
    "broadcast_": "tensor root_rank name=None process_set",
    "alltoall": "tensor splits=None name=None process_set",
    "alltoall_async": "tensor splits=None name=None process_set",
    "reducescatter": "tensor name=None compression op=0 process_set prescale_factor=1.0 postscale_factor=1.0",
    "reducescatter_async": "tensor name=None op=0 process_set prescale_factor=1.0 postscale_factor=1.0",
    "grouped_reducescatter": "tensors name=None compression op=0 process_set prescale_factor=1.0 postscale_factor=1.0",
    "grouped_reducescatter_async": "tensors name=None op=0 process_set prescale_factor=1.0 postscale_factor=1.0",
    "start_timeline": "file_path mark_cycles=False",
    "stop_timeline": "",
    "poll": "handle",
    "synchronize": "handle",
    "barrier": "process_set",
    "broadcast_parameters": "params root_rank",
    "broadcast_optimizer_state": "optimizer root_rank model=None",
    "broadcast_object": "obj root_rank=0 name=None process_set",
    "DistributedOptimizer": "optimizer named_parameters=None compression backward_passes_per_step=1 op=0 "
    "gradient_predivide_factor=1.0 num_groups=0 groups=None sparse_as_dense=False process_set",
    "init": "comm=None process_sets=None",
}


#: What Horovod has not; behind its own, and never needed.
OURS = (
    "weight",
    "divisor",
    "output",
    "outputs",
    "gradient_as_bucket_view",
    "overlap_forward",
    "priority",
    "num_lanes",
)


@pytest.mark.parametrize("name", list(SIGNATURES))
def test_signatures_are_horovods(name: str) -> None:
    special = {"compression": hvd.Compression.none, "process_set": hvd.global_process_set}
    parts = []
    for parameter in inspect.signature(getattr(hvd, name)).parameters.values():
        if parameter.name in OURS:
            continue
        default = parameter.default
        if parameter.name in special:
            assert default is special[parameter.name]
            parts.append(parameter.name)
        else:
            parts.append(parameter.name if default is parameter.empty else f"{parameter.name}={default}")
    assert " ".join(parts) == SIGNATURES[name]


@pytest.mark.parametrize("name", list(SIGNATURES))
def test_what_horovod_has_not_comes_last(name: str) -> None:
    parameters = list(inspect.signature(getattr(hvd, name)).parameters.values())
    n_ours = sum(parameter.name in OURS for parameter in parameters)
    for parameter in parameters[len(parameters) - n_ours :]:
        assert parameter.name in OURS
        assert parameter.default in (None, False) or isinstance(parameter.default, str)


def test_the_number_of_lanes_outlives_an_elastic_reset() -> None:
    hvd.shutdown()
    hvd.init(num_lanes=3)
    restarts.reset()
    lane = hvd.global_process_set.lane(2)
    assert torch.equal(hvd.allreduce(torch.ones(2), process_set=lane), torch.ones(2))
    with pytest.raises(ValueError, match="which has 3"):
        hvd.init(num_lanes=2)
