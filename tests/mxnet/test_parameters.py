"""broadcast_parameters, for what is initialized and for what will be: each test fails without the broadcast."""

from __future__ import annotations

import copy
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess


def _net(**sizes: int) -> Any:
    """Return a net of nets; without sizes, its initialization is deferred."""
    from mxnet_ranks import mx

    net = mx.gluon.nn.HybridSequential()
    inner = mx.gluon.nn.HybridSequential()
    inner.add(mx.gluon.nn.Dense(4, in_units=sizes.get("inner", 0)), mx.gluon.nn.BatchNorm())
    net.add(mx.gluon.nn.Dense(5, in_units=sizes.get("outer", 0)), inner, mx.gluon.nn.Dense(2))
    return net


def _seeded() -> int:
    from mxnet_ranks import hvd, mx, np

    mx.random.seed(hvd.rank() + 1)
    np.random.seed(hvd.rank() + 1)
    return hvd.rank()


def _values(net: Any) -> dict[str, Any]:
    return {str(index): param.data().asnumpy() for index, param in enumerate(net.collect_params().values())}


def _agree(net: Any, root: int = 0) -> None:
    """All ranks have what `root` has, and that is not what it would be without seeds."""
    from mxnet_ranks import agree

    agree(_values(net))


class _Counted:
    """Counts the broadcasts, by the name that they have."""

    def __init__(self) -> None:
        from ciranda.mxnet import parameters

        self.module, self.own, self.names = parameters, parameters.push, []

    def __enter__(self) -> list[str]:
        def counting(*arguments: Any, **options: Any) -> None:
            self.names.append(arguments[3])
            self.own(*arguments, **options)

        self.module.push = counting
        return self.names

    def __exit__(self, *_: object) -> None:
        self.module.push = self.own


def _deferred(hybridized: str, root: int) -> None:
    from mxnet_ranks import hvd, mx

    rank = _seeded()
    net = _net()
    net.initialize(mx.init.Xavier())
    if hybridized == "before":
        net.hybridize()
    deferred = [param for param in net.collect_params().values() if param._deferred_init]
    assert len(deferred) > 5
    hvd.broadcast_parameters(net.collect_params(), root_rank=root)
    hvd.broadcast_parameters(net.collect_params(), root_rank=root)
    with _Counted() as names:
        if hybridized == "after":
            net.hybridize()
        x = mx.nd.ones((3, 6)) * (rank + 1)
        first = net(x).asnumpy()
        net(x)
        assert len(names) == len(deferred), names
        assert len(set(names)) == len(names)
    _agree(net)
    shown = hvd.allgather_object(first)
    assert (shown[root] == net(mx.nd.ones((3, 6)) * (root + 1)).asnumpy()).all() or len(shown) == 1


def _initialized_at_once() -> None:
    from mxnet_ranks import hvd, mx

    _seeded()
    net = _net(outer=6, inner=5)
    net.initialize(mx.init.Xavier())
    with _Counted() as names:
        hvd.broadcast_parameters(net.collect_params(), root_rank=1)
        assert len(names) == 5, names  # of the biases, all shapes are known
    net(mx.nd.ones((2, 6)))
    _agree(net)


def _forms_of_params() -> None:
    from mxnet_ranks import agree, hvd, mx, raised

    rank = _seeded()
    net = _net()
    net.initialize(mx.init.Xavier())
    hvd.broadcast_parameters(list(net.collect_params().values()), root_rank=2)
    net(mx.nd.ones((2, 3)))
    _agree(net)
    net = _net()
    net.initialize(mx.init.Xavier())
    hvd.broadcast_parameters(dict(net.collect_params().items()), prefix="mine")
    net(mx.nd.ones((2, 3)))
    _agree(net)
    arrays = {"a": mx.nd.ones((2,)) * rank, "b": mx.nd.ones((3,)) * rank}
    hvd.broadcast_parameters(arrays, root_rank=1)
    agree({name: array.asnumpy() for name, array in arrays.items()})
    assert arrays["a"].asnumpy()[0] == 1
    for wrong in (7, "net", net, {"a": 7}, [None]):
        error = raised(lambda wrong=wrong: hvd.broadcast_parameters(wrong))
        assert isinstance(error, ValueError), wrong
        inside = (
            next(iter(wrong.values())) if isinstance(wrong, dict) else wrong[0] if isinstance(wrong, list) else wrong
        )
        assert type(inside).__name__ in str(error), error
    assert isinstance(raised(lambda: hvd.broadcast_parameters({}, root_rank=3)), ValueError)


