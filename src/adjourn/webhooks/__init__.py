"""Webhooks: signed messages to other services when a run waits, has ended, or a question is about to expire.

They come from the outbox of a store, which is written together with what they are about: whatever was stored is sent,
at least once, by any process that delivers for the store.
"""

from ._file import load_webhooks
from ._signing import new_secret
from ._webhook import Webhook
from ._webhooks import Webhooks

__all__ = ["Webhook", "Webhooks", "load_webhooks", "new_secret"]
