"""`horovod.spark`: Ciranda does not serve Spark."""

from horovod._not_served import refuse

refuse(__name__)
