"""``--config``: the options of ``ciranda run`` in a TOML file, by their long names, and ``command``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ciranda.launch.errors import LaunchError

#: Options of which a file has none: they are about the file, or leave at once.
NOT_IN_FILES = frozenset({"config", "print_config", "dry_run", "help"})


def read_job_file(path: Path, options: Iterable[Any]) -> dict[str, Any]:
    """Return the values for the command's parameters, by the parameters' names.

    Raises:
        LaunchError: the file cannot be read, is not TOML, or has a name that no option has.
    """
    try:
        toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError:
        raise LaunchError("--config needs Python 3.11 or newer, or the package tomli", exit_code=2) from None
    try:
        given = toml.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LaunchError(f"--config {path}: {error}", exit_code=2) from None
    parameter_of = {long: option.name for option in options for long in long_names(option)}
    values = {}
    for key, value in given.items():
        name = parameter_of.get(key.replace("_", "-"))
        if name is None or name in NOT_IN_FILES:
            known = ", ".join(sorted(long for long, of in parameter_of.items() if of not in NOT_IN_FILES))
            raise LaunchError(f"--config {path}: there is no option {key!r}; known: {known}", exit_code=2)
        values[name] = _as_on_the_command_line(path, key, name, value)
    return values


def _as_on_the_command_line(path: Path, key: str, name: str, value: object) -> object:
    if name == "env" and isinstance(value, dict):
        return [f"{variable}={_text(each)}" for variable, each in value.items()]
    if name == "hosts" and isinstance(value, list):
        return ",".join(map(str, value))
    is_list = isinstance(value, list) and all(isinstance(each, (str, int, float)) for each in value)
    wants_list = name in ("command", "env", "exclude_env", "cooldown")
    if isinstance(value, (dict, list)) != wants_list or (wants_list and not is_list):
        wanted = "a list of texts" if wants_list else "one value"
        raise LaunchError(f"--config {path}: {key} must be {wanted}", exit_code=2)
    return [str(each) for each in value] if isinstance(value, list) else value


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def long_names(option: Any) -> list[str]:
    """The names of an option in files: its long ones without dashes in front; ``command``."""
    longs = [name.lstrip("-").replace("_", "-") for name in option.opts if name.startswith("--")]
    return longs or [option.name]


def to_toml(options: Iterable[Any], values: Mapping[str, Any]) -> str:
    """The values as a file that has the same effect."""
    lines, tables = [], []
    for option in options:
        value = values.get(option.name)
        if value is None or value in ([], ()) or option.name in NOT_IN_FILES:
            continue
        name = long_names(option)[-1] if option.name == "num_proc" else long_names(option)[0]
        if option.name == "env":
            pairs = (entry.partition("=") for entry in value)
            tables = ["", "[env]", *(f"{json.dumps(variable)} = {json.dumps(text)}" for variable, _, text in pairs)]
        else:
            lines.append(f"{name} = {_toml(value)}")
    return "\n".join([*lines, *tables])


def _toml(value: Any) -> str:
    value = getattr(value, "value", value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return json.dumps(str(value), ensure_ascii=False)
