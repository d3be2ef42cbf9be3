"""Who has started this process, as init() sees it: which variables say so, and what init() does here."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from ciranda.doctor.engine import run_python
from ciranda.doctor.finding import Finding
from ciranda.engines import slurm
from ciranda.engines.identity import ITS_OWN
from ciranda.launch.errors import HostsError

_ASK = """
import json, os
from ciranda import _core
from ciranda.engines.identity import doubt, identity, is_told
from ciranda.errors import InvalidArgumentError
environ = dict(os.environ)
answer = {"joins": "", "refused": "", "doubt": ""}
try:
    found = None if is_told(environ) else identity(environ)
    if found is not None:
        answer["joins"] = f"{found.words}: ranks meet by {found.engine.way.value}"
    else:
        answer["refused"] = _core.why_not_alone(environ)
        answer["doubt"] = _core.doubt_of_being_alone(environ) or doubt(environ)
except InvalidArgumentError as error:
    answer["refused"] = str(error)
print(json.dumps(answer))
"""
_SECONDS = 30


def allocation() -> Iterator[Finding]:
    """The allocation of Slurm in which this process is, whose nodes `ciranda run` uses."""
    try:
        found = slurm.allocation(os.environ)
    except HostsError as error:
        yield Finding("allocation", "warn", str(error), "ciranda run refuses it: give hosts by -H")
        return
    if found is None:
        return
    text = f"{found.words}: 'ciranda run' starts a rank for each task"
    if found.tasks is None:
        text = f"{found.words}: 'ciranda run --nproc-per-node N' starts N ranks on each"
    yield Finding("allocation", "ok", text)


def launcher() -> Iterator[Finding]:
    """The launcher whose variables are set, and whether init() joins, is alone, or refuses to be."""
    done = run_python(["-c", _ASK], keep=list(os.environ), seconds=_SECONDS)
    if done.returncode != 0:
        return  # the engine's own check says why
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer["refused"]:
        yield Finding("launcher", "warn", answer["refused"], "init() refuses it")
    elif answer["doubt"]:
        yield Finding("launcher", "warn", answer["doubt"], "init() warns of it")
    elif answer["joins"]:
        yield Finding("launcher", "ok", answer["joins"])
    else:
        given = ", ".join(f"{name}={os.environ[name]}" for name in ITS_OWN if os.environ.get(name))
        yield Finding("launcher", "ok", given or "none: init() is a world of one here")
