"""Margins that make a class harder to hit for its own samples: those of ArcFace, CosFace and SphereFace together.

With the angle a between a sample and its class, its logit is scale * (cos(m1 * a + m2) - m3); that of every other class
is scale * cos(a). m1 = 1, m2 = 0.5, m3 = 0 is ArcFace, (1, 0, 0.35) CosFace.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any

from ciranda.errors import InvalidArgumentError

#: How near to 1 the cosine may be whose angle is computed: there its slope has no end.
_NEAREST = 1e-7


@dataclass(frozen=True)
class Margins:
    """The factor of the angle, what is added to it, what is taken off its cosine; and the factor of all logits."""

    m1: float = 1.0
    m2: float = 0.0
    m3: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in astuple(self)) or self.scale <= 0 or self.m1 <= 0:
            raise InvalidArgumentError(f"margins must be finite, m1 and scale above 0; got {self}")

    @property
    def are_none(self) -> bool:
        """Whether there is no margin."""
        return (self.m1, self.m2, self.m3) == (1.0, 0.0, 0.0)

    def target(self, cosine: Any) -> tuple[Any, Any]:
        """Return the logits of samples' own classes, and their derivatives by the cosine.

        `cosine` is a tensor with the methods acos, cos, sin and clip, as PyTorch's and PaddlePaddle's have.
        """
        if (self.m1, self.m2) == (1.0, 0.0):
            return self.scale * (cosine - self.m3), self.scale * (cosine * 0 + 1)
        angle = cosine.clip(_NEAREST - 1, 1 - _NEAREST).acos()
        moved = angle * self.m1 + self.m2
        return self.scale * (moved.cos() - self.m3), self.scale * self.m1 * (moved.sin() / angle.sin())
