"""Parameters get their gradients from any operator; each that reaches an optimizer has been combined exactly once."""

from __future__ import annotations

from pathlib import Path

import layer_ranks
import pytest
from ranks import Ranks
from test_operators import IS_OLD

from ciranda.errors import InvalidArgumentError
from ciranda.paddle.passages import Kind, Operator, check_combined

pytestmark = pytest.mark.multiprocess


@pytest.mark.parametrize("is_old", IS_OLD)
def test_layers(two: Ranks, is_old: bool) -> None:
    two.run(layer_ranks.layers, is_old)
    two.run(layer_ranks.clipped_layers, is_old)
    two.run(layer_ranks.gradients_that_are_not_combined, is_old)
    two.run(layer_ranks.shared_gradient, is_old)


@pytest.mark.parametrize("is_old", IS_OLD)
def test_saved_rnn(two: Ranks, is_old: bool, tmp_path: Path) -> None:
    two.run(layer_ranks.saved_rnn, is_old, str(tmp_path))


LOSS, RAW = Operator(Kind.SEED, ["loss"], ["d"]), Operator(Kind.OTHER, ["x", "d"], ["raw"])
COMBINE = Operator(Kind.COMBINE, ["raw"], ["combined"])


def _step(gradient: str) -> Operator:
    return Operator(Kind.STEP, ["w", gradient], ["w"], [("w", gradient)])


def test_what_has_been_combined_once_is_right() -> None:
    listed = Operator(Kind.EACH, ["combined", "scale"], ["unscaled", "found"])
    decayed = Operator(Kind.OTHER, ["unscaled", "w"], ["decayed"])
    check_combined([LOSS, RAW, COMBINE, listed, decayed, _step("decayed")], [])
    check_combined([LOSS, RAW, _step("raw")], ["w"])


@pytest.mark.parametrize(
    ("operators", "own", "fault"),
    [
        ([LOSS, RAW, _step("raw")], [], "without those of other ranks"),
        ([LOSS, RAW, COMBINE, Operator(Kind.OTHER, ["combined", "d"], ["sum"]), _step("sum")], [], "only a part of it"),
        ([LOSS, RAW, COMBINE, Operator(Kind.COMBINE, ["combined"], ["again"]), _step("again")], [], "more than once"),
        ([LOSS, RAW, COMBINE, _step("combined")], ["w"], "each rank's own"),
        ([COMBINE, _step("combined")], [], "not computed from a loss"),
    ],
)
def test_what_has_not_is_refused(operators: list[Operator], own: list[str], fault: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"gradient of w .*{fault}"):
        check_combined(operators, own)
