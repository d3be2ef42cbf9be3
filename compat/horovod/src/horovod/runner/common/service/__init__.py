"""`horovod.runner.common.service`: services by which the processes of several jobs find each other."""
