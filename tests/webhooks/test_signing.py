"""Signatures that the official library of Standard Webhooks accepts."""

import base64
import time

import pytest
import standardwebhooks

from adjourn.errors import UsageError
from adjourn.webhooks import new_secret
from adjourn.webhooks._signing import headers_of, key_of

from .receiving import OTHER, SECRET

BODY = b'{"type": "done", "text": "\xc3\xa4"}'


def signed(*secrets: str, at: float | None = None) -> dict[str, str]:
    return headers_of([key_of(each) for each in secrets], "msg_1", int(at or time.time()), BODY)


def test_the_official_library_accepts_a_signature():  # rule V12
    assert standardwebhooks.Webhook(SECRET).verify(BODY, signed(SECRET))["type"] == "done"


def test_with_several_secrets_each_is_enough():  # rule V12
    headers = signed(OTHER, SECRET)
    for secret in (SECRET, OTHER):
        standardwebhooks.Webhook(secret).verify(BODY, headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(new_secret()).verify(BODY, headers)


@pytest.mark.parametrize("change", ["body", "id", "time"])
def test_nothing_of_a_message_can_be_changed(change: str):  # rule V12
    headers, body = signed(SECRET), BODY
    if change == "body":
        body = BODY.replace(b"done", b"gone")
    elif change == "id":
        headers["webhook-id"] = "msg_2"
    else:
        headers["webhook-timestamp"] = str(int(headers["webhook-timestamp"]) - 1)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(body, headers)


def test_a_new_secret_is_one():
    assert len(key_of(new_secret())) == 32
    assert new_secret() != new_secret()


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "secret",
        "whsec_",
        "whsec_not base64!",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        base64.b64encode(bytes(32)).decode(),
    ],
)
def test_what_is_not_a_secret_is_refused_without_being_shown(secret: str):  # rule V12, attack 10
    with pytest.raises(UsageError, match="adjourn webhook secret") as refused:
        key_of(secret)
    assert not secret or secret in ("whsec_", "secret") or secret not in str(refused.value)
