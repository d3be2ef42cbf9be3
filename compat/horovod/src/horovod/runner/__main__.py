"""`python -m horovod.runner` is `horovodrun`."""

from horovod.runner.launch import run_commandline

run_commandline()
