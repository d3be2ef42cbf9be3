"""`horovod.runner.elastic`: finding hosts. Its drivers and services do not exist: jobs keep their hosts."""
