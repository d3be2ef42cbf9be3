"""The exceptions, and what scripts written for Horovod catch."""

from __future__ import annotations

import builtins
import inspect

import pytest

from ciranda import _core, errors


def test_every_class_is_what_horovod_scripts_catch() -> None:
    for name in errors.__all__:
        cls = getattr(errors, name)
        assert issubclass(cls, (ValueError, RuntimeError)) or cls is errors.CirandaError
        assert inspect.getdoc(cls)
    for cls in (errors.MismatchError, errors.RanksLostError, errors.TimeoutError, errors.AbortedError):
        assert issubclass(cls, errors.HorovodInternalError)
        assert issubclass(cls, errors.CirandaError)
    assert issubclass(errors.TimeoutError, builtins.TimeoutError)
    assert issubclass(errors.NotSupportedError, NotImplementedError)


def test_every_error_can_be_raised_and_pickled() -> None:
    import pickle

    for name in errors.__all__:
        error = pickle.loads(pickle.dumps(getattr(errors, name)("rank 3 died")))
        assert type(error) is getattr(errors, name)
        assert str(error) == "rank 3 died"


def test_lost_ranks_are_told_as_numbers() -> None:
    text = "rank 1 (host a, pid 7) is gone; rank 10 (host b, pid 8) has ended. allreduce 'rank 3 (x)' was under way."
    assert errors.RanksLostError(text).ranks == (1, 10)
    assert errors.RanksLostError("something else").ranks == ()


def test_a_bad_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CIRANDA_STALL_WARNING_SECONDS", "soon")
    with pytest.raises(errors.InvalidArgumentError, match=r"CIRANDA_STALL_WARNING_SECONDS.*soon"):
        _core.connect(0)
