"""Decisions about tool calls: what approvers see, and how they can answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from adjourn._schemas.jsonschema import JSONSchema
from adjourn._values.frozen import check_text, freeze, shorten
from adjourn._values.registry import native, stored

from .paths import fits_text, path_pattern


class ToolCallInfo(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="$t", tag="tool_call_info"):
    """A tool call as its approver sees it; `arguments` are the JSON of what will run.

    `reach` says in words what `Approve(remember=...)` would cover beside this call.
    """

    tool: str
    arguments: Mapping[str, Any]  # Any: plain JSON data
    call_id: str = ""
    agent: str = ""
    reach: str = ""

    def __post_init__(self) -> None:
        check_text(self.reach, "ToolCallInfo.reach")
        check_text(self.tool, "ToolCallInfo.tool")
        check_text(self.call_id, "ToolCallInfo.call_id")
        check_text(self.agent, "ToolCallInfo.agent")
        force_setattr(self, "arguments", freeze(self.arguments, "ToolCallInfo.arguments"))

    def edit(self, **changes: Any) -> Edit:  # Any: plain JSON data
        """Return the decision to run the call with some of its arguments changed, and the others as they are."""
        return Edit({**self.arguments, **changes})


native(ToolCallInfo)


@stored("adjourn.Approve")
class Approve(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="decision",
    tag="approve",
    forbid_unknown_fields=True,
):
    """Let the call run; with `remember`, later calls of the tool may run too, in this session or always.

    `pattern` limits what is remembered to calls with these argument values; `*` in a text matches anything. For paths,
    give a `PathPattern`, or its JSON: {"$path": "/tmp/**"}.
    """

    remember: Literal["session", "always"] | None = None
    pattern: Mapping[str, Any] | None = None  # Any: plain JSON data

    def __post_init__(self) -> None:
        if self.remember not in (None, "session", "always"):
            raise ValueError(f"Approve(remember={shorten(self.remember)}): use 'session', 'always' or None.")
        if self.pattern is not None:
            if self.remember is None:
                raise ValueError(
                    "Approve(pattern=...) limits what to remember. Pass remember='session' or 'always' as well."
                )
            force_setattr(self, "pattern", freeze(_lowered(self.pattern), "Approve.pattern"))


def _lowered(pattern: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pattern as JSON data; what is meant as a path pattern must be one."""
    if not isinstance(cast("object", pattern), Mapping):
        return pattern  # Refused where it is frozen.
    return {name: wanted if (path := path_pattern(wanted)) is None else path.stored for name, wanted in pattern.items()}


@stored("adjourn.Reject")
class Reject(Struct, frozen=True, omit_defaults=True, tag_field="decision", tag="reject", forbid_unknown_fields=True):
    """Do not run the call; the model gets the reason."""

    reason: str = ""

    def __post_init__(self) -> None:
        check_text(self.reason, "Reject.reason")


@stored("adjourn.Edit")
class Edit(Struct, frozen=True, tag_field="decision", tag="edit", forbid_unknown_fields=True):
    """Run the call with these arguments instead; they replace all of its arguments."""

    arguments: Mapping[str, Any]  # Any: plain JSON data

    def __post_init__(self) -> None:
        force_setattr(self, "arguments", freeze(self.arguments, "Edit.arguments"))


@stored("adjourn.Respond")
class Respond(Struct, frozen=True, tag_field="decision", tag="respond", forbid_unknown_fields=True):
    """Do not run the call; the model gets this text as its result."""

    text: str

    def __post_init__(self) -> None:
        check_text(self.text, "Respond.text")


Decision = Approve | Reject | Edit | Respond


def decision(answer: object) -> Decision:
    """Return the decision that an answer stands for: a decision, its JSON, `True`, `False`, "yes" or "no".

    Raises:
        ValueError: it is anything else.
    """
    match answer:
        case Approve() | Reject() | Edit() | Respond():
            return answer
        case True | "yes":
            return Approve()
        case False | "no":
            return Reject()
        case {"decision": str()}:
            return _from_json(cast("Mapping[str, Any]", answer))
        case _:
            raise _not_a_decision(answer, "it is none of these")


