"""Write plain data as YAML: what manifests need of it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

# A text that is the same text in every version of YAML without quotes: no number, truth value or date.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(?<!-)")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
# A character that JSON has in two halves, and YAML in one.
_PAIR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")


def to_yaml(documents: Sequence[Mapping[str, object]]) -> str:
    """Return the documents as text. REQUIRES: names of at most 80 characters."""
    return "---\n".join("\n".join(_lines(document)) + "\n" for document in documents)


def _lines(value: object) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, each in value.items():
            yield from _entry(f"{_scalar(name)}:", each)
    elif isinstance(value, list) and value:
        for each in value:
            first, *rest = _lines(each)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _entry(key: str, value: object) -> Iterator[str]:
    if isinstance(value, (Mapping, list)) and value:
        yield key
        yield from (f"  {line}" for line in _lines(value))
    else:
        yield f"{key} {_scalar(value)}"


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return _PAIR.sub(_whole, json.dumps(value))


def _whole(pair: re.Match[str]) -> str:
    character = json.loads('"' + pair[0] + '"')
    return f"\\U{ord(character):08X}"
