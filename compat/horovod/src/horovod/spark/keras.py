"""Of Horovod's estimators, which are not served."""

from horovod.spark._estimators import refuse

refuse(__name__)