def has_words(found: Decision) -> bool:
    """Return whether the model reads what the author of a decision wrote, so that it may act on that."""
    return isinstance(found, Respond) or (isinstance(found, Reject) and bool(found.reason))


def fits_pattern(arguments: Mapping[str, Any], pattern: Mapping[str, Any] | None, *, surely: bool = True) -> bool:
    """Return whether a call's arguments (JSON data) match a pattern of some of them.

    With `surely=False`, a path that may be one that a `PathPattern` matches counts as one.
    """
    parts = (pattern or {}).items()
    return all(name in arguments and _fits(arguments[name], wanted, surely) for name, wanted in parts)


def approval_schema(arguments: Mapping[str, Any]) -> JSONSchema:
    """Return the JSON Schema of answers to an approval; `arguments` is the schema that edits must fit."""
    remembered = {"remember": {"enum": ["session", "always"]}, "pattern": {"type": ["object", "null"]}}
    # A pattern is only valid with `remember`: reject it here, before the answer is recorded.
    alone = {"remember": {"const": None}, "pattern": {"const": None}}
    approve = {"anyOf": [_form("approve", remembered, "remember"), _form("approve", alone)]}
    respond = _form("respond", {"text": {"type": "string"}}, "text")
    return _schema(arguments, {"approve": approve, "respond": respond})


def review_schema(arguments: Mapping[str, Any]) -> JSONSchema:
    """Return the JSON Schema of answers to a review: accept (as approve), edit or reject."""
    return _schema(arguments, {"approve": _form("approve", {})})


def _schema(arguments: Mapping[str, Any], others: Mapping[str, JSONSchema]) -> JSONSchema:
    whole = {key: value for key, value in arguments.items() if key != "$defs"}
    forms = {
        **others,
        "reject": _form("reject", {"reason": {"type": "string"}}),
        "edit": _form("edit", {"arguments": whole}, "arguments"),
    }
    return {
        "anyOf": [{"type": "boolean"}, {"enum": ["yes", "no"]}, *forms.values()],
        "discriminator": {"propertyName": "decision", "mapping": dict.fromkeys(forms, "")},
        **({"$defs": dict(arguments["$defs"])} if "$defs" in arguments else {}),
    }


def _form(tag: str, properties: JSONSchema, *required: str) -> JSONSchema:
    return {
        "type": "object",
        "properties": {"decision": {"const": tag}, **properties},
        "required": ["decision", *required],
        "additionalProperties": False,
    }


APPROVAL_SCHEMA: JSONSchema = approval_schema({"type": "object"})
"""The schema of answers to an approval when the schema of the arguments is unknown."""


def _from_json(data: Mapping[str, Any]) -> Decision:
    try:
        return msgspec.convert(dict(data), Decision)
    except (TypeError, ValueError) as error:  # msgspec turns errors in constructors into ValueError
        raise _not_a_decision(data, str(error)) from error


def _not_a_decision(answer: object, why: str) -> ValueError:
    return ValueError(
        f"{shorten(answer)} is not an answer to an approval ({why}). Give True, False, 'yes', 'no', Approve(), "
        "Reject(reason), Edit(arguments), Respond(text), or the JSON of one, such as {'decision': 'approve'}."
    )


def _fits(value: object, wanted: object, surely: bool) -> bool:
    if (path := path_pattern(wanted)) is not None:
        return path.surely_fits(value) if surely else path.may_fit(value)
    if isinstance(value, str) and isinstance(wanted, str) and "*" in wanted:
        return fits_text(value, wanted)
    # As JSON, since True == 1 in Python.
    return msgspec.json.encode(value, order="sorted") == msgspec.json.encode(wanted, order="sorted")
