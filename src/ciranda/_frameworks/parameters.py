"""The check that all ranks begin to train with the same parameters.

If they do not, as after a forgotten `broadcast_parameters()`, each rank trains a model of its own with the gradients of
all, and nothing fails. So before an optimizer's first step in a world, ranks exchange one checksum of its parameters,
beside the first gradients. Only if these differ do they exchange one for each parameter, to name those that differ.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from ciranda import _core
from ciranda._consistency import ContentsError, Digests, Named, Row, compare_digests, digests_of
from ciranda._numbering import Era, era_of
from ciranda._ops import Handle, Max
from ciranda.errors import MismatchError
from ciranda.numpy.ops import allreduce_async
from ciranda.process_sets import ProcessSet, id_of

#: What makes the variables of a model of Keras the same on all ranks, for messages.
KERAS_REMEDY = "broadcast_variables(model.variables, root_rank=0), or fit with BroadcastGlobalVariablesCallback(0),"
_SETTING = "CIRANDA_CHECK_PARAMETERS"

#: Whether differences are warned of: in the module `horovod`, whose scripts may be meant as they are.
only_warns: ContextVar[bool] = ContextVar("only_warns", default=False)


@contextmanager
def warning_only() -> Iterator[None]:
    """Let the checks of optimizers that are made within this warn of differences, in place of an error."""
    before = only_warns.set(True)
    try:
        yield
    finally:
        only_warns.reset(before)


class Contents(NamedTuple):
    """What is compared of a parameter, the same for all formats in memory.

    Attributes:
        kind: its dtype and shape.
        for_engine: what the engine can read.
    """

    kind: str
    for_engine: Any


#: Returns what is compared of a parameter, or None if it has no memory yet.
Describe = Callable[[Any], Contents | None]


class Parameter(NamedTuple):
    """One of the compared parameters.

    Attributes:
        key: identifies it on this rank.
        name: for messages.
        value: the framework's, or Contents.
    """

    key: Hashable
    name: str
    value: Any


class _Told(NamedTuple):
    """What this rank has told the others, while that is under way: the keys of parameters, and what it compares."""

    new: list[Hashable]
    made: list[Hashable]
    named: list[Named]
    digests: Digests
    handle: Handle[Any]


class ParameterCheck:
    """Compares parameters that should be the same on all ranks, each once in every world.

    Parameters that are made later are compared in the step in which they appear. Ranks whose parameters differ in
    number are told so. After ranks have joined, they meet once more: one that joined before its first step has yet to
    compare, and learns that the others have, whose parameters steps have changed.

    Not a part of pickles: a copy begins anew. Thread-safety: as the optimizer's.

    Attributes:
        name: of the calls.
        process_set: the ranks that compare.

    Args:
        name: begins that of the calls; the same on all ranks. None: they are numbered.
        who: begins the messages.
        process_set: the ranks that compare.
        describe: see Describe.
        remedy: the call that makes parameters the same on all ranks, for messages.
        has_names: whether parameters have the same names on all ranks.
        only_warn: whether differences are warned of, once, in place of an error.
    """

    def __init__(
        self,
        name: str | None,
        who: str,
        process_set: ProcessSet,
        describe: Describe,
        remedy: str,
        has_names: bool = False,
        only_warn: bool | None = None,
    ) -> None:
        self.name = None if name is None else f"{name}.parameters"
        self._who = who
        self.process_set = process_set
        self._describe = describe
        self._remedy = remedy
        self._has_names = has_names
        self._only_warns = only_warns.get() if only_warn is None else only_warn
        self._has_warned = False
        self._era: Era | None = None
        self._is_alone = False
        #: Whether the ranks compare in the next step, with or without new parameters.
        self._is_due = True
        #: Whether this rank has compared in an earlier era of the world, or before it began anew.
        self._has_begun = False
        #: The keys of the parameters that have been compared in this era.
        self._compared: set[Hashable] = set()
        #: The keys of those that have been given to compare_later().
        self._met: set[Hashable] | None = None
        self._told: _Told | None = None

    @property
    def is_due(self) -> bool:
        """Whether the ranks compare in the next step."""
        self._begin_era()
        return self._is_due and not self._is_alone

    def has_compared(self, keys: Iterable[Hashable]) -> bool:
        """Whether these parameters need not be compared any more, in this world."""
        return self._is_alone or not (self.is_due or set(keys) - self._compared)

    def expect_more(self) -> None:
        """Compare in the next step what has been added since. All ranks must call it."""
        self._is_due = True

    def begin_anew(self) -> None:
        """Meet the others in the next step again: a rank may go on with another optimizer after a disagreement.

        What this rank has compared is not compared with it, since steps have changed it.
        """
        self._told, self._is_due = None, True
        self._has_begun = self._has_begun or bool(self._compared)

    def compare(self, parameters: Iterable[Parameter], finish_calls: Callable[[], None] = lambda: None) -> None:
        """Compare the parameters that have not been compared. A collective, if there are any, or in a new era.

        Args:
            parameters: those that are to be the same on all ranks.
            finish_calls: see finish().

        Raises:
            MismatchError: on all ranks; the message names parameters that differ, the ranks, and the way out.
        """
        self.start(parameters)
        self.finish(finish_calls)

    def compare_later(self, parameters: Iterable[Parameter]) -> None:
        """The same, but each parameter from its second time on: scripts may broadcast after the first step."""
        self._begin_era()
        given = list(parameters)
        if self.has_compared(each.key for each in given):
            return
        met = self._met
        if met is not None:
            self.compare([each for each in given if each.key in met])
        self._met = {each.key for each in given} | (met or set())

    def start(self, parameters: Iterable[Parameter]) -> None:
        """Begin to compare; finish() must follow, before parameters change."""
        self._begin_era()
        new = [each for each in parameters if each.key not in self._compared]
        if self._is_alone or not (self._is_due or new):
            return
        is_left_out = self._has_begun or not _core.effective_settings()[_SETTING]
        made = [] if is_left_out else [(each, its) for each in new if (its := self._contents(each.value)) is not None]
        named = [Named(each.name, *its) for each, its in made]
        digests = digests_of(named, self._has_names)
        checksum = int.from_bytes(hashlib.blake2b(digests.tobytes(), digest_size=7).digest(), "little")
        row = np.array([is_left_out, len(made) < len(new), checksum, -checksum], np.int64)
        handle = allreduce_async(row, op=Max, name=self.name, process_set=self.process_set)
        keys = [each.key for each in new], [each.key for each, _ in made]
        self._told = _Told(*keys, named, digests, handle)

    def _contents(self, value: Any) -> Contents | None:
        return value if isinstance(value, Contents) else self._describe(value)

    def _begin_era(self) -> None:
        era = era_of(self.process_set)
        if era != self._era:
            is_same_world = self._era is not None and self._era.epoch == era.epoch
            self._has_begun = is_same_world and (self._has_begun or bool(self._compared))
            self._era, self._is_due, self._told, self._met = era, True, None, None
            # A rank outside of the set trains by itself.
            self._is_alone = self.process_set.included() is False or self.process_set.size() == 1
            self._compared.clear()

    def poll(self) -> bool:
        """Whether finish() would not wait for other ranks, unless parameters differ."""
        return self._told is None or self._told.handle.poll()

    def forget(self) -> None:
        """Finish nothing of what has begun: the next start() begins again."""
        self._told = None

    def finish(self, finish_calls: Callable[[], None] = lambda: None) -> None:
        """Raise the error of compare(), if what start() began has one.

        Args:
            finish_calls: called before, if parameters differ in nothing but their values: calls that are under way,
                which all ranks have made alike, go on.
        """
        told, self._told = self._told, None
        if told is None:
            return
        self._is_due = True  # after a failure
        is_left_out, is_waiting, most, least = told.handle.wait().tolist()
        if not is_left_out and most != -least:
            self._tell_difference(told, finish_calls)
        self._is_due = bool(is_waiting) and not is_left_out
        self._compared.update(told.new if is_left_out else told.made)

    def _tell_difference(self, told: _Told, finish_calls: Callable[[], None]) -> None:
        try:
            compare_digests(told.named, told.digests, self.process_set, self.name, _have_other_kinds)
        except MismatchError as error:
            text = (
                f"{self._who}: the ranks do not begin with the same parameters; call {self._remedy} before the first "
                f"step. {error} Parameters that each rank is to have of its own are marked as such; {_SETTING}=0 "
                "leaves out this check"
            )
            if not self._only_warns:
                if isinstance(error, ContentsError):
                    finish_calls()
                raise MismatchError(text) from None
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(f"{text}. The ranks go on, each with its own", RuntimeWarning, stacklevel=2)


def _have_other_kinds(rows: Sequence[Row]) -> bool:
    """Whether all ranks have the parameter, in other shapes or dtypes: its gradients fail, and name both."""
    return all(rows) and len({name for name, *_ in rows}) == 1 and len({kind for _, kind, _ in rows}) > 1


#: By name, number of the process set, and whether they warn.
_lasting: dict[tuple[str, int, bool], ParameterCheck] = {}


def lasting_check(name: str, process_set: ProcessSet, make: Callable[[], ParameterCheck]) -> ParameterCheck:
    """Return the check of what is made anew for each step, as a tape: `make` makes that of the first."""
    key = name, id_of(process_set), only_warns.get()
    found = _lasting.get(key)
    if found is None or found.process_set is not process_set:
        found = _lasting[key] = make()
    return found
