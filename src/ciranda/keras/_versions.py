"""The supported versions of Keras."""

from __future__ import annotations

import re

import keras

#: The oldest Keras 3. Earlier ones clip the gradients of each backward pass, without the variables.
OLDEST = (3, 5)


def check(version: str = keras.__version__) -> None:
    """Raise ImportError for a version of Keras 3 that is too old."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if (3, 0) <= numbers < OLDEST:
        raise ImportError(
            f"ciranda.keras needs Keras 2, or 3.5 and newer, and keras {version} is installed, in which an optimizer "
            "is given the gradients of a step in another way: pip install --upgrade keras",
            name="keras",
        )
