"""Which values of variables are not shown to others, since they may be secrets. Pure."""

from __future__ import annotations

import re

_SECRET_NAME = re.compile(r"SECRET|TOKEN|PASSW|KEY|CREDENTIAL", re.I)
_SECRET_VALUE = re.compile(r"[0-9A-Fa-f]{32}|\w+://[^/\s]*@")  # digits of a key; an address with a password


def shown(name: str, value: str) -> str:
    """Return the value of a variable as a report shows it: not if its name or its form is that of a secret."""
    return "(hidden)" if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value) else value
