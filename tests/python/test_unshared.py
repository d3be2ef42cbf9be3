"""Variables that a process of an elastic job has changed before its first world, and the states that share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ciranda._frameworks import unshared
from ciranda.errors import InvalidArgumentError


@dataclass(eq=False)
class Variable:
    name: str

    def assign(self, value: float) -> None:
        pass


@pytest.fixture(autouse=True)
def none_noted() -> Iterator[None]:
    yield
    unshared._found.clear()


def test_a_state_must_share_what_each_rank_has_changed() -> None:
    kernel, bias, *others = (Variable(name) for name in ("kernel", "bias", "a", "b", "c"))
    unshared.require_none()
    with pytest.warns(RuntimeWarning, match=r"before the function that elastic\.run wraps"):
        unshared.note([kernel, bias, object()])
    unshared.note([kernel, *others])  # warns once
    unshared.share([kernel, Variable("kernel")])
    with pytest.raises(InvalidArgumentError, match="each rank has changed 'bias', 'a', 'b' and 1 more by itself"):
        unshared.require_none()
    unshared.share([bias, *others])
    unshared.require_none()
