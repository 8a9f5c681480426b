"""Serves the agents of this folder, and prints what to type in another terminal: no key, no network.

    python examples/service/serve.py [--port 8000] [--store sqlite:///service.db] [more options of `adjourn serve`]

What waits for a person stays in the store, and is listed at the next start. `make serve` runs this.
"""

import argparse
import errno
import json
import secrets
import socket
import sys
from pathlib import Path

from adjourn import AdjournError, Sessions
from adjourn.cli import main

AGENTS = Path(__file__).parent / "agents"
TALKS = {
    "ticket-booker": ("It asks for what is missing, and before it books", "Book a ticket to Rome", ["Ann", "yes"]),
    "refund-desk": ("A graph: above 100 EUR the manager decides", "Please refund order B-42", ["refund"]),
    "research": ("Two researchers at once, a writer, and a person who reviews", "Night trains", ["shorter", "ok"]),
}
"""What to say to each agent, and what to answer to its questions."""


def chat(url: str, agent: str, session: str, message: str) -> str:
    return _post(f"{url}/api/v1/chat", {"agent": agent, "session_id": session, "message": message})


def answer(url: str, session: str, answer: str) -> str:
    return _post(f"{url}/api/v1/chat/resume", {"session_id": session, "answer": answer})


def inbox(url: str, session: str) -> str:
    return f"curl '{url}/api/v1/inbox?session_id={session}'"


def _post(url: str, data: dict[str, str]) -> str:
    return f"curl -N {url} -H 'content-type: application/json' -d '{json.dumps(data)}'"


def print_talks(url: str) -> None:
    run = secrets.token_hex(2)  # Other sessions each time: those of the last time may still wait.
    print("In another terminal, line by line: say something, see the question, answer it.")
    for agent, (what, message, answers) in TALKS.items():
        session = f"{agent}-{run}"
        print(f"\n{agent}. {what}:")
        print(chat(url, agent, session, message))
        for each in answers:
            print(inbox(url, session))
            print(answer(url, session, each))
    print(flush=True)


def print_waiting(store: str) -> None:
    try:
        count = Sessions(store).count_pending_sync()
    except AdjournError as error:  # The URL, the driver or the server is not right.
        sys.exit(f"{error}")
    if count:
        print("From the last time, these wait:", flush=True)
        main(["pending", "--store", store])
        print()


def serve() -> int:
    parser = argparse.ArgumentParser(description="Serves three agents, offline.", allow_abbrev=False)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--store", default="sqlite:///service.db", metavar="URL")
    options, more = parser.parse_known_args()
    if not 0 < options.port < 65_536:
        parser.error(f"--port {options.port}: give a number from 1 to 65535")
    try:
        socket.create_server(("127.0.0.1", options.port)).close()
    except OSError as error:
        why = "taken by another program" if error.errno == errno.EADDRINUSE else f"no use: {error.strerror}"
        sys.exit(f"Port {options.port} is {why}. Choose another, such as: make serve PORT={options.port + 1}")
    url = f"http://127.0.0.1:{options.port}"
    print_waiting(options.store)
    print_talks(url)
    return main(["serve", str(AGENTS), "--store", options.store, "--port", str(options.port), *more])


if __name__ == "__main__":
    sys.exit(serve())
