"""Runs on Postgres: what one process began, another goes on with."""

import json
import subprocess
import sys
from pathlib import Path

from tests.servers import postgres

PROGRAM = '''
import json, sys
from adjourn import ChatModelAgent, Runner, tool

@tool(approval=True)
async def book_ticket(location: str, passenger_name: str, phone: str) -> str:
    """Book a train ticket."""
    with open(sys.argv[2], "a") as log:
        log.write(f"{passenger_name} to {location}\\n")
    return f"booked: {passenger_name} to {location}"

agent = ChatModelAgent(name="TicketBooker", description="Books tickets", model="demo:tickets", tools=[book_ticket])
runner = Runner(agent, store=sys.argv[1])
if sys.argv[3] == "run":
    result = runner.run_sync("Book a ticket for Martin to Beijing, phone 555-0100", session_id="s1")
else:
    (asked,) = runner.pending_sync("s1")
    result = runner.resume_sync("s1", {asked.id: True}, by="ann")
print(json.dumps([result.status, [each.id for each in result.interrupts]]))
'''


def act(url: str, log: Path, what: str) -> list[object]:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, url, str(log), what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_an_approval_is_asked_in_one_process_and_answered_in_another(tmp_path: Path):  # rules I1, R4
    url, log = postgres().fresh(), tmp_path / "log"
    assert act(url, log, "run") == ["interrupted", ["agent:TicketBooker;tool:book_ticket:call_1"]]
    assert not log.exists()
    assert act(url, log, "resume") == ["done", []]
    assert log.read_text() == "Martin to Beijing\n"
