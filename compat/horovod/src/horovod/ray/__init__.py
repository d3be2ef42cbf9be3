"""`horovod.ray`: Ciranda does not serve Ray."""

from horovod._not_served import refuse

refuse(__name__)
