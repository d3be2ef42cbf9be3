"""Horovod's module, served by Ciranda: `import horovod.torch as hvd`.

Every name below this package is Ciranda's own, found when it is first used; `horovod._names` has the table. Functions
of their own, so that scripts see what they see with Horovod, have what averages (`horovod.torch._averages`), what fails
while ranks have joined (`._needing_all`), what leaves gradients behind (`._functions`), and how errors begin
(`._sentences`).
"""

from __future__ import annotations

from horovod._neighbour import refuse_to_mix

refuse_to_mix()

from horovod._names import HOROVOD_VERSION, attach  # noqa: E402

#: The version of the interface, and in its local part the version of what serves it.
__version__ = HOROVOD_VERSION

__getattr__, __dir__ = attach(__name__)
