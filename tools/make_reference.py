"""Writes docs/reference/collectives.md from the engine's tables of collectives, reduce ops and element types.

python tools/make_reference.py            write it
python tools/make_reference.py --check    exit code 1 if it is not up to date
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import ciranda
from ciranda import _core
from ciranda._collectives.names import names_of
from ciranda._frameworks import common

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "collectives.md"

HEAD = """# Collectives

<!-- Written by tools/make_reference.py from the tables in cpp/call/op_table.hpp, cpp/base/reduce_op.hpp and
     cpp/base/dtype.hpp, and from the docstrings: change it there, then run that. -->

Every collective, op and element type of the engine, and the exact result. The names are those of `ciranda` (NumPy
arrays) and `ciranda.torch`; C programs use the same numbers, in `ciranda.h`.

"""

NOTES = """## What comes out, exactly

- **The same bits.** All ranks get the same bits. An element of a result depends on that element of the n inputs in rank
  order, the type, the op, the factors and the divisor, and on nothing else: not on fusion, size, transport, threads or
  the processor's instruction set. Adasum is the exception by definition: it depends on whole tensors.
- **Order.** Inputs are combined in a binary tree over rank order: the left part of every range of ranks is the largest
  power of two that leaves something to the right. Seven are ((x0 x1) (x2 x3)) ((x4 x5) x6).
- **float16 and bfloat16** are computed in float32 and rounded once, at the end, to nearest even.
- **Average** is the sum divided by the number of ranks that take part in the call. Floats are divided as they are
  written, rounded once. Sums of integers are as wide as they need to be, and the quotient is rounded toward zero.
