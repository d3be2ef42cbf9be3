"""`horovod.runner.common.util.secret`: the key that the processes of a job share."""

from __future__ import annotations

import hashlib
import hmac
import secrets

__all__ = ["DIGEST_LENGTH", "HOROVOD_SECRET_KEY", "check_digest", "compute_digest", "make_secret_key"]

#: The variable in which a job's processes are given it.
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"

#: Of a digest, in bytes.
DIGEST_LENGTH = hashlib.sha256().digest_size


def make_secret_key() -> bytes:
    """Return a new key of 32 random bytes."""
    return secrets.token_bytes(32)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """Return the digest (HMAC-SHA256) by which who knows the key sees that `message` comes from one who does."""
    return hmac.digest(key, message, "sha256")


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Whether `digest` is that of `message`."""
    return hmac.compare_digest(compute_digest(key, message), digest)
