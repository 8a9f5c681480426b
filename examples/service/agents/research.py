"""The offline models of the research team, and the tool that asks a person."""

from offline import Offline, Reply, call

from adjourn import interrupt
from adjourn.models import ModelRequest

ASIDE = "For context: "
"""What other agents said begins with this; everything else of a user is from the user."""


def ask_for_review(report: str) -> str:
    """Ask a person to review the report.

    Args:
        report: The whole report.
    """
    prompt = 'Publish this report? Answer "ok", or say what to change.'
    return interrupt({"report": report}, prompt=prompt, reason="need_review", schema=str)


def _this_turn(request: ModelRequest) -> list[str]:
    """What was said since the user's last message, which comes first."""
    texts = [message.text for message in request.messages if message.role != "system"]
    mine = [at for at, each in enumerate(request.messages) if each.role == "user" and not each.text.startswith(ASIDE)]
    return texts[mine[-1] - len(request.messages) :]


def _told(request: ModelRequest, beginning: str) -> list[str]:
    begins = ASIDE + beginning
    return [text.removeprefix(begins) for text in _this_turn(request) if text.startswith(begins)]


def _find(source: str, request: ModelRequest) -> str:
    return f"{source} has two facts about: {_this_turn(request)[0].strip(' .?!')}."


def _write(request: ModelRequest) -> str:
    found = [each for name in ("books", "papers") for each in _told(request, f"{name} said: ")]
    wishes = [f"Changed as wished: {each}." for each in _told(request, "tool 'ask_for_review' gave research: ")]
    return " ".join(["Report.", *found, *wishes])


def _edit(request: ModelRequest) -> Reply:
    last = request.messages[-1]
    reports = _told(request, "writer said: ")
    if last.name == "ask_for_review":
        is_fine = last.text.strip(" .!").lower() in ("ok", "yes")
        return f"Published. {reports[-1]}" if is_fine else call(request, "transfer_to_agent", agent_name="writer")
    if last.text.startswith(f"{ASIDE}writer said: "):
        return call(request, "ask_for_review", report=reports[-1])
    is_new = last.role == "user" and not last.text.startswith(ASIDE)
    return call(request, "transfer_to_agent", agent_name="library" if is_new else "writer")


editor = Offline(_edit)
books = Offline(lambda request: _find("The encyclopedia", request))
papers = Offline(lambda request: _find("A paper of 2024", request))
writer = Offline(_write)
