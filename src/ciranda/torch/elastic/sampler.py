"""A sampler that tracks the progress of all ranks together within an epoch."""

from __future__ import annotations

import torch

from ciranda._frameworks.sampler import ElasticIndices


class ElasticSampler(ElasticIndices, torch.utils.data.Sampler[int]):
    """Divides the samples of an epoch that have not been used yet among the ranks of the world.

    An epoch is an order of all samples, the same on all ranks, of which the first `processed_num` have been used. The
    ranks take the remaining ones in turn, the same number each; if their number is not divisible, the first samples of
    the epoch are repeated, unless `pad` is False. Call `record_batch()` after each batch, and put the sampler into the
    state: after a failure the epoch continues with the remaining samples, whichever ranks used the others.

    Args:
        dataset: anything with a length.
        shuffle: whether each epoch has a different random order.
        seed: for that order; the same on all ranks.
        pad: whether samples are repeated so that all ranks have the same number. Without, ranks may differ by one
            sample, and so by a batch: end the epoch with `join()`.
    """
