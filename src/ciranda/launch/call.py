"""The rank's side of ``ciranda.launch.run``: load the function, call it, send back its result."""

from __future__ import annotations

import os

import cloudpickle

from ciranda.launch.sent_function import unpacked

PAYLOAD = "CIRANDA_CALL_FILE"


def main() -> None:
    """Run in a rank. An exception of the function is the rank's own: a traceback and exit code 1."""
    with open(os.environ[PAYLOAD], "rb") as file:
        function, args, kwargs = unpacked(file)
    result = function(*args, **kwargs)
    with open(int(os.environ["CIRANDA_RESULT_FD"]), "wb") as pipe:
        cloudpickle.dump(result, pipe)


if __name__ == "__main__":
    main()
