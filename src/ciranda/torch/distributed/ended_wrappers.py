"""What becomes of a DistributedDataParallel whose process group has ended, and that something still refers to."""

from __future__ import annotations

import gc
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from ciranda.errors import NotInitializedError


def detach_wrappers() -> None:
    """Free the wrappers of models that nothing refers to; take the hooks of the others out of the parameters.

    A wrapper is in cycles of references. While its hooks are in the parameters, those of the model's next wrapper are
    the second, and torch refuses the backward pass. Without them a pass would go on without averaging anything, so a
    detached wrapper refuses its forward pass.
    """
    gc.collect()
    for wrapper in [each for each in gc.get_objects() if issubclass(type(each), DistributedDataParallel)]:
        wrapper.reducer._remove_autograd_hooks()
        wrapper.register_forward_pre_hook(_refuse)


def _refuse(wrapper: Any, arguments: object) -> None:
    raise NotInitializedError(
        f"this {type(wrapper).__name__} has ended with the world in which it was made, as has its process group: wrap "
        "the model again, in the function that elastic.run wraps"
    )
