"""`horovod.runner.util`: threads and streams."""
