"""A sampler that knows how far into an epoch the ranks together have come."""

from __future__ import annotations

import torch

from ciranda._frameworks.sampler import ElasticIndices


class ElasticSampler(ElasticIndices, torch.utils.data.Sampler[int]):
    """Divides the samples of an epoch that have not been used yet among the ranks of the world.

    An epoch is an order of all samples, the same on all ranks, of which the first `processed_num` have been used. The
    ranks take the rest in turn, as many each; where it does not suffice for that, the first samples of the epoch are
    given once more. Call `record_batch()` after each batch, and put the sampler into the state: after a failure the
    epoch goes on with the samples that are left, whoever used the others.

    Args:
        dataset: anything with a length.
        shuffle: whether each epoch has an order of its own.
        seed: for that order; the same on all ranks.
    """
