"""Webhooks as they are configured: mistakes are found at once, and nothing secret is shown."""

from pathlib import Path
from typing import Any

import pytest

from adjourn import Runner, Secret, workflow
from adjourn.errors import UsageError
from adjourn.runner import Occasion
from adjourn.webhooks import Webhook, Webhooks, load_webhooks, new_secret

from .receiving import OTHER, SECRET

URL = "https://hooks.example.com/adjourn"


def occasion(kind: Any = "done", agent: str = "desk", **more: Any) -> Occasion:
    return Occasion(kind=kind, agent=agent, checkpoint="b.1", **more)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "not a URL": ("hooks", {}, "https://host/path"),
    "another scheme": ("ftp://example.com/", {}, "https://host/path"),
    "a file": ("file:///etc/passwd", {}, "https://host/path"),
    "no host": ("https:///path", {}, "https://host/path"),
    "a wrong port": ("https://example.com:port/", {}, "https://host/path"),
    "an address that is none": ("https://999.1.1.1/", {}, "https://host/path"),
    "an address of another kind": ("https://[v1.a]/", {}, "https://host/path|read"),
    "a host that nobody has": ("https://exa<mple.com/", {}, "https://host/path"),
    "a URL without an end": (f"https://example.com/{'a' * 70_000}", {}, "https://host/path"),
    "http": ("http://example.com/", {}, "allow_http"),
    "spaces": ("https://example.com/a b", {}, "Encode"),
    "a line break": ("https://example.com/\r\nx: y", {}, "Encode|read"),
    "a private address": ("https://10.0.0.1/", {}, "allow_private"),
    "this machine": ("https://[::1]:8443/", {}, "allow_private"),
    "metadata": ("http://169.254.169.254/latest", {"allow_http": True}, "allow_private"),
    "no secret": (URL, {"secret": []}, "webhook secret"),
    "a wrong secret": (URL, {"secret": "swordfish-123"}, "webhook secret"),
    "a wrong event": (URL, {"events": ["interupt"]}, "Did you mean 'interrupt'"),
    "no event": (URL, {"events": []}, "events"),
    "a text of events": (URL, {"events": "done"}, "give a list"),
    "a wrong agent": (URL, {"agents": [1]}, "agents"),
    "a wrong name": (URL, {"name": "a b"}, "letters, digits"),
    "a wrong flag": (URL, {"details": "yes"}, "True or False"),
    "a wrong time": (URL, {"expiring_before": 0}, "above zero"),
    "a wrong timeout": (URL, {"timeout": -1}, "above zero"),
    "a wrong link": (URL, {"link": "https://example.com/{other}"}, "session"),
    "a link to nothing": (URL, {"link": "https://example.com/"}, "session"),
    "a link by script": (URL, {"link": "javascript:alert('{session}')"}, "session"),
}


def make(url: str, options: dict[str, Any]) -> Webhook:
    given: dict[str, Any] = {"secret": SECRET}
    return Webhook(url, **(given | options))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(name: str):  # rule V12
    url, options, hint = REFUSED[name]
    with pytest.raises(UsageError, match=hint) as refused:
        make(url, options)
    assert "swordfish" not in str(refused.value)


def test_nothing_secret_of_a_webhook_is_shown():  # rule V12, attack 10
    webhook = Webhook("https://ann:swordfish@hooks.example.com/T0/t0ps3cret?key=abc", secret=[SECRET, Secret(OTHER)])
    shown = repr(webhook) + repr(Webhooks([webhook])) + str(webhook.secrets)
    for each in ("swordfish", "t0ps3cret", "abc", SECRET, OTHER):
        assert each not in shown
    assert webhook.name.startswith("hooks.example.com-")
    with pytest.raises(UsageError) as refused:
        Webhook("https://ann:swordfish@10.0.0.1/t0ps3cret", secret=SECRET)
    assert "10.0.0.1" in str(refused.value)
    assert "swordfish" not in str(refused.value)
    assert "t0ps3cret" not in str(refused.value)


def test_a_webhook_is_told_what_it_wants_to_know():  # rule V12
    some = Webhook(URL, secret=SECRET, events=["done", "interrupt"], agents=["refund-*", "desk"], name="some")
    every = Webhook(URL, secret=SECRET, name="every")
    hooks = Webhooks([some, every])

    def told(about: Occasion) -> list[str]:
        return [notice.to for notice in hooks.notices(about)]

    assert told(occasion("done")) == ["some", "every"]
    assert told(occasion("error")) == ["every"]
    assert told(occasion("done", agent="refund-eu")) == ["some", "every"]
    assert told(occasion("done", agent="Desk")) == ["every"]
    ids = [notice.id for _ in range(3) for notice in hooks.notices(occasion())]
    assert len(set(ids)) == 6


