"""Decisions about tool calls: what approvers see, and how they can answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, cast
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from adjourn._schemas.jsonschema import NO_NUMBER, JSONSchema, problems, resolved, rewritten
from adjourn._values.frozen import check_json, check_text, check_texts, freeze, is_same_json, shorten
from adjourn._values.registry import native, stored

from ._whole import whole
from .paths import PathPattern, fits_text, path_pattern


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
        check_texts(self, "tool", "call_id", "agent", "reach")
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
    it, a list in another order, a list that has the wanted text, a text that is the wanted number or writes the wanted
    time or UUID in another way.
    """
    parts = (pattern or {}).items()
    return all(name in arguments and _fits(arguments[name], wanted, surely) for name, wanted in parts)


def approval_schema(arguments: Mapping[str, Any]) -> JSONSchema:
    """Return the JSON Schema of answers to an approval; `arguments` is the schema that edits must fit."""
    compared = _as_compared(dict(arguments), surely=True)
    known = {name: _pattern_schema(part, compared) for name, part in compared.get("properties", {}).items()}
    pattern: JSONSchema = {"type": ["object", "null"], **({"properties": known} if known else {})}
    if arguments.get("additionalProperties") is False:
        pattern["additionalProperties"] = False  # It could never match.
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
    if not isinstance(wanted, str):
        return _is(value, wanted, surely)
    if isinstance(value, list | tuple) and not surely:
        return any(_fits(each, wanted, surely) for each in cast("Sequence[object]", value))
    given = cast("object", value)
    if "*" in wanted and (isinstance(given, str) or (_is_number(given) and not surely)):
        return fits_text(str(given), wanted)
    return _is(given, wanted, surely)


def _is(value: object, wanted: object, surely: bool) -> bool:
    """Return whether a value is the wanted one, or if not `surely`, may be meant as that (see `fits_pattern`)."""
    if _is_number(wanted) or (_is_number(value) and isinstance(wanted, str) and not surely):
        # As text, since Decimal("0.1") is not 0.1, which stands for the nearest float.
        is_text = isinstance(value, str) and (not surely or isinstance(wanted, Decimal))
        return (
            (is_text or _is_number(value))
            and (number := as_decimal(value)) is not None
            and number == as_decimal(wanted)
        )
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        names, given = cast("Mapping[str, object]", wanted), cast("Mapping[str, object]", value)
        known = names.keys() == given.keys() if surely else names.keys() <= given.keys()
        return known and all(_is(given[name], each, surely) for name, each in names.items())
    if isinstance(wanted, list | tuple) and isinstance(value, list | tuple):
        some, items = cast("Sequence[object]", wanted), cast("Sequence[object]", value)
        # Without its order, it may be a set.
        places = [[item] if surely else items for item in items]
        pairs = zip(some, places, strict=False)
        return len(some) == len(items) and all(any(_is(item, each, surely) for item in place) for each, place in pairs)
    if isinstance(wanted, str) and isinstance(value, str) and not surely and value != wanted:
        return (read := _read(value)) is not None and read == _read(wanted)
    return is_same_json(value, wanted)


