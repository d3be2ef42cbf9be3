"""What of TensorFlow's inside this relies on: each test says what has changed, should it fail with a new version."""

from __future__ import annotations

import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest
import tensorflow as tf
from ranks import wait_until

import ciranda
import ciranda.tensorflow as hvd
from ciranda.tensorflow import _execution, _plugin

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _alone() -> None:
    ciranda.init()


def test_asynchronous_ops_are_put_in_no_order() -> None:
    """auto_control_deps.ASYNC_STATEFUL_OPS is asked when functions are traced."""

    @tf.function
    def step(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return hvd.allreduce(x, name="a"), hvd.allgather(x, name="b"), hvd.size_op()

    nodes = [node for node in step.get_concrete_function(tf.ones([2])).graph.get_operations() if "Ciranda" in node.type]
    assert len(nodes) == 3
    assert [node.control_inputs for node in nodes] == [[], [], []], "tf.function chains them: ranks would deadlock"


def test_done_is_a_function_that_can_be_copied() -> None:
    """TF_AsyncOpKernelDoneCallback is a std::function<void()>: what is done later finds its way back."""
    for _ in range(20):
        results = tf.function(lambda x: [hvd.allreduce(x) for _ in range(20)])(tf.ones([1000]))
        assert all(float(result[0]) == 1.0 for result in results)
    wait_until(lambda: _plugin.live_calls() == 0)


def test_xla_takes_custom_calls() -> None:
    """CustomCallTargetRegistry's mangled names, and XlaCustomCallStatus as an optional string."""
    assert _plugin.xla_problem() == ""
    assert "all symbols found; collectives work, also in compiled functions" in _plugin.describe()


def test_xla_is_known_while_tracing() -> None:
    """control_flow_util.GraphOrParentsInXlaContext, also in a function that a compiled one calls."""
    from ciranda.tensorflow import _xla

    seen = []

    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        seen.append(_xla.is_compiling())
        return x + 1

    tf.function(lambda x: inner(x) * 2, jit_compile=True)(tf.ones([]))
    tf.function(lambda x: seen.append(_xla.is_compiling()))(tf.ones([]))
    assert seen == [True, False]


def test_nodes_are_called_what_was_asked() -> None:
    """Graph.unique_name() says beforehand what _apply_op_helper() calls a node."""

    @tf.function
    def step(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.name_scope("scope"):
            results = [hvd.allreduce(x, name="n"), hvd.allreduce(x, name="n")]
        return [*results, hvd.allreduce(x, name="n"), hvd.allreduce(x, name="ä b/")]

    nodes = [node for node in step.get_concrete_function(tf.ones([2])).graph.get_operations() if "Ciranda" in node.type]
    names = [(node.name, node.get_attr("node_name").decode(), node.get_attr("tensor_name").decode()) for node in nodes]
    assert names == [
        ("scope/n", "scope/n", "scope/n"),
        ("scope/n_1", "scope/n_1", "scope/n_1"),
        ("n", "n", "n"),
        (".__b", ".__b", "ä b/"),
    ]


def test_iterations_at_once_are_known_while_tracing() -> None:
    """while_v2's functions have an argument or variable `parallel_iterations`, also those that make gradients."""

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return i + 1, hvd.allreduce(y, name="inside")

        y = tf.while_loop(lambda i, _: i < 3, body, (0, x), parallel_iterations=77)[1]
        return tf.gradients(hvd.allreduce(y, name="outside"), x)

    assert step(tf.ones([2]))[0].numpy().tolist() == [1.0, 1.0]
    graphs = step.get_concrete_function(tf.ones([2])).graph.as_graph_def().library.function
    nodes = [node for graph in graphs for node in graph.node_def if node.op == "CirandaAllreduce"]
    assert [node.attr["iterations"].i for node in nodes] == [77, 77]


def test_the_scope_of_names_can_be_ignored() -> None:
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.name_scope("scope"):
            return hvd.allreduce(x, name="n", ignore_name_scope=True)

    (node,) = [
        each for each in step.get_concrete_function(tf.ones([2])).graph.get_operations() if "Ciranda" in each.type
    ]
    assert (node.get_attr("node_name"), node.get_attr("tensor_name")) == (b"", b"n")


def test_graphs_of_tensorflow_1() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant([1.0, 2.0])
        results = [hvd.allreduce(x * 2.0, name="y"), tf.gradients(tf.reduce_sum(hvd.allgather(x)), x)[0], hvd.size_op()]
        variables = [
            tf.compat.v1.get_variable(f"v{kind}", initializer=[3.0], use_resource=kind == 1) for kind in (0, 1)
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        found = session.run([*results, *hvd.broadcast_(variables, 0)])
        assert [each.tolist() for each in found] == [[2.0, 4.0], [1.0, 1.0], 1, [3.0], [3.0]]
        with pytest.raises(tf.errors.InvalidArgumentError) as failed:
            session.run(hvd.allgather(tf.constant(1.0), name="scalar"))
    error = hvd.as_ciranda_error(failed.value)
    assert isinstance(error, ValueError)
    assert str(error).startswith("ciranda.tensorflow: allgather 'scalar'")
    assert "node" not in str(error)


def test_tapes_know_of_ops() -> None:
    """execute.record_gradient records what execute.execute did."""
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = hvd.allreduce(x * 3.0, op=hvd.Sum)
    assert tape.gradient(y, x).numpy().tolist() == [3.0, 3.0]


def test_errors_keep_their_class_through_autograph() -> None:
    """error_utils.KNOWN_STRING_CONSTRUCTOR_ERRORS."""
    with pytest.raises(ValueError, match="must not be empty"):
        tf.function(lambda x: hvd.allreduce(x, name=""))(tf.ones([2]))


def test_results_of_unknown_size_are_not_copied() -> None:
    """TF_NewTensor takes the operation's memory, which goes when the tensor goes."""
    import resource

    def kilobytes() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() // 1024

    x = tf.ones([1 << 20])
    hvd.allgather(x, name="big")
    before = kilobytes()
    for _ in range(30):
        hvd.allgather(x, name="big")
    assert kilobytes() - before < 20_000


def test_who_lacks_tensorflow_is_told() -> None:
    code = "import sys; sys.modules['tensorflow'] = None; import importlib.util\n"
    code += "importlib.util.find_spec = lambda name: None\nimport ciranda.tensorflow"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "ciranda.tensorflow needs tensorflow" in ended.stderr


def test_missing_symbols_are_told_by_name() -> None:
    """A version without what is needed: here, a process where nothing of TensorFlow is loaded."""
    code = "from ciranda._frameworks.plugin import opened; opened('tensorflow', '9.9')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "ImportError: ciranda.tensorflow: framework TensorFlow version 9.9 is not loaded" in ended.stderr


def test_names_of_nodes() -> None:
    assert _execution.as_node_name("a/b.c_1") == "a/b.c_1"
    assert _execution.as_node_name("_a b:0/") == "._a_b_0"
