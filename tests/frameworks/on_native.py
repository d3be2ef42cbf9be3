"""A program in C++ over ciranda/native, for the conformance suite."""

from __future__ import annotations

from programs import Program


class Adapter(Program):
    program = "native"
