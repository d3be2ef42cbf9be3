"""`horovod.tensorflow`: Ciranda does not serve TensorFlow."""

from horovod._not_served import refuse

refuse(__name__)
