"""`horovod.mxnet`: Ciranda does not serve MXNet."""

from horovod._not_served import refuse

refuse(__name__)
