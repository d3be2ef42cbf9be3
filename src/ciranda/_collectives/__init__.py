"""The collectives, once for all frameworks.

A framework brings an `Adapter`: a table of functions that say what the engine can read of its tensors, and write to.
`Collectives` makes of it the public functions, which have the framework's own types in their signatures. What records
gradients, if it has such, is a `Gradients` in that table. Nothing here imports a framework.
"""

from ciranda._collectives.adapter import Adapter, Gradients
from ciranda._collectives.collectives import Collectives
from ciranda._collectives.compressed import CompressedCollectives
from ciranda._collectives.rules import Rule

__all__ = ["Adapter", "Collectives", "CompressedCollectives", "Gradients", "Rule"]
