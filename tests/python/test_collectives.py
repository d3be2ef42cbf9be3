"""The collectives that all frameworks share: what their bound functions look like, and who imports whom."""

from __future__ import annotations

import ast
import inspect
import pickle
import subprocess
import sys
import typing
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import ciranda
from ciranda._collectives import Adapter, Collectives
from ciranda.numpy import arrays
from ciranda.numpy import ops as numpy_ops

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("jax", "keras", "mxnet", "paddle", "tensorflow", "torch")
PUBLIC = [name for name in dir(Collectives) if not name.startswith("_")]


def _frameworks() -> list[ModuleType]:
    found = [numpy_ops]
    try:
        from ciranda.torch import ops as torch_ops
    except ImportError:
        return found
    return [*found, torch_ops]


@pytest.mark.parametrize("framework", _frameworks(), ids=lambda module: module.__name__)
def test_a_framework_exports_every_collective_with_its_own_types(framework: ModuleType) -> None:
    adapter = framework.collectives._adapter
    assert all(f"{name}_async" in PUBLIC for name in ("allreduce", "alltoall", "reduce", "gather", "scatter", "send"))
    for name in [each for each in dir(framework.collectives) if not each.startswith("_")]:
        function = getattr(framework, name)
        assert function == getattr(framework.collectives, name)
        assert (function.__name__, function.__module__) == (name, adapter.module)
        assert inspect.getdoc(function)
        kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        written = " ".join(str(annotation) for annotation in function.__annotations__.values())
        assert "Given" not in written
        assert len(typing.get_type_hints(function)) == len(inspect.signature(function).parameters) + 1
        assert pickle.loads(pickle.dumps(function)) == function


@pytest.mark.parametrize("package", ["_api", *(f"{name}/__init__" for name in FRAMEWORKS)])
def test_type_checkers_see_what_a_package_exports(package: str) -> None:
    """They read the imports: `from m import *` and `import name as name`; Python's `__all__` is hidden from them."""
    body = ast.parse((ROOT / "src" / "ciranda" / f"{package}.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(body) if isinstance(node, ast.ImportFrom)]
    reexported = {alias.asname for node in imports for alias in node.names if alias.asname == alias.name}
    starred = {str(node.module).rpartition(".")[2] for node in imports if node.names[0].name == "*"}
    assigned = [node for node in ast.walk(body) if isinstance(node, ast.Assign)]
    names = next(node.value for node in assigned if ast.unparse(node.targets[0]) == "__all__")
    assert isinstance(names, ast.List)
    assert {each.value for each in names.elts if isinstance(each, ast.Constant)} == reexported
    joined = {node.value.id.lstrip("_") for node in ast.walk(names) if isinstance(node, ast.Attribute)}
    assert joined == starred


def test_annotations_are_the_frameworks() -> None:
    annotations = ciranda.grouped_alltoall.__annotations__
    assert annotations["tensors"] == "Sequence[npt.ArrayLike]"
    assert annotations["splits"] == "Sequence[npt.ArrayLike | None] | None"
    assert annotations["return"] == "list[tuple[Array, Array]]"


@pytest.mark.parametrize("module", ["ciranda._frameworks.states", "ciranda._frameworks.options", "ciranda._api"])
def test_no_framework_is_imported(module: str) -> None:
    heavy = "{'torch', 'tensorflow', 'jax', 'mxnet', 'paddle'}"
    code = f"import sys, {module}; found = {heavy} & set(sys.modules); sys.exit(str(found) if found else 0)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)


@pytest.mark.parametrize(
    "module", ["_collectives.rules", "_collectives.base", "_frameworks.compression", "numpy.arrays"]
)
def test_every_module_can_be_the_first_that_is_imported(module: str) -> None:
    subprocess.run([sys.executable, "-c", f"import ciranda.{module}"], check=True, timeout=200)


@pytest.mark.usefixtures("alone")
def test_a_deprecated_argument_is_told_of_where_it_is_given() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for function in (ciranda.allreduce, ciranda.allreduce_, ciranda.allreduce_async):
            function(np.ones(1), average=False)
        for function in (ciranda.grouped_allreduce, ciranda.grouped_allreduce_):
            function([np.ones(1)], average=False)
    assert [warning.filename for warning in caught] == [__file__] * 5


def test_a_framework_that_lacks_a_function_is_refused() -> None:
    functions = {**vars(arrays.ADAPTER)}
    del functions["like"]
    with pytest.raises(TypeError, match="like"):
        Adapter(**functions)