def test_an_expiry_is_announced_in_time():  # rule V12
    webhook = Webhook(URL, secret=SECRET, expiring_before=600)
    assert webhook.due(occasion("done")) is None
    assert webhook.due(occasion("expiring", asked=1000.0, expires=5000.0)) == 4400.0
    assert webhook.due(occasion("expiring", asked=1000.0, expires=1100.0)) == 1050.0


def test_two_webhooks_cannot_have_one_name():  # rule V12
    for hooks in ([Webhook(URL, secret=SECRET)] * 2, [Webhook(URL, secret=SECRET), Webhook(URL, secret=OTHER)], []):
        with pytest.raises(UsageError, match="Webhooks"):
            Webhooks(hooks)
    with pytest.raises(UsageError, match="public_url"):
        Webhooks([Webhook(URL, secret=SECRET)], public_url="desk.example.com")


@workflow
async def flow(_: str) -> str:
    return "done"


def test_a_runner_refuses_what_cannot_be_told():  # rule V12
    with pytest.raises(UsageError, match="notify"):
        Runner(flow, notify=URL)  # pyright: ignore[reportArgumentType]


# Files

GOOD = """
public_url: https://desk.example.com/
webhooks:
  - url: https://hooks.example.com/${HOOK_PATH}
    secret: ["${NEW_SECRET}", "${OLD_SECRET}"]
    events: [interrupt, expiring]
    agents: ["refund-*"]
    expiring_before: 900
    details: true
  - {"name": "audit", "url": "https://audit.example.com/", "secret": "${NEW_SECRET}"}
"""


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NEW_SECRET": SECRET, "OLD_SECRET": OTHER, "HOOK_PATH": "t0ps3cret"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("variables")
def test_a_file_names_webhooks_and_not_their_secrets(tmp_path: Path):  # rule V12
    path = tmp_path / "webhooks.yaml"
    path.write_text(GOOD)
    hooks = load_webhooks(path)
    assert hooks.public_url == "https://desk.example.com"
    assert load_webhooks(path, public_url="https://other.example.com").public_url == "https://other.example.com"
    first = hooks.notices(occasion("expiring", agent="refund-eu", asked=0.0, expires=9000.0))
    assert [(each.due, each.to == "audit") for each in first] == [(8100.0, False), (5400.0, True)]
    assert "t0ps3cret" not in repr(hooks)


BAD = """
public_url: [1]
hooks: []
webhooks:
  - url: https://hooks.example.com/
    secret: {swordfish}
  - url: http://hooks.example.com/
    secret: ${NEW_SECRET}
  - url: https://hooks.example.com/${UNSET}
    secret: ${UNSET}
    event: [done]
  - secret: ${NEW_SECRET}
    details: 1
  - text
""".replace("{swordfish}", new_secret())

MISTAKES = [
    ("line 2, column 13", "not a text"),
    ("line 3, column 1", "no field 'hooks'"),
    ("line 6, column 13", "Secrets do not belong in files"),
    ("line 7, column 5", "allow_http"),
    ("line 9, column 10", "UNSET is not set"),
    ("line 10, column 13", "UNSET is not set"),
    ("line 11, column 5", "Did you mean 'events'"),
    ("line 12, column 5", "has no 'url'"),
    ("line 13, column 14", "true or false"),
    ("line 14, column 5", "not a mapping"),
]


@pytest.mark.usefixtures("variables")
def test_all_mistakes_of_a_file_are_listed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # rule V12
    monkeypatch.delenv("UNSET", raising=False)
    path = tmp_path / "webhooks.yaml"
    path.write_text(BAD)
    with pytest.raises(UsageError) as refused:
        load_webhooks(path)
    lines = str(refused.value).splitlines()[1:]
    for place, what in MISTAKES:
        assert [line for line in lines if place in line and what in line], (place, what, lines)
    assert len(lines) == len(MISTAKES)
    assert "whsec_" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "webhooks: []", "webhooks: x", "a: [", "webhooks: no", "---\na: 1\n---\nb: 2"]
)
def test_a_file_without_webhooks_is_refused(tmp_path: Path, text: str):  # rule V12
    path = tmp_path / "webhooks.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="has mistakes:\n  line"):
        load_webhooks(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path):  # rule V12
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("missing", "binary"):
        with pytest.raises(UsageError, match="cannot be read"):
            load_webhooks(tmp_path / name)
