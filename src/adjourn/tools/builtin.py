"""Built-in tools: end the run, or ask the user for details."""

from __future__ import annotations

from typing import Annotated, Any, cast

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from adjourn._schemas.jsonschema import JSONSchema
from adjourn._values.frozen import check_text
from adjourn._values.registry import native
from adjourn.context import current
from adjourn.errors import UsageError
from adjourn.interrupts import interrupt

from .tool import Tool, tool


def _exit(final_result: str) -> str:
    """Finish the work and give the user the final result.

    Args:
        final_result: The answer that the user gets.
    """
    current().exit(final_result)
    return final_result


def ExitTool(name: str = "exit", description: str | None = None) -> Tool:  # noqa: N802  # a kind of tool to users
    """Return a tool that lets a model end the run; its argument `final_result` is the result of the run."""
    return tool(_exit, name=name, description=description, thread=False)


_TEXT: JSONSchema = {"type": "string"}


class FollowUpInfo(Struct, frozen=True, kw_only=True, tag_field="$t", tag="follow_up_info"):
    """The questions that a model asks the user."""

    questions: tuple[str, ...]

    def __post_init__(self) -> None:
        force_setattr(self, "questions", tuple(self.questions))
        for question in self.questions:
            check_text(question, "FollowUpInfo.questions")


native(FollowUpInfo)


def follow_up(*, name: str = "follow_up", description: str | None = None, max_questions: int = 3) -> Tool:
    """Return a tool that lets a model ask the user up to `max_questions` questions at a time.

    The run pauses with the reason `need_follow_up` and a `FollowUpInfo`. The answer is a list of texts in the order
    of the questions, a mapping from question to text, or one text for all of them.
    """
    if max_questions < 1:
        raise UsageError(f"follow_up(max_questions={max_questions}): give 1 or more.")

    def ask(questions: Any) -> str:
        asked = cast("list[str]", questions)
        answer = interrupt(
            FollowUpInfo(questions=tuple(asked)),
            reason="need_follow_up",
            prompt="\n".join(asked),
            schema=_answers_to(asked),
        )
        return _transcript(asked, answer)

    one = Annotated[str, Meta(min_length=1)]
    limit = Meta(min_length=1, max_length=max_questions, description=f"Up to {max_questions} questions, each complete.")
    ask.__annotations__["questions"] = Annotated[list[one], limit]
    text = description or "Ask the user for details that you need and do not have. Wait for the answers, then continue."
    return tool(ask, name=name, description=text, thread=False)


def _answers_to(questions: list[str]) -> JSONSchema:
    """Return the schema of the answers: a text per question, in a list or by question, or one text for all."""
    count = len(questions)
    forms: list[JSONSchema] = [{"type": "array", "items": _TEXT, "minItems": count, "maxItems": count}, _TEXT]
    if len(set(questions)) == count:
        named = dict.fromkeys(questions, _TEXT)
        forms.append({"type": "object", "properties": named, "required": questions, "additionalProperties": False})
    return {"anyOf": forms}


def _transcript(questions: list[str], answer: Any) -> str:
    if isinstance(answer, str):
        return "\n".join([*(f"Q: {question}" for question in questions), f"A: {answer}"])
    texts: list[str] = [answer[question] for question in questions] if isinstance(answer, dict) else answer
    return "\n".join(f"Q: {question}\nA: {text}" for question, text in zip(questions, texts, strict=True))
