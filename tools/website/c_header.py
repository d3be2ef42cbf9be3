"""The reference of the C interface, from its headers: each comment, and the declarations that it precedes."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SECTION = re.compile(r"^/\* -+ (?P<title>.*?) -+ \*/$")
_FUNCTION = re.compile(r"\b(ciranda_\w+)\(")
_NAME = re.compile(r"(?<![\w`])((?:ciranda_|CIRANDA_)\w+(?:\(\))?|\w+\(\))(?![\w`])")
_SPECIAL = re.compile(r"([*_<>\[\]])")


def page(title: str, header: str, path: str) -> str:
    """Return the page of a header."""
    top, _, rest = header.partition("*/")
    parts = [f"# {title}\n\n`#include <{path}>`\n\n{_prose(_text(top + '*/'), first=True)}\n"]
    for comment, code in _chunks(rest.splitlines()):
        section = _SECTION.match(comment)
        if section:
            parts.append(f"## {section['title'].capitalize()}\n")
            continue
        functions = _functions(code)
        body = f"{_prose(_text(comment))}\n" if comment else ""
        if functions:
            listed = "\n".join(f"   {each}" if index else each for index, each in enumerate(functions))
            parts.append(f"::::{{c:function}} {listed}\n\n{body}::::\n".replace("\n   ", "\n"))
        elif code:
            parts.append(f"{body}\n```c\n{code}\n```\n")
        elif comment:
            parts.append(body)
    return "\n".join(parts)


def _chunks(lines: list[str]) -> Iterator[tuple[str, str]]:
    """A comment at the beginning of a line, and the code up to the next, or to an empty line outside of braces."""
    comment: list[str] = []
    code: list[str] = []
    depth = 0
    lines = iter_without_guards(lines)
    index = 0
    while index < len(lines):
        line = lines[index]
        if depth == 0 and line.startswith("/*"):
            if comment or code:
                yield "\n".join(comment), "\n".join(code)
            comment, code = [line], []
            while "*/" not in lines[index]:
                index += 1
                comment.append(lines[index])
        elif line.strip() or depth:
            code.append(line)
            depth += line.count("{") - line.count("}")
        elif comment or code:
            yield "\n".join(comment), "\n".join(code)
            comment, code = [], []
        index += 1
    if comment or code:
        yield "\n".join(comment), "\n".join(code)


def iter_without_guards(lines: list[str]) -> list[str]:
    """Without what is for the preprocessor alone: guards, includes, the linkage of C++."""
    left_out = re.compile(
        r'^(#(if|ifdef|ifndef|else|endif|include)\b|extern "C"|}$|} *//|#define CIRANDA_(API|NOEXCEPT|\w+_H_)\b)'
    )
    return ["" if left_out.match(line) else line for line in lines]


def _functions(code: str) -> list[str]:
    """The declarations, if all of the code is functions."""
    joined = re.sub(r"\s+", " ", code).strip()
    found = re.findall(r"CIRANDA_API ([^;]*?) ?CIRANDA_NOEXCEPT;", joined)
    rest = re.sub(r"CIRANDA_API [^;]*;", "", joined)
    return found if found and not re.sub(r"/\*.*?\*/", "", rest).strip() else []


def _text(comment: str) -> str:
    lines = [re.sub(r"^\s*(/\*|\*(?!/))\s?", "", line) for line in comment.splitlines()]
    return re.sub(r"\s*\*/\s*$", "", "\n".join(lines)).strip()


def _prose(text: str, first: bool = False) -> str:
    """Names as code, everything else as it is written."""
    if first:
        text = re.sub(r"^\S+: ", "", text)
        text = text[:1].upper() + text[1:]
    pieces = re.split(r"(`[^`]*`)", text)
    for index in range(0, len(pieces), 2):
        named = re.split(_NAME, pieces[index])
        named[0::2] = [_SPECIAL.sub(r"\\\1", piece) for piece in named[0::2]]
        named[1::2] = [f"`{name}`" for name in named[1::2]]
        pieces[index] = "".join(named)
    return "".join(pieces)
