"""The check that all ranks begin with the same parameters, in programs: an operator in front, as runs come to it.

The startup program has broadcast rank 0's; but it may have been another, or one rank may have loaded its own since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from ciranda._frameworks.parameters import Contents, Parameter, ParameterCheck
from ciranda.paddle import _plugin
from ciranda.paddle.rewriting import Pair, Rewritable, is_own
from ciranda.process_sets import global_process_set

_REMEDY = "broadcast_parameters(program.state_dict(), root_rank=0)"


def compare_in(program: Rewritable, pairs: Sequence[Pair], prefix: str, distributed: Collection[str]) -> None:
    """Make a program compare its trained parameters over the ranks, in its first run in each world.

    Args:
        program: to be rewritten.
        pairs: of each parameter; its gradient is not used.
        prefix: the beginning of the calls' names, and of messages.
        distributed: names of local parameters.
    """
    shared = list({pair.name: pair for pair in pairs if not is_own(pair, distributed)}.values())
    if not shared:
        return
    outlines = [(pair.name, f"{pair.parameter.dtype} {list(pair.parameter.shape)}") for pair in shared]
    check = ParameterCheck(prefix, prefix, global_process_set, _contents, _REMEDY, has_names=True)

    def see(arrays: Iterator[Any]) -> bool:
        if not check.has_compared(name for name, _ in outlines):
            shown = zip(outlines, arrays, strict=True)
            check.compare([Parameter(name, name, (kind, array)) for (name, kind), array in shown])
        return check.has_compared(name for name, _ in outlines)

    # A program may be loaded by a process that has written others, which must not be taken for it.
    digest = hashlib.blake2b(repr(outlines).encode(), digest_size=8).hexdigest()
    program.look(shared, _plugin.add_look(f"{prefix}.parameters.{digest}", see))


def _contents(shown: tuple[str, Any]) -> Contents:
    kind, array = shown
    return Contents(kind, np.ascontiguousarray(array).reshape(-1).view(np.uint8))
