"""`horovod.runner.common.util.config_parser`: arguments of `horovodrun` from a file's content, and variables from them.

The constants `HOROVOD_...` name the variables, as `HOROVOD_FUSION_THRESHOLD`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from typing import Any

from horovod.runner import _config_file
from horovod.runner._tunables import LOG_LEVELS, TUNABLES, chosen_in, environment_of, refuse

__all__ = ["LOG_LEVELS", "set_args_from_config", "set_env_from_args", "validate_config_args"]

HOROVOD_STALL_CHECK_DISABLE = "HOROVOD_STALL_CHECK_DISABLE"
NCCL_IB_DISABLE = "NCCL_IB_DISABLE"
globals().update({f"HOROVOD_{tunable.variable}": f"HOROVOD_{tunable.variable}" for tunable in TUNABLES})


def set_args_from_config(args: Any, config: Mapping[str, Any], override_args: Collection[str]) -> None:
    """Set attributes of `args` by the content of a configuration file, but for those named in `override_args`.

    Raises:
        ValueError: a value is of a wrong kind, or the controller is neither gloo nor mpi.
    """
    found = _config_file.take(config)
    _config_file.choose_controller(args, found)
    chosen: dict[str, Any] = dict(found.chosen)
    if "log_without_timestamp" in chosen:
        chosen["log_with_timestamp"] = not chosen["log_without_timestamp"]
    if found.stall_check is not None:
        chosen["no_stall_check"] = not found.stall_check
    for name, value in chosen.items():
        if name not in override_args:
            setattr(args, name, value)


def validate_config_args(args: Any) -> None:
    """Raise ValueError if one of the settings among `args` is out of range."""
    _environment(args)


def set_env_from_args(env: MutableMapping[str, str], args: Any) -> MutableMapping[str, str]:
    """Set the variables in `env` that the settings among `args` ask for, under both names; return it."""
    env.update(_environment(args))
    if getattr(args, "no_stall_check", None) is not None:
        env[HOROVOD_STALL_CHECK_DISABLE] = "1" if args.no_stall_check else "0"
    if getattr(args, "tcp_flag", None):
        env[NCCL_IB_DISABLE] = "1"
    return env


def _environment(args: Any) -> dict[str, str]:
    return environment_of(chosen_in(args), refuse)[0]
