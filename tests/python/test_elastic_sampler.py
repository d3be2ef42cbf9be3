"""ElasticSampler: which samples it gives to whom, for any number of ranks."""

from __future__ import annotations

import random
from collections import Counter

import pytest

pytest.importorskip("torch")

from ciranda import _basics
from ciranda.torch.elastic import ElasticSampler


class Ranks:
    """Samplers as the ranks of a world have them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        self.rank = 0
        self.size = size
        monkeypatch.setattr(_basics, "rank", lambda: self.rank)
        monkeypatch.setattr(_basics, "size", lambda: self.size)

    def samplers(
        self, n_samples: int, state: dict[str, object] | None = None, pad: bool = True
    ) -> list[ElasticSampler]:
        made = []
        for rank in range(self.size):
            self.rank = rank
            made.append(ElasticSampler(range(n_samples), seed=5, pad=pad))
            if state is not None:
                made[-1].load_state_dict(state)
        return made


@pytest.mark.parametrize("n_samples", [0, 1, 2, 7, 12, 100])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("n_used", [0, 1, 5, 99])
def test_all_that_is_left_is_given(monkeypatch: pytest.MonkeyPatch, n_samples: int, size: int, n_used: int) -> None:
    """Once, but for those that make the ranks' shares equal: each of these stands once more, if there are enough."""
    order = list(range(n_samples))
    random.Random(5 + 2).shuffle(order)
    samplers = Ranks(monkeypatch, size).samplers(n_samples, {"epoch": 2, "processed_num": n_used})
    given = Counter(index for sampler in samplers for index in sampler)
    left = order[n_used:]
    assert set(left) <= set(given)
    assert len({len(sampler) for sampler in samplers}) == 1
    assert given.total() == -(-len(left) // size) * size
    n_padding = given.total() - len(left)
    assert n_padding < size
    if n_samples >= n_padding:
        padding = given - Counter(left)
        assert max(padding.values(), default=0) <= 1, "one sample fills up what several could"


@pytest.mark.parametrize("n_samples", [0, 1, 2, 7, 12, 100])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("n_used", [0, 1, 5, 99])
def test_without_padding_none_is_given_twice(
    monkeypatch: pytest.MonkeyPatch, n_samples: int, size: int, n_used: int
) -> None:
    state: dict[str, object] = {"epoch": 2, "processed_num": n_used}
    samplers = Ranks(monkeypatch, size).samplers(n_samples, state, pad=False)
    order = list(range(n_samples))
    random.Random(5 + 2).shuffle(order)
    assert sorted(index for sampler in samplers for index in sampler) == sorted(order[n_used:])
    lengths = [len(sampler) for sampler in samplers]
    assert lengths == [len(list(sampler)) for sampler in samplers]
    assert max(lengths) - min(lengths) <= 1


def test_what_a_rank_used_that_is_gone_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks that are left know it by how many they all have used."""
    ranks = Ranks(monkeypatch, 3)
    samplers = ranks.samplers(30)
    used = {index for sampler in samplers for batch in range(2) for index in sampler.get_indices(batch, 2)}
    for batch in range(2):
        samplers[0].record_batch(batch, 2)
    assert samplers[0].processed_indices == used
    ranks.size = 2
    given = [index for sampler in ranks.samplers(30, samplers[0].state_dict()) for index in sampler]
    assert sorted(given) == sorted(set(range(30)) - used)


def test_the_last_batch_may_be_short(monkeypatch: pytest.MonkeyPatch) -> None:
    (sampler,) = Ranks(monkeypatch, 1).samplers(5)
    for batch in range(2):
        sampler.record_batch(batch, 4)
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 5}
    assert sampler.processed_indices == set(range(5))


def test_states_of_older_versions_of_horovod(monkeypatch: pytest.MonkeyPatch) -> None:
    """They say which samples have been used; batches are counted among the others from there on."""
    ranks = Ranks(monkeypatch, 2)
    first, second = ranks.samplers(12, {"epoch": 3, "processed_indices": {0, 5, 7, 11}})
    assert sorted([*first, *second]) == [1, 2, 3, 4, 6, 8, 9, 10]
    first.record_batch(0, 2)
    used = {0, 5, 7, 11, *first.get_indices(0, 2), *second.get_indices(0, 2)}
    assert first.processed_indices == used
    again = ranks.samplers(12, first.state_dict())
    assert sorted(index for sampler in again for index in sampler) == sorted(set(range(12)) - used)


def test_samples_that_are_recorded_singly(monkeypatch: pytest.MonkeyPatch) -> None:
    (sampler,) = Ranks(monkeypatch, 1).samplers(4)
    sampler.record_indices([1, 2])
    sampler.reset()
    assert sorted(sampler) == [0, 3]
    sampler.set_epoch(1)
    assert sorted(sampler) == [0, 1, 2, 3]
