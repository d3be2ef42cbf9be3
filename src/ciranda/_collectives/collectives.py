"""All collectives whose signatures are the same in every framework."""

from __future__ import annotations

from ciranda._collectives.adapter import Given, Splits, Tensor
from ciranda._collectives.messages import Messages
from ciranda._collectives.rooted import Rooted
from ciranda._collectives.scans import Scans


class Collectives(Rooted[Given, Tensor, Splits], Scans[Given, Tensor, Splits], Messages[Given, Tensor, Splits]):
    """The collectives on a framework's tensors: a framework exports the bound methods.

    Missing are the blocking allreduce and all forms of reducescatter: frameworks differ in the order of their
    arguments, and in whether they compress. Those in Horovod's order are in `CompressedCollectives`.
    """
