"""`--config-file`: settings from YAML, under the names that Horovod gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ciranda.launch import LaunchError
from horovod.runner._tunables import TUNABLES, Value

_CONTROLLERS = ("gloo", "mpi")
_BY_PLACE = {(tunable.section, tunable.key): tunable for tunable in TUNABLES}


@dataclass
class ConfigFile:
    """What a file says.

    Attributes:
        chosen: dest of a tunable -> its value.
        verbose, stall_check, controller: None where the file does not say.
        unknown: places that mean nothing, as `section.key`.
    """

    chosen: dict[str, Value] = field(default_factory=dict)
    verbose: bool | None = None
    stall_check: bool | None = None
    controller: str | None = None
    unknown: list[str] = field(default_factory=list)


def read(path: str) -> ConfigFile:
    """Read the file. Raises LaunchError (exit code 2) if it is not there, not YAML, or a value is of a wrong kind."""
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LaunchError(f"cannot read --config-file {path}: {error}", exit_code=2) from None
    if content is not None and not isinstance(content, dict):
        raise LaunchError(f"--config-file {path}: must consist of sections, as in 'params:'", exit_code=2)
    try:
        return take(content or {})
    except ValueError as error:
        raise LaunchError(f"--config-file {path}: {error}", exit_code=2) from None


def take(content: Mapping[str, object]) -> ConfigFile:
    """What the sections say. Raises ValueError if a value is of a wrong kind, or the controller not known."""
    found = ConfigFile()
    for name, value in content.items():
        _take(found, str(name), value)
    return found


def choose_controller(args: Any, found: ConfigFile) -> None:
    """Set the attribute of `args` for the controller that the file names, unless one is chosen there."""
    if found.controller is not None and not (args.use_gloo or args.use_mpi or args.use_jsrun):
        setattr(args, f"use_{found.controller}", True)


def _take(found: ConfigFile, name: str, value: object) -> None:
    if name == "verbose":
        found.verbose = bool(value)
    elif name == "controller":
        found.controller = str(value).lower()
        if found.controller not in _CONTROLLERS:
            raise ValueError(f"controller: {value} is neither {' nor '.join(_CONTROLLERS)}")
    elif isinstance(value, dict):
        for key, entry in value.items():
            if entry is not None:
                _take_entry(found, name, str(key), entry)
    elif value is not None:
        found.unknown.append(name)


def _take_entry(found: ConfigFile, section: str, key: str, value: object) -> None:
    tunable = _BY_PLACE.get((section, key))
    if tunable is not None:
        try:
            found.chosen[tunable.dest] = tunable.read(value)
        except ValueError as error:
            raise ValueError(f"{section}.{key}: {error}") from None
    elif (section, key) == ("stall_check", "enabled"):
        found.stall_check = bool(value)
    elif (section, key) == ("logging", "with_timestamp"):
        found.chosen["log_without_timestamp"] = not value
    else:
        found.unknown.append(f"{section}.{key}")
