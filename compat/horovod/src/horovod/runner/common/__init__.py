"""`horovod.runner.common`: what scripts import of the launcher's insides."""
