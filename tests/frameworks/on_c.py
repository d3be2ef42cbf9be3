"""A program in plain C, for the conformance suite."""

from __future__ import annotations

from programs import Program


class Adapter(Program):
    program = "c"
