"""Engines that place processes on machines (srun, torchrun, Paddle's launcher), and how their ranks meet.

`identity` is the table: which variables describe this process, and by what the ranks meet. The other modules are the
ways of meeting.
"""