def _read(text: str) -> object:
    """Return the time or the UUID that a text stands for, since each can be written in several ways."""
    for kind in (datetime, time, timedelta, UUID):
        try:
            return msgspec.convert(text, kind)
        except msgspec.ValidationError:
            continue
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def as_decimal(value: object) -> Decimal | None:
    """Return the number that a value is, or that a text stands for; None for anything else."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None  # NaN equals nothing, and a signaling one raises when compared.


def misfit(pattern: Mapping[str, Any], schema: Mapping[str, Any], *, surely: bool = True) -> str:
    """Return why no arguments of a schema can match a pattern, or "" if some can; what the schema leaves open can."""
    compared = _as_compared(dict(schema), surely=surely)
    known = compared.get("properties", {})
    for name, wanted in pattern.items():
        if name in known and (why := _misfit(wanted, known[name], compared, surely)):
            return f"{name}: {why}"
    return ""


def _as_compared(schema: JSONSchema, *, surely: bool) -> JSONSchema:
    """Return a schema of what can match the values of a schema.

    A decimal is text, and what must match surely is compared with that. Otherwise it is compared as a number, for which
    100 and 100.00 are the same, and objects may lack something.
    """

    def compared(part: JSONSchema) -> JSONSchema:
        if part.get("format") == "decimal":
            part = {**part, "type": "string" if surely else "number"}
        if surely:
            return part
        several: list[JSONSchema] = [each for each in part.get("anyOf", ()) if isinstance(each, dict)]
        if {"number", "string"} <= {each.get("type") for each in several}:
            # So Pydantic describes a decimal.
            texts = [{**each, "format": NO_NUMBER} if each.get("type") == "string" else each for each in several]
            part = {**part, "anyOf": texts}
        return {key: each for key, each in part.items() if key != "required"}

    return rewritten(schema, compared)


def _misfit(wanted: Any, part: Any, schema: JSONSchema, surely: bool) -> str:
    path, choices = path_pattern(wanted), _choices(part, schema)
    if path is None and isinstance(wanted, str) and "*" in wanted and choices is not None:
        texts = [each for each in choices if isinstance(each, str)]
        return "" if any(fits_text(each, wanted) for each in texts) else f"{wanted!r} matches none of {choices}"
    whole = {"properties": {"it": _pattern_schema(part, schema)}, "$defs": schema.get("$defs", {})}
    found: list[str] = []
    for kind in (float, str) if surely else (float,):
        data = path.stored if path is not None else _with_decimals(wanted, kind)
        found = problems({"it": data}, whole)
        if not found:
            break
    return "; ".join(each.removeprefix("$.it").removeprefix(": ").removeprefix(".") for each in found)


def _with_decimals(wanted: Any, kind: Callable[[Decimal], object]) -> Any:
    """Return a pattern with its decimals as something of this kind."""
    match wanted:
        case Decimal():
            return kind(wanted)
        case Mapping():
            return {name: _with_decimals(each, kind) for name, each in cast("Mapping[str, Any]", wanted).items()}
        case list() | tuple():
            return [_with_decimals(each, kind) for each in cast("Sequence[Any]", wanted)]
        case _:
            return wanted


def _choices(part: Any, schema: JSONSchema) -> list[Any] | None:
    """Return the only values that a schema allows, if it lists them."""
    found = resolved(part, schema)
    if several := found.get("anyOf"):
        each = [_choices(one, schema) for one in several]
        return None if None in each else [value for some in each for value in some or ()]
    if found.get("type") == "null":
        return [None]
    return cast("list[Any] | None", found.get("enum"))


_ANY = frozenset({"string", "array"})


def _kinds(part: Any, schema: JSONSchema) -> frozenset[str]:
    """Return the JSON types that a value can have, with "decimal" for one that is compared as a number."""
    found = resolved(part, schema)
    if found.get("format") == "decimal":
        return frozenset({"decimal"})
    if several := found.get("anyOf"):
        return frozenset[str]().union(*(_kinds(each, schema) for each in several))
    kinds: Any = found.get("type", ())
    return frozenset([kinds] if isinstance(kinds, str) else kinds) or _ANY


def as_data(wanted: Any) -> Any:
    """Return a part of a rule's pattern as the JSON data that arguments are compared as.

    Decimals and path patterns stay what they are.

    Raises:
        TypeError, ValueError: it has no JSON form.
    """
    match wanted:
        case PathPattern():
            return wanted
        case Decimal() if wanted.is_finite():
            return wanted
        case Mapping():
            return {name: as_data(each) for name, each in cast("Mapping[str, Any]", wanted).items()}
        case list() | tuple():
            return [as_data(each) for each in cast("Sequence[Any]", wanted)]
        case _:
            data = whole(wanted)
            check_json(data, "the pattern")
            return data


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
            parts = cast("Mapping[str, object]", wanted)
            inside: Iterable[object] = (*parts, *parts.values())
        case list() | tuple():
            inside = cast("Sequence[object]", wanted)
        case _:
            return False
    return any(
        path_pattern(each) is not None or (isinstance(each, str) and "*" in each) or _has_star_inside(each)
        for each in inside
    )


APPROVAL_SCHEMA: JSONSchema = approval_schema({"type": "object"})
"""The schema of answers to an approval when the schema of the arguments is unknown."""
