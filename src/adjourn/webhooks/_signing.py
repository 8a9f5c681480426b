"""Signatures as Standard Webhooks has them: whoever has the secret knows that a message is ours, and when it left."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Sequence

from adjourn.errors import UsageError

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64
"""Bytes that a secret may have."""


def new_secret() -> str:
    """Return a new random secret, as senders and receivers of Standard Webhooks take it."""
    return PREFIX + b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """Return the key in a secret.

    Raises:
        UsageError: it is not a secret of Standard Webhooks; the text is not in the message.
    """
    try:
        key = b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not SHORTEST <= len(key) <= LONGEST:
        raise UsageError(
            f"A secret of a webhook is '{PREFIX}' and {SHORTEST} to {LONGEST} random bytes in base64, and this one is "
            "not. Make one with `adjourn webhook secret`."
        )
    return key


def headers_of(keys: Sequence[bytes], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message: its id, when it leaves, and a signature by each of the keys."""
    signed = b"%b.%d.%b" % (id.encode(), timestamp, body)
    made = [b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys]
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{each}" for each in made),
    }
