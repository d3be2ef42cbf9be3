"""The names of `horovod.mxnet` are those of `ciranda.mxnet`."""

from __future__ import annotations

import importlib

import pytest

from horovod import _names


@pytest.mark.parametrize("module", [name for name in _names.NAMES if name.startswith("horovod.mxnet")])
def test_names_are_cirandas_own(module: str) -> None:
    found = importlib.import_module(module)
    listed = {name for _, names in _names.NAMES[module] for name in names.split()}
    assert set(_names.public_names(module)) == listed == set(found.__all__)
    for name in listed:
        source = _names.source_of(module, name)
        assert source is not None
        assert getattr(found, name) is getattr(importlib.import_module(source), name)
