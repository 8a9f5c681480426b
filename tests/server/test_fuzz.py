"""The HTTP API against random requests: no failure of the server, and nothing that its OpenAPI document does not say.

Requests are made from the document, as it wants them and as it forbids them; half of the ids in them are of sessions,
checkpoints, questions and agents that exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import requests
import schemathesis.checks
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from adjourn.server import App, CallerLimits, Tokens
from adjourn.server._api import ROWS
from tests.effort import some

from .agents import booker, refunds
from .serving import PATIENCE, Serving, store_url

CHECKS: list[Any] = [
    getattr(schemathesis.checks, name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
    )
]
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]

FRAMING = {"connection", "content-length", "expect", "host", "transfer-encoding"}
"""Headers that say where a request ends: a random one makes the next request on its connection something else."""

BEGUN: list[tuple[str, Any]] = [
    ("booker", "book Rome"),
    ("booker", "two"),
    ("booker", "hi"),
    ("booker", "fail"),
    ("refunds", {"cents": 5}),
]


class Target:
    """A server with sessions in every state, and a client that knows their names."""

    def __init__(self, server: Serving, tokens: dict[str, str]) -> None:
        self.server = server
        self.tokens = tokens
        self.schema: Any = schemathesis.openapi.from_dict(server.get("/openapi.json", x_api_key=tokens["admin"]).json)
        self.base = f"http://127.0.0.1:{server.server.port}"
        self.client = requests.Session()

    def known(self) -> dict[str, list[Any]]:
        """Begin sessions that end in every way; return names of what is there, by the parameters that take them."""
        headers = {"x_api_key": self.tokens["admin"]}
        sessions, points, questions = list[str](), list[str](), list[str]()
        for agent, message in BEGUN:
            chat = {"agent": agent, "message": message, "stream": False}
            name = self.server.post("/api/v1/chat", chat, **headers).json["session_id"]
            one = f"/api/v1/sessions/{name}"
            sessions.append(name)
            self.server.post(f"{one}/inputs", {"agent": agent, "message": message, "id": "i1"}, **headers)
            points += [each["id"] for each in self.server.get(f"{one}/checkpoints", **headers).json["checkpoints"][:2]]
            for asked in self.server.get(one, **headers).json["pending"]:
                questions += [asked["id"], asked["token"]]
        return {
            "id": sessions,
            "session_id": sessions,
            "threadId": sessions,
            "interruptId": questions,
            "question": questions,
            "input": ["i1"],
            "agent": ["booker", "refunds"],
            "message": [message for _, message in BEGUN],
            "answer": ["yes", True, "Ann"],
            "answers": [{asked: answer} for asked in questions for answer in ("yes", True)],
            "values": [{"cents": 7}],
            **dict.fromkeys(("checkpoint", "checkpoint_id", "a", "b", "before"), points),
        }

    def send(self, case: Any, token: str | None) -> requests.Response:
        """Send a request; of a stream without an end, read what is there at first."""
        kwargs = case.as_transport_kwargs(base_url=self.base)
        kwargs["headers"].pop("Authorization", None)
        kwargs["headers"].pop("X-Api-Key", None)
        kwargs["headers"] = {name: each for name, each in kwargs["headers"].items() if name.lower() not in FRAMING}
        if token is not None:
            kwargs["headers"]["Authorization"] = f"Bearer {token}"
        with self.client.request(**kwargs, stream=True, timeout=PATIENCE) as response:
            body = b""
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                for line in response.iter_lines(delimiter=b"\n\n"):
                    body += line + b"\n\n"
                    # A message in a queue may wait for an answer that never comes.
                    if b'"type":"caught_up"' in line or b": keep-alive" in line:
                        break
            else:
                body = response.content
        response._content = body  # pyright: ignore[reportPrivateUsage]  # as if it had ended
        return response


@pytest.fixture(scope="module", params=some(["memory", "postgres", "redis", "sqlite"], 1))
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzz")
    file = Tokens(folder / "tokens.json")
    tokens = {
        "admin": file.create("ada", roles=["use", "admin"])[1],
        "user": file.create("ann")[1],
        "reviewer": file.create("rita", roles=["review"], agents=["book*"])[1],
        "wrong": "adj_0123456789ab_wrong",
    }
    with Serving(
        App(
            [booker(), refunds()],
            store=store_url(request.param, folder),
            tokens=file,
            limits=CallerLimits(turns=1_000_000),
            keep_alive=1.0,
        )
    ) as server:
        yield Target(server, tokens)


def _name(case: Any, known: dict[str, list[Any]], draw: Any) -> None:
    """Put names that exist in the place of most of the random ones."""
    parts: list[Any] = [case.path_parameters, case.query, case.body]
    for part in parts:
        if isinstance(part, dict):
            for name in sorted(cast("dict[str, Any]", part).keys() & known.keys()):
                if known[name] and draw(st.integers(0, 3)):
                    part[name] = draw(st.sampled_from(known[name]))
    body: Any = case.body
    if isinstance(body, dict):
        for name in sorted(
            cast("dict[str, Any]", body).keys()
            & {"answer", "answers", "checkpoint_id", "values", "at", "as_node", "metadata"}
        ):
            if draw(st.booleans()):
                del body[name]  # All at once, they contradict each other.
        if case.path.endswith(("/chat", "/inputs")) and draw(st.integers(0, 3)):
            body["agent"] = draw(st.sampled_from(known["agent"]))
    if "Idempotency-Key" in case.headers and draw(st.integers(0, 3)):
        del case.headers["Idempotency-Key"]  # Random ones are soon used up.


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # Schemathesis does, for ids that no test sees.
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["fitting", "misfit"])
@pytest.mark.parametrize("name", sorted(row.route for row in ROWS))
def test_every_route_does_what_the_document_says(target: Target, name: str, mode: GenerationMode):  # rules V2, V7, V9
    if mode is GenerationMode.NEGATIVE and name in ("GET /healthz", "GET /readyz"):
        return  # They take nothing that could be wrong.
    method, _, path = name.partition(" ")
    operation = target.schema[path][method]
    known = target.known()

    @given(st.data())
    @settings(suppress_health_check=SLOW, phases=[Phase.generate], database=None)
    def check(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        if mode is GenerationMode.POSITIVE:
            _name(case, known, data.draw)
        who = data.draw(st.sampled_from(["admin", "admin", "user", "reviewer", "wrong", None]))
        response = target.send(case, target.tokens[who] if who else None)
        case.validate_response(response, checks=CHECKS)
        if method != "GET" and response.ok:
            known.update(target.known())  # What was there may be gone.

    check()