def _shared_by_two_blocks() -> None:
    from mxnet_ranks import hvd, mx

    _seeded()
    one = mx.gluon.nn.Dense(3)
    other = mx.gluon.nn.Dense(3, params=one.params)
    net = mx.gluon.nn.HybridSequential()
    net.add(one, other)
    net.initialize(mx.init.Xavier())
    with _Counted() as names:
        both = {f"{name}.{index}": param for index in range(2) for name, param in net.collect_params().items()}
        hvd.broadcast_parameters(both)
        net(mx.nd.ones((2, 3)))
        assert len(names) == 2, names
    _agree(net)


def _symbol_block() -> None:
    from mxnet_ranks import hvd, mx

    _seeded()
    data = mx.sym.var("data")
    output = mx.sym.FullyConnected(mx.sym.FullyConnected(data, num_hidden=4, name="one"), num_hidden=2, name="two")
    net = mx.gluon.SymbolBlock(output, data)
    net.initialize(mx.init.Uniform())
    hvd.broadcast_parameters(net.collect_params())
    net(mx.nd.ones((2, 5)))
    _agree(net)


def _several_devices() -> None:
    from mxnet_ranks import agree, hvd, mx

    _seeded()
    devices = [mx.cpu(0), mx.cpu(1)]
    for sizes in ({}, {"outer": 6, "inner": 5}):
        net = _net(**sizes)
        net.initialize(mx.init.Xavier(), ctx=devices)
        hvd.broadcast_parameters(net.collect_params(), root_rank=1)
        for device in devices:
            net(mx.nd.ones((2, 6), ctx=device))
        for device in devices:
            agree({str(i): param.data(device).asnumpy() for i, param in enumerate(net.collect_params().values())})
        for param in net.collect_params().values():
            assert (param.data(devices[0]).asnumpy() == param.data(devices[1]).asnumpy()).all()


def _initialized_anew() -> None:
    from mxnet_ranks import hvd, mx

    _seeded()
    net = _net()
    net.initialize(mx.init.Xavier())
    hvd.broadcast_parameters(net.collect_params())
    net(mx.nd.ones((2, 6)))
    before = _values(net)
    with _Counted() as names:
        net.initialize(mx.init.Xavier(), force_reinit=True)
        assert len(names) == len(before)
    _agree(net)
    assert any((before[name] != value).any() for name, value in _values(net).items())


def _loading(path: str) -> None:
    from mxnet_ranks import hvd, mx

    rank = _seeded()
    net = _net()
    net.initialize(mx.init.Xavier())
    hvd.broadcast_parameters(net.collect_params())
    net(mx.nd.ones((2, 6)))
    wanted = _values(net)
    mine = f"{path}.{rank}"
    net.save_parameters(mine)
    assert sorted(mx.nd.load(mine)) == sorted(net._collect_params_with_prefix())
    for who in ("all", "root"):
        loaded = _net()
        loaded.initialize(mx.init.Xavier())
        if who == "all" or rank == 0:
            loaded.load_parameters(mine)
        hvd.broadcast_parameters(loaded.collect_params())
        loaded(mx.nd.ones((2, 6)))
        assert all((value == wanted[name]).all() for name, value in _values(loaded).items()), who
    # After the call, while its initialization is deferred: rank 0 has other values.
    loaded = _net()
    loaded.initialize(mx.init.Xavier())
    hvd.broadcast_parameters(loaded.collect_params())
    if rank == 0:
        loaded.load_parameters(mine)
    loaded(mx.nd.ones((2, 6)))
    assert all((value == wanted[name]).all() for name, value in _values(loaded).items())


def _changed_afterwards(path: str) -> None:
    from mxnet_ranks import hvd, mx, np

    rank = _seeded()
    net = _net()
    net.initialize(mx.init.Xavier())
    hvd.broadcast_parameters(net.collect_params())
    copied, plain = copy.deepcopy(net), pickle.loads(pickle.dumps(net.collect_params()))
    assert len(plain.keys()) == len(net.collect_params().keys())
    pickled = pickle.loads(pickle.dumps(net))
    net.cast("float64")
    net(mx.nd.ones((2, 6), dtype="float64"))
    assert next(iter(net.collect_params().values())).data().dtype == np.float64
    _agree(net)
    for other in (copied, pickled):
        other(mx.nd.ones((2, 6)))
        _agree(other)
    if rank == 1:  # no business of the others
        net.collect_params().reset_ctx([mx.cpu(0), mx.cpu(1)])
    net.cast("float32")
    pickle.loads(pickle.dumps(net.collect_params()))
    copy.deepcopy(net.collect_params())
    net.save_parameters(f"{path}.{rank}")
    assert sorted(mx.nd.load(f"{path}.{rank}")) == sorted(net._collect_params_with_prefix())
    _agree(net)


