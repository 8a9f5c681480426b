"""Decisions about tool calls: what approvers see, and how they can answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from adjourn._schemas.jsonschema import JSONSchema, problems, resolved, rewritten
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

    `pattern` limits what is remembered to calls with these argument values; `*` in a text matches anything, and numbers
    are compared by value. For paths, give a `PathPattern`, or its JSON: {"$path": "/tmp/**"}.
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
            check_pattern(self.pattern)


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


def fits_pattern(arguments: Mapping[str, Any], pattern: Mapping[str, Any] | None, *, surely: bool = True) -> bool:
    """Return whether a call's arguments (JSON data) match a pattern of some of them.

    With `surely=False`, what may be meant counts as well: a path that a `PathPattern` may match, an object with more in
    it, a text that is the wanted number.
    """
    parts = (pattern or {}).items()
    return all(name in arguments and _fits(arguments[name], wanted, surely) for name, wanted in parts)


def approval_schema(arguments: Mapping[str, Any]) -> JSONSchema:
    """Return the JSON Schema of answers to an approval; `arguments` is the schema that edits must fit."""
    known = {name: _pattern_schema(part, arguments) for name, part in arguments.get("properties", {}).items()}
    pattern = {"type": ["object", "null"], **({"properties": known} if known else {})}
    remembered = {"remember": {"enum": ["session", "always"]}, "pattern": pattern}
    # A pattern is only valid with `remember`: reject it here, before the answer is recorded.
    alone = {"remember": {"const": None}, "pattern": {"const": None}}
    approve = {"anyOf": [_form("approve", remembered, "remember"), _form("approve", alone)]}
    respond = _form("respond", {"text": {"type": "string"}}, "text")
    return _schema(arguments, {"approve": approve, "respond": respond})


def _pattern_schema(part: Any, arguments: Mapping[str, Any]) -> JSONSchema:
    """Return the schema of patterns for an argument: a value that it can have, a text with `*`, a path pattern."""
    kinds, forms = _kinds(part, dict(arguments)), [part]
    if "string" in kinds:
        forms.append({"type": "string", "pattern": "[*]"})
    if kinds & _ANY:
        forms.append({"type": "object", "properties": {"$path": {"type": "string"}}, "required": ["$path"]})
    return {"anyOf": forms}


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
    return _is(value, wanted, surely)


def _is(value: object, wanted: object, surely: bool) -> bool:
    """Return whether a value is the wanted one; if not `surely`, an object may have more than the wanted one."""
    if _is_number(wanted):
        # As text, since Decimal("0.1") is not 0.1, which stands for the nearest float.
        is_text = isinstance(value, str) and (not surely or isinstance(wanted, Decimal))
        return (is_text or _is_number(value)) and _decimal(value) == _decimal(wanted)
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        names, given = cast("Mapping[str, object]", wanted), cast("Mapping[str, object]", value)
        known = names.keys() == given.keys() if surely else names.keys() <= given.keys()
        return known and all(_is(given[name], each, surely) for name, each in names.items())
    if isinstance(wanted, list | tuple) and isinstance(value, list | tuple):
        some, items = cast("Sequence[object]", wanted), cast("Sequence[object]", value)
        return len(some) == len(items) and all(map(_is, items, some, [surely] * len(items)))
    # As JSON, where True is not 1.
    return msgspec.json.encode(value, order="sorted") == msgspec.json.encode(wanted, order="sorted")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _decimal(value: object) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


def misfit(pattern: Mapping[str, Any], schema: Mapping[str, Any], *, surely: bool = True) -> str:
    """Return why no arguments of a schema can match a pattern, or "" if some can; what the schema leaves open can."""
    whole = dict(schema)
    if not surely:
        whole = rewritten(whole, lambda part: {key: each for key, each in part.items() if key != "required"})
    known = whole.get("properties", {})
    for name, wanted in pattern.items():
        if name in known and (why := _misfit(wanted, known[name], whole, surely)):
            return f"{name}: {why}"
    return ""


def _misfit(wanted: Any, part: Any, schema: JSONSchema, surely: bool) -> str:
    if isinstance(wanted, str) and "decimal" in _kinds(part, schema) and not surely:
        return "text, and it is a number, as which 100 and 100.00 are the same"
    path = path_pattern(wanted)
    data = path.stored if path is not None else float(wanted) if isinstance(wanted, Decimal) else wanted
    whole = {"properties": {"it": _pattern_schema(part, schema)}, "$defs": schema.get("$defs", {})}
    return "; ".join(each.removeprefix("$.it: ") for each in problems({"it": msgspec.to_builtins(data)}, whole))


_ANY = frozenset({"string", "array"})


def _kinds(part: Any, schema: JSONSchema) -> frozenset[str]:
    """Return the JSON types that a value can have, with "decimal" for one that is compared as a number."""
    if isinstance(part, dict) and "$ref" in part:
        part = resolved(cast("JSONSchema", part), schema)
    if not isinstance(part, dict):
        return _ANY
    found = cast("JSONSchema", part)
    if found.get("format") == "decimal":
        return frozenset({"decimal"})
    if several := found.get("anyOf"):
        return frozenset[str]().union(*(_kinds(each, schema) for each in several))
    kinds: Any = found.get("type", ())
    return frozenset([kinds] if isinstance(kinds, str) else kinds) or _ANY


def check_pattern(pattern: Mapping[str, Any]) -> None:
    """Refuse a pattern with a '*' inside a list or an object, where it would be taken literally.

    Raises:
        ValueError: naming the argument.
    """
    for name, wanted in pattern.items():
        if path_pattern(wanted) is None and _has_star_inside(wanted):
            raise ValueError(
                f"the pattern for '{name}' has a '*' or a path pattern inside a list or an object. They work only as "
                "the whole pattern of an argument: give the exact value there."
            )


def _has_star_inside(wanted: object) -> bool:
    match wanted:
        case Mapping():
            inside: Iterable[object] = cast("Mapping[str, object]", wanted).values()
        case list() | tuple():
            inside = cast("Sequence[object]", wanted)
        case _:
            return False
    return any(
        path_pattern(each) is not None or (isinstance(each, str) and "*" in each) or _has_star_inside(each)
        for each in inside
    )
