"""`horovod.runner.common.util`: hosts and slots, settings, running a command."""