def _process_sets() -> None:
    from mxnet_ranks import hvd, mx

    rank = _seeded()
    pair = hvd.add_process_set([0, 2])
    net = _net()
    net.initialize(mx.init.Xavier())
    if rank != 1:
        hvd.broadcast_parameters(net.collect_params(), root_rank=2, process_set=pair)
    net(mx.nd.ones((2, 6)))
    everyones = hvd.allgather_object(_values(net))
    weights = [theirs["0"] for theirs in everyones]
    assert (weights[0] == weights[2]).all()
    assert (weights[0] != weights[1]).any()
    hvd.remove_process_set(pair)


def _met_in_other_orders() -> None:
    from mxnet_ranks import agree, hvd, mx

    rank = _seeded()
    nets = [_net() for _ in range(3)]
    for net in nets:
        net.initialize(mx.init.Xavier())
        hvd.broadcast_parameters(net.collect_params())
    x = mx.nd.ones((2, 6))
    time.sleep(0.3 * (rank == 1))
    for index in range(3):
        nets[(index + rank) % 3](x)
    for net in nets:
        agree(_values(net))


def _given_twice_where_one_rank_is_ahead() -> None:
    """Rank 0 has broadcast twice, with other values each time, when the others come to their parameters."""
    from mxnet_ranks import hvd, mx, np

    for prefix in (None, "same"):
        rank = _seeded()
        net = mx.gluon.nn.Dense(2)
        net.initialize(mx.init.Xavier())
        for value in (3, 4):
            if rank == 0:
                net(mx.nd.ones((2, 6)))
                net.weight.set_data(mx.nd.full((2, 6), value))
            hvd.broadcast_parameters(net.collect_params(), prefix=prefix)
        net(mx.nd.ones((2, 6)))
        _agree(net)
        np.testing.assert_array_equal(net.weight.data().asnumpy(), np.full((2, 6), 4))
        net.initialize(mx.init.Xavier(), force_reinit=True)
        _agree(net)


def _other_parameters_on_one_rank() -> None:
    from mxnet_ranks import hvd, mx, raised

    names = ["a", "b", "c"] if hvd.rank() != 1 else ["a", "c"]
    params = {name: mx.gluon.Parameter(name, shape=(2,)) for name in names}
    for param in params.values():
        param.initialize()
    error = raised(lambda: hvd.broadcast_parameters(params))
    assert isinstance(error, hvd.errors.MismatchError), repr(error)
    assert "rank 0 has a parameter 'b', but rank 1 has not" in str(error)


def _outside_of_a_world() -> None:
    from mxnet_ranks import agree, hvd, mx, raised

    _seeded()
    net = mx.gluon.nn.Dense(2)
    net.initialize(mx.init.Xavier())
    hvd.shutdown()
    assert "init" in str(raised(lambda: hvd.broadcast_parameters(net.collect_params())))
    hvd.init()
    hvd.broadcast_parameters(net.collect_params())
    net(mx.nd.ones((2, 6)))
    agree(_values(net))


def _deferred_ones(three_of: str) -> None:
    for hybridized in ("not", "before", "after"):
        for root in (0, 2):
            _deferred(hybridized, root)


def test_deferred(three: Ranks) -> None:
    three.run(_deferred_ones, "")


def test_initialized(three: Ranks) -> None:
    three.run(_initialized_at_once)
    three.run(_forms_of_params)


def test_shared_parameters_are_broadcast_once(three: Ranks) -> None:
    three.run(_shared_by_two_blocks)


def test_symbol_blocks(three: Ranks) -> None:
    three.run(_symbol_block)


def test_several_devices_of_a_process(three: Ranks) -> None:
    three.run(_several_devices)


def test_initialized_anew(three: Ranks) -> None:
    three.run(_initialized_anew)


def test_loading(three: Ranks, tmp_path: Path) -> None:
    three.run(_loading, str(tmp_path / "net"))


def test_what_is_done_afterwards(three: Ranks, tmp_path: Path) -> None:
    three.run(_changed_afterwards, str(tmp_path / "net"))


def test_process_sets(three: Ranks) -> None:
    three.run(_process_sets)


def test_orders(three: Ranks) -> None:
    three.run(_met_in_other_orders)
    three.run(_given_twice_where_one_rank_is_ahead)


def test_ranks_that_do_not_fit(three: Ranks) -> None:
    three.run(_other_parameters_on_one_rank)
    three.run(_outside_of_a_world)