- **Integers wrap** in sums and products. With factors, every input is multiplied, rounded toward zero and saturated,
  and so is the result: [the steps](../guide/averaging.md#what-is-rounded).
- **Factors.** result = postscale_factor * op(prescale_factor * x): multiplied, combined, divided by n, multiplied, each
  step rounded once. In float32 for 16-bit types, otherwise in the type itself; no extra pass over memory. They must be
  finite and the same on all ranks.
- **float32 between hosts** is rounded only on request: [below](#float32-that-travels-as-bfloat16).
- **NaN** in any input gives NaN, in min and max too, and always the same one: quiet, positive, without payload. A copy
  (one rank, no factors) leaves a NaN unchanged. -0 is smaller than +0.
- **bool**: any byte but 0 is true; results are 0 or 1. min is and, max is or.
- **Complex numbers** are summed and scaled part by part. A product is (ac - bd) + (ad + bc)i, each product and each sum
  rounded once.
- **Subnormals** are kept, and results are rounded to nearest, whatever mode the calling thread has set.

## How they travel between hosts

If all ranks share memory, the algorithms are one shot and two shot, without messages between ranks. Otherwise a [cost
model](../guide/bench.md#why-this-algorithm) chooses one of these, and `CIRANDA_ALGORITHM` forces one. The bits are
equal.

| algorithm | collective | communication | how often a rank sends the whole tensor |
| --- | --- | --- | --- |
| `one-shot` | allreduce | everything to every rank | n - 1 times, in one round |
| `two-shot` | allreduce | slices to the ranks that reduce them, results to every rank | twice, in two rounds |
| `by-hosts` | allreduce | between hosts, which combine their own inputs first | a host twice, in four rounds |
| `doubling` | allreduce | everything to one rank a round | log2(n) times, in as many rounds |
| `star` | broadcast | the root to every rank | the root n - 1 times |
| `tree` | broadcast | along a binomial tree | the root log2(n) times |
| `chain` | broadcast | each rank to the next, in pieces of 64 KiB | each once |

- **Recursive doubling** goes up the tree above, level by level: ranks 2i and 2i + 1 exchange their inputs, then pairs
  exchange partial results with the neighbouring pair, and so on. In a smaller block, as x6 above, each rank sends its
  partial result to several ranks of the other block. Partial results must be stored without rounding twice, so it
  excludes 16-bit floats, averages of integers, and integers with factors; also calls with weights, and calls while a
  rank has joined. For two ranks it would be one shot.
- **tree** and **chain** enter each host once: one of its ranks forwards to the others, in the same way.
- Recursive doubling and binomial trees: Thakur, Rabenseifner, Gropp: Optimization of Collective Communication
  Operations in MPICH, 2005. Chains: Watts, van de Geijn: A Pipelined Broadcast for Multidimensional Meshes, 1995.

## float32 that travels as bfloat16

`CIRANDA_WIRE_DTYPE=bf16`, on all ranks, halves the bytes that an allreduce or a reduce of float32 sends between hosts.
It is off by default; `init()` refuses ranks that disagree. Numbers are rounded to bfloat16 (to nearest even) in two
places, once each:

- the contribution: each rank's input; or each host's sum in float32, with its factors, in an allreduce for which
  [hosts combine their own inputs first](../guide/determinism.md#what-is-promised) and have the same number of ranks
  (not while a rank has joined, and not with weights);
- the result.

Everything else is computed in float32; where hosts combine their own inputs first, it is also sent as float32 within
a host. Recursive doubling rounds the same numbers, but exchanges sums in float32, so it saves nothing. All ranks get
the same bits, whatever the size, the algorithm and the fusion. If all ranks of a process set share memory, nothing is
rounded; other collectives and types never are. Numbers from 3.39e38 on become infinite.

`Compression.bf16` of `DistributedOptimizer` saves less and costs more: it copies every gradient and rounds within a
host too, and hosts exchange rank by rank, because partial sums of 16 bits would be rounded twice.
"""


def reduce_op_constant(name: str) -> str:
    """`bitwise_and` is `BitwiseAnd` in Python."""
    constant = "".join(word.capitalize() for word in name.split("_"))
    if getattr(ciranda, constant) != _core.REDUCE_OPS[name]:
        raise SystemExit(f"ciranda.{constant} is not the engine's {name}")
    return constant


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + "\n"


def mark(condition: bool) -> str:
    """For a cell that says yes or no."""
    return "yes" if condition else ""


def torch_names() -> frozenset[str]:
    """What ciranda.torch exports of the collectives, read from its source: torch itself need not be there."""
    spec = find_spec("ciranda.torch")
    assert spec is not None
    assert spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    imported = {str(alias.asname) for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}
    return frozenset([*common.__all__, *names_of("torch")]) | imported


def variants(collective: str, has: Callable[[str], bool]) -> str:
    """The forms of a collective: `_` is in place, `async` returns a handle."""
    forms = ("".join(parts) for parts in product(("", "grouped_"), (collective,), ("", "_async"), ("", "_")))
    return ", ".join(f"`{form}`" for form in forms if has(form))


def collectives() -> str:
    """The table of collectives."""
    of_torch = torch_names()
    rows = []
    forms = []
    each = [(row, name) for row in _core.collective_table() for name in row["name"].split("/")]
    for row, name in each:
        root = "the other rank" if row["name"] == "send/recv" else "a root"
        needs = [text for flag, text in ((row["has_root"], root), (row["is_reduction"], "a reduce op")) if flag]
        summary = (inspect.getdoc(getattr(ciranda, name)) or "").split("\n", 1)[0]
        rows.append((f"`{name}`", summary, ", ".join(needs), mark(row["first_dim_may_differ"])))
        forms.append(
            (
                f"`{name}`",
                variants(name, lambda form: hasattr(ciranda, form)),
                variants(name, of_torch.__contains__),
            )
        )
    text = table(("collective", "what it does", "needs", "ranks may differ in dimension 0"), rows)
    return (
        f"## Collectives\n\n{text}A form that ends in `_` works in place; one with `async` returns a handle for "
        "`synchronize()` and `poll()`; a\n`grouped` one takes a list of tensors: all complete or all fail. "
        "`recv` always works in place, and a\n`reducescatter` writes to its `output`, if that is given. "
        "`ciranda.torch` has `sparse_allreduce_async` too.\n\n"
        + table(("collective", "`ciranda` (NumPy)", "`ciranda.torch`"), forms)
    )


def reduce_ops() -> str:
    """The tables of reduce ops, and which element types they take."""
    ops = _core.reduce_op_table()
    meanings = [
        (f"`{reduce_op_constant(op['name'])}`", str(op["number"]), op["meaning"], mark(bool(op["scales"])))
        for op in ops
    ]
    matrix = [
        (f"`{dtype}`", *("✓✓" if dtype in op["scales"] else "✓" if dtype in op["takes"] else "" for op in ops))
        for dtype in _core.DATA_TYPES
    ]
    return (
        "## Reduce ops\n\n"
        + table(("op", "number", "result", "takes factors"), meanings)
        + "✓: the op accepts the type; ✓✓: it accepts `prescale_factor` and `postscale_factor` too.\n"
        "Other combinations are refused at once, with the list of accepted ones.\n\n"
        + table(("", *(reduce_op_constant(op["name"]) for op in ops)), matrix)
    )


def page() -> str:
    """The whole page."""
    return HEAD + collectives() + reduce_ops() + NOTES


def main() -> int:
    """Write or check the page; the exit code."""
    if "--check" not in sys.argv[1:]:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    sys.stderr.write(f"{PAGE} is not up to date: run python tools/make_reference.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
