"""A server tells others of pauses and ends, with links that lead to it."""

import json
import time
from collections.abc import Iterator

import pytest

from adjourn import Runner
from adjourn.errors import UsageError
from adjourn.server import App
from adjourn.webhooks import Webhooks
from tests.webhooks.receiving import Receiver

from .agents import booker
from .serving import PATIENCE, Serving
from .test_metrics import scrape


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def test_a_server_tells_of_a_question_and_where_to_find_it(receiver: Receiver):  # rule V12
    with Serving(App([booker()], webhooks=[receiver.webhook()], public_url="https://desk.example.com/a/")) as server:
        with server.chat(message="book Rome", session_id="trip/1") as stream:
            assert stream.all()[-1].type == "interrupt"
        told = receiver.next()
        (asked,) = told.data["questions"]
        path = asked["url"].removeprefix("https://desk.example.com/a")
        assert server.get(path).json["id"] == asked["id"]
        assert server.get(told.data["url"].removeprefix("https://desk.example.com/a")).json["session_id"] == "trip/1"
        assert "Rome" not in json.dumps(told.message)
        with server.resume(session_id="trip/1", answer=True) as stream:
            assert stream.all()[-1].type == "done"
        assert receiver.next().type == "done"


def test_what_a_worker_of_the_server_goes_on_with_is_told_of(receiver: Receiver):  # rule V12
    with Serving(App([Runner(booker())], webhooks=Webhooks([receiver.webhook(events=["done"])]))) as server:
        with server.chat(message="book Rome", session_id="s") as stream:
            asked = stream.all()[-1].data["interrupts"][0]["id"]
        assert server.post("/api/v1/sessions/s/answers", {"answers": {asked: True}}).status == 202
        assert receiver.next().data["session_id"] == "s"


def test_what_becomes_of_messages_is_counted(receiver: Receiver):  # rules V9, V12
    receiver.answers = [500]
    with Serving(App([booker()], webhooks=[receiver.webhook(name="desk")])) as server:

        def counted(outcome: str) -> float:
            return scrape(server)("webhook_deliveries_total", webhook="desk", outcome=outcome)

        for outcome in ("failed", "sent"):
            with server.chat(message="book Rome", session_id=outcome) as stream:
                assert stream.all()[-1].type == "interrupt"
            assert receiver.next().data["session_id"] == outcome
            ends = time.monotonic() + PATIENCE
            while not counted(outcome):  # when the answer has come back
                assert time.monotonic() < ends
        assert (counted("failed"), counted("sent")) == (1, 1)


def test_a_public_url_is_for_webhooks(receiver: Receiver):
    for given in (None, Webhooks([receiver.webhook()])):
        with pytest.raises(UsageError, match="public_url"):
            App([booker()], webhooks=given, public_url="https://desk.example.com")
    with pytest.raises(UsageError, match="Webhooks"):
        App([booker()], webhooks=[])
