"""Sealing a secret for another process, over a channel on which others may listen.

Every pair of keys is used once, for one secret of 32 bytes. Who can change what the channel carries can take part in
the agreement: the channel itself must keep those out.
"""

from __future__ import annotations

import hashlib

from ciranda._core import KeyAgreement


def seal(secret: bytes, mine: KeyAgreement, other: bytes) -> bytes:
    """Return the secret for the holder of the other key alone. Sealing it again with the same keys opens it.

    Raises:
        ValueError: `other` is no public key.
    """
    pair = b"".join(sorted((mine.public_key, other)))
    pad = hashlib.sha256(b"ciranda secret" + mine.agreed(other) + pair).digest()
    return bytes(byte ^ its_pad for byte, its_pad in zip(secret, pad, strict=True))
