"""The engine's libcrypto beside that of Python: neither minds the other, whichever is there first."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import Ranks

pytestmark = pytest.mark.multiprocess

DIGEST_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def _use_pythons() -> None:
    import hashlib
    import ssl

    assert hashlib.new("sha256", b"abc").hexdigest() == DIGEST_OF_ABC
    assert hashlib.pbkdf2_hmac("sha256", b"abc", b"salt", 10)
    assert ssl.create_default_context().get_ciphers()
    assert ssl.RAND_bytes(8)


def _use_ours(seed: int) -> None:
    import ciranda

    ciranda.init()
    total = ciranda.allreduce(np.full(300_000, ciranda.rank() + seed), op=ciranda.Sum)
    assert total.tolist() == [2 * seed + 1] * 300_000
    ciranda.shutdown()


def _in_order(theirs_first: bool) -> None:
    if theirs_first:
        _use_pythons()
    for seed in range(2):
        _use_ours(seed)
        _use_pythons()


@pytest.mark.parametrize("theirs_first", [True, False])
def test_both_work(theirs_first: bool) -> None:
    with Ranks(2, env={"CIRANDA_SHARED_MEMORY": "0"}, initialize=False) as ranks:
        ranks.run(_in_order, theirs_first)
