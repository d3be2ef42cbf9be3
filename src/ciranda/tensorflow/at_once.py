"""reduce, gather, scatter, send and recv, also grouped and asynchronous, of eager tensors.

They are the functions of `ciranda.numpy`, on tensors, variables, or what `tf.convert_to_tensor` takes; inputs and
results are copied. In a graph they raise NotSupportedError, since a rank without a result would skip its part of the
call: call them outside of `tf.function`. They have no gradient.
"""

from __future__ import annotations

from ciranda._collectives.names import export
from ciranda.tensorflow._eager_tensors import of_tensors

export("tensorflow", globals(), of_tensors)
