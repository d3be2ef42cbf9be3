"""`horovod.keras`: Ciranda does not serve Keras."""

from horovod._not_served import refuse

refuse(__name__)
