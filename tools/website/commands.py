"""The reference of the command line, from its parsers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer

_MARKUP = re.compile(r"\[/?(?:bold|italic|dim)\]")


def page() -> str:
    """Return the page of `ciranda` and its subcommands."""
    from ciranda.bench.cli import app as bench
    from ciranda.launch.cli import app

    top = typer.main.get_command(app)
    parts = ["# The command `ciranda`\n", _described(top), _options(top)]
    for name, command in top.commands.items():  # type: ignore[attr-defined]
        shown = typer.main.get_command(bench) if name == "bench" else command
        parts += [f"## `ciranda {name}`\n", _described(shown), _usage(f"ciranda {name}", shown), _options(shown)]
    return "\n".join(parts)


def _described(command: Any) -> str:
    text = inspect.cleandoc(command.help or "")
    return f"{_plain(text)}\n"


def _usage(name: str, command: Any) -> str:
    arguments = [each.metavar or each.name.upper() for each in command.params if each.param_type_name == "argument"]
    return f"```text\n{' '.join([name, '[OPTIONS]', *arguments])}\n```\n"


def _options(command: Any) -> str:
    groups: dict[str, list[Any]] = {}
    for each in command.params:
        if each.param_type_name == "option" and not each.hidden:
            groups.setdefault(getattr(each, "rich_help_panel", None) or "Options", []).append(each)
    return "\n".join(_table(title, options) for title, options in groups.items())


def _table(title: str, options: list[Any]) -> str:
    rows = "\n".join(_row(each) for each in options)
    return f"| {title} | value | default | meaning |\n|---|---|---|---|\n{rows}\n"


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    return (
        f"| {names} | {_value(option)} | {_default(option)} | {_plain(option.help or '').replace('|', chr(92) + '|')} |"
    )


def _value(option: Any) -> str:
    if option.is_flag:
        return ""
    kind = option.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{each.value}`" for each in kind)
    return f"`{option.metavar or getattr(kind, '__name__', str(kind)).upper()}`"


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    if option.default is None or option.default is False or callable(option.default):
        return ""
    if option.is_flag:
        return f"`{option.opts[0]}`"
    values = option.default if isinstance(option.default, (list, tuple)) else [option.default]
    return ", ".join(f"`{getattr(each, 'value', each)}`" for each in values)


def _plain(text: str) -> str:
    return "\n".join(_lines(_MARKUP.sub("`", text).replace("<", "\\<"))).strip()


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield line.strip()
