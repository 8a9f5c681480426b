"""From YAML to the declarations: every mistake with its place, not just the first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast

from msgspec import Struct
from msgspec import inspect as types

from adjourn._habits import called_here
from adjourn._text import did_you_mean
from adjourn._yaml import (
    Ambiguous,
    Items,
    Node,
    Pairs,
    Place,
    Problem,
    Scalar,
    ambiguous,
    data_of,
    key_problem,
    shortened,
    value_of,
)

from ._declared import SECRET, VALUE_NAME

Path: TypeAlias = tuple[str | int, ...]
"""Where something is in a document: the keys and numbers that lead to it."""

Wrong: TypeAlias = tuple[str, str]
"""What is wrong, and what to do about it."""

Check: TypeAlias = Callable[[str, str], Wrong | None]
"""Checks a text of a kind, such as the name of a model."""

WRONG: Any = object()
"""Stands for a value that does not fit, also inside of what was made from the rest."""

_VARIABLES = "Environment variables are read in 'api_key', 'base_url' and the 'url' of a checkpoint; others in Python."
_MEANT = {
    "llm": "model",
    "failover": "model: {name: ..., fallback: [...]}",
    "fallback": "model: {name: ..., fallback: [...]}",
    "fallbacks": "fallback",
    "subagents": "sub_agents",
    "members": "agents",
    "steps": "agents",
    "timeout": "timeout_seconds",
    "ttl": "ttl_seconds",
    "needs_approval": "approval",
    "require_approval": "approval",
    "checkpointer": "checkpoint",
    "store": "checkpoint",
    "function": "ref",
    "path": "ref",
    "source": "from",
    "target": "to",
}
"""What people write in files, and what it is called here; `called_here` knows names from other libraries."""


class Found(Struct, frozen=True):
    """A text that names something else, and where it is."""

    kind: str
    text: str
    path: Path


class Fitting:
    """Fits one document to a declaration.

    What is right is made, also beside what is wrong, so that all of it can be checked.
    """

    def __init__(self, check: Check) -> None:
        self.places: dict[Path, Place] = {}
        self.problems: list[Problem] = []
        self.faulty: set[Path] = set()
        """Where something is wrong, there or below: what was made there must not be used."""
        self.found: list[Found] = []
        self._check = check
        self._reported = 0
        self._by_type: dict[type[types.Type], Callable[[Node, Any, Path], Any]] = {
            types.Metadata: self._named,
            types.UnionType: self._union,
            types.StructType: self._struct,
            types.DictType: self._dict,
            types.ListType: self._list,
            types.AnyType: lambda node, type_, path: data_of(node, self.problems),
        }

    def fit(self, node: Node, type_: types.Type, path: Path = ()) -> Any:
        """Return the value of a node as a type wants it, with `WRONG` in place of what is not; `problems` says why."""
        self.places[path] = node.place
        before = len(self.problems) + self._reported
        fit = self._by_type.get(type(type_), self._scalar)
        value = self._was_reported() if isinstance(node, Scalar) and node.is_alias else fit(node, type_, path)
        if len(self.problems) + self._reported > before:
            self.faulty.add(path)
        return value

    def check_variables(self, node: Node) -> None:
        """Report environment variables where none is read: their names would be taken for texts."""
        read = {each.path for each in self.found if each.kind in ("env", "secret")}
        for path, scalar in _scalars(node, ()):
            if re.search(SECRET, scalar.text) and path not in read and path not in self.faulty:
                self._wrong(scalar.place, f"{shortened(scalar.text)} is not read here", _VARIABLES)
                self.faulty.update(path[:length] for length in range(len(path) + 1))

    def _was_reported(self) -> Any:
        """Refuse what the reader of the file has reported."""
        self._reported += 1
        return WRONG

    def _wrong(self, place: Place, message: str, hint: str = "") -> Any:
        self.problems.append(Problem(place, message, hint))
        return WRONG

    def _unfit(self, node: Node, path: Path, *wanted: types.Type) -> Any:
        what = f"{_called(path)} is {_shown(node)}; give {_described(wanted)}"
        return self._wrong(node.place, what, _remedy(node, wanted))

    # Scalars

    def _named(self, node: Node, type_: types.Metadata, path: Path) -> Any:
        value = self.fit(node, type_.type, path)
        kind = cast("dict[str, str]", type_.extra or {}).get("kind")  # pyright: ignore[reportUnknownMemberType]
        if value is WRONG or kind is None:
            return value
        self.found.append(Found(kind, value, path))
        wrong = self._check(kind, value)
        return value if wrong is None else self._wrong(node.place, *wrong)

    def _scalar(self, node: Node, type_: types.Type, path: Path) -> Any:
        if not isinstance(node, Scalar):
            return self._unfit(node, path, type_)
        try:
            value = value_of(node)
        except Ambiguous:
            self.problems.append(ambiguous(node))
            return WRONG
        if isinstance(type_, types.FloatType) and type(value) is int:
            value = float(value)
        if not _is_a(value, type_):
            return self._unfit(node, path, type_)
        problem = _out_of_bounds(value, type_, _called(path))
        return value if problem is None else self._wrong(node.place, *problem)

    # Several possibilities

    def _union(self, node: Node, type_: types.UnionType, path: Path) -> Any:
        fitting = [each for each in type_.types if _could_be(node, each)]
        if isinstance(node, Pairs) and len(fitting) > 1:
            return self._tagged(node, cast("list[types.StructType]", fitting), path)
        if len(fitting) == 1:
            options = [each for each in type_.types if _is_named(each, node) and not _fits(node, fitting[0])]
            return self._needs_options(node, options[0]) if options else self.fit(node, fitting[0], path)
        if isinstance(node, Scalar) and _is_ambiguous(node):
            self.problems.append(ambiguous(node))
            return WRONG
        return self._unfit(node, path, *type_.types)

    def _tagged(self, node: Pairs, structs: list[types.StructType], path: Path) -> Any:
        """Choose among structs by the field that names them."""
        field = structs[0].tag_field
        assert field is not None
        known = {str(each.tag): each for each in structs}
        tag = node.get(field)
        if tag is None:
            named = [key.text for key, _ in node.pairs if key.text in known]
            beside = f"Write {{{field}: {named[0]}, ...}}, with its options beside it." if named else ""
            return self._wrong(node.place, f"'{field}' is missing", beside or f"Give one of: {', '.join(known)}.")
        if not isinstance(tag, Scalar) or tag.text not in known:
            shown = shortened(tag.text) if isinstance(tag, Scalar) else _shown(tag)
            hint = meant_or_known(shown, known)
            return self._wrong(tag.place, f"there is no {field} '{shown}'", hint)
        return self._struct(node, known[tag.text], path)

    def _needs_options(self, node: Node, type_: types.Type) -> Any:
        """Refuse something that is named alone, and has to be a mapping."""
        assert isinstance(type_, types.StructType)
        first = type_.fields[0].encode_name
        hint = f"Write {{{type_.tag_field}: {type_.tag}, {first}: ...}}. Its options: {', '.join(_fields(type_)[:-1])}."
        return self._wrong(node.place, f"'{type_.tag}' needs options", hint)

    # Containers

    def _struct(self, node: Node, type_: types.StructType, path: Path) -> Any:
        if not isinstance(node, Pairs):
            return self._unfit(node, path, type_)
        fields = {field.encode_name: field for field in type_.fields}
        given: dict[str, Any] = {}
        for key, value in node.pairs:
            field = fields.get(key.text)
            if field is not None:
                given[field.name] = self.fit(value, field.type, (*path, key.text))
            elif key_problem(key) is not None:
                self._was_reported()
            elif key.text != type_.tag_field:
                self._unknown(key, type_)
        for name, field in fields.items():
            if field.required and field.name not in given:
                given[field.name] = self._wrong(node.place, f"'{name}' is missing", _missing_hint(field.type))
                self.faulty.add((*path, name))
        return type_.cls(**given)

    def _unknown(self, key: Scalar, type_: types.StructType) -> None:
        name, known = shortened(key.text), _fields(type_)
        meant = _MEANT.get(name) or called_here(name)
        above = next((field.encode_name for field in type_.fields if name in _fields_below(field.type)), None)
        if meant.partition(":")[0] in known and name not in known:
            hint = f"Write '{meant}' instead."
        elif above is not None:
            hint = f"It belongs to '{above}': write it below, indented by two more spaces."
        else:
            hint = meant_or_known(name, known)
        self._wrong(key.place, f"there is no field '{name}' here", hint)

    def _dict(self, node: Node, type_: types.DictType, path: Path) -> Any:
        if not isinstance(node, Pairs):
            return self._unfit(node, path, type_)
        for key, _ in node.pairs:
            if (problem := _out_of_bounds(key.text, type_.key_type, f"a name in {_called(path)}")) is not None:
                self._wrong(key.place, *problem)
        made = {key.text: self.fit(value, type_.value_type, (*path, key.text)) for key, value in node.pairs}
        if len(made) < (type_.min_length or 0):
            return self._wrong(node.place, f"{_called(path)} is empty", "Give at least one.")
        return made

    def _list(self, node: Node, type_: types.ListType, path: Path) -> Any:
        if not isinstance(node, Items):
            return self._unfit(node, path, type_)
        made = [self.fit(item, type_.item_type, (*path, number)) for number, item in enumerate(node.items)]
        if len(made) < (type_.min_length or 0):
            return self._wrong(node.place, f"{_called(path)} is empty", "Give at least one.")
        return made


def _scalars(node: Node, path: Path) -> Iterator[tuple[Path, Scalar]]:
    match node:
        case Items():
            for number, item in enumerate(node.items):
                yield from _scalars(item, (*path, number))
        case Pairs():
            for key, value in node.pairs:
                yield from _scalars(value, (*path, key.text))
        case Scalar():
            yield path, node


def _fields(type_: types.StructType) -> list[str]:
    return [*(field.encode_name for field in type_.fields), *([type_.tag_field] if type_.tag_field else [])]


def _fields_below(type_: types.Type) -> set[str]:
    """Return the fields that a mapping of a type may have."""
    bare = _bare(type_)
    each = bare.types if isinstance(bare, types.UnionType) else (bare,)
    return {name for struct in each if isinstance(struct, types.StructType) for name in _fields(struct)}


def _is_named(type_: types.Type, node: Node) -> bool:
    return isinstance(type_, types.StructType) and isinstance(node, Scalar) and type_.tag == node.text


def _fits(node: Node, type_: types.Type) -> bool:
    """Return whether a text has the form that a type wants."""
    return isinstance(node, Scalar) and _out_of_bounds(node.text, _bare(type_), "") is None


def meant_or_known(name: str, known: Iterable[str]) -> str:
    """Return what was probably meant instead of a name, or else everything that there is."""
    names = list(known)
    alike = name if name in names else name.lower()
    return did_you_mean(alike, names, 0.7).strip() or f"There are: {', '.join(names) or 'none'}."


def _called(path: Path) -> str:
    """Return what messages call the thing at a path."""
    if not path:
        return "the document"
    last = path[-1]
    return f"'{last}'" if isinstance(last, str) else f"item {last + 1} of {_called(path[:-1])}"


def _bare(type_: types.Type) -> types.Type:
    return type_.type if isinstance(type_, types.Metadata) else type_


def _is_ambiguous(scalar: Scalar) -> bool:
    try:
        value_of(scalar)
    except Ambiguous:
        return True
    return False


def _could_be(node: Node, type_: types.Type) -> bool:
    """Return whether a node is of the kind that a type wants, so that what is wrong with it is about that type."""
    bare = _bare(type_)
    match node:
        case Pairs():
            return isinstance(bare, types.StructType | types.DictType | types.AnyType)
        case Items():
            return isinstance(bare, types.ListType | types.AnyType)
        case Scalar():
            if _is_ambiguous(node):
                return False
            value = value_of(node)
            if isinstance(bare, types.LiteralType):
                return isinstance(value, str)
            return _is_a(float(value) if isinstance(bare, types.FloatType) and type(value) is int else value, bare)


_CLASSES: dict[type[types.Type], type[object]] = {
    types.StrType: str,
    types.BoolType: bool,
    types.IntType: int,
    types.FloatType: float,
    types.NoneType: type(None),
}


def _is_a(value: object, type_: types.Type) -> bool:
    if isinstance(type_, types.LiteralType):
        return value in type_.values
    return isinstance(type_, types.AnyType) or type(value) is _CLASSES.get(type(type_))


def _out_of_bounds(value: Any, type_: types.Type, called: str) -> Wrong | None:
    match type_:
        case types.IntType() | types.FloatType():
            if type_.ge is not None and value < type_.ge:
                return f"{called} is {value}", f"Give {type_.ge} or more."
            if type_.gt is not None and value <= type_.gt:
                return f"{called} is {value}", f"Give a number above {type_.gt}."
        case types.StrType():
            if len(value) < (type_.min_length or 0):
                return f"{called} is an empty text", "Write something, or remove it."
            if type_.pattern == SECRET and not re.search(type_.pattern, value):
                hint = "Secrets do not belong in files. Name the environment variable that has it: ${OPENAI_API_KEY}."
                return f"{called} does not name an environment variable", hint  # What it is may be the secret.
            if type_.pattern is not None and not re.search(type_.pattern, value):
                return f"'{shortened(value)}' does not fit here", _pattern_hint(value, type_.pattern)
        case _:
            pass
    return None


def _pattern_hint(text: str, pattern: str) -> str:
    if pattern.startswith("^python://"):
        return "Write python://module:attribute, such as python://tickets.tools:book_ticket."
    if pattern == VALUE_NAME:
        return "Session values whose names begin with '~' are the library's own. Choose another name."
    if pattern.startswith("^(python://"):
        known = pattern.removesuffix(")$").split("|")[1:]
        return f"{meant_or_known(text, known)} Or write python://module:attribute."
    return "Use up to 64 letters, digits, '-' and '_'."


def _shown(node: Node) -> str:
    match node:
        case Items():
            return "a list"
        case Pairs():
            return "a mapping"
        case Scalar():
            value = None if _is_ambiguous(node) else value_of(node)
            match value:
                case None:
                    return "empty"
                case bool():
                    return f"{node.text}, which is a boolean"
                case int() | float():
                    return f"{shortened(node.text)}, which is a number"
                case str():
                    return f"the text '{shortened(value)}'"


_WORDS: dict[type[types.Type], str] = {
    types.StrType: "a text",
    types.BoolType: "true or false",
    types.IntType: "a whole number",
    types.FloatType: "a number",
    types.ListType: "a list",
    types.DictType: "a mapping",
    types.StructType: "a mapping",
}


def _described(wanted: Iterable[types.Type]) -> str:
    words: list[str] = []
    for type_ in map(_bare, wanted):
        if isinstance(type_, types.UnionType):
            words.append(_described(type_.types))
        elif isinstance(type_, types.LiteralType):
            values = [str(value) for value in type_.values]
            words.append(values[0] if len(values) == 1 else f"one of {', '.join(values)}")
        elif type(type_) in _WORDS:
            words.append(_WORDS[type(type_)])
    return " or ".join(dict.fromkeys(words))


def _remedy(node: Node, wanted: Iterable[types.Type]) -> str:
    """Return what to write instead, if that is clear."""
    if not isinstance(node, Scalar):
        return ""
    bare = [_bare(type_) for type_ in wanted]
    text = shortened(node.text)
    if node.is_plain and text and any(isinstance(type_, types.StrType) for type_ in bare):
        return f"Put it in quotes: '{text}'."
    if any(isinstance(type_, types.ListType) for type_ in bare) and text:
        return f"Write it as a list: [{text}]."
    structs = [type_ for type_ in bare if isinstance(type_, types.StructType)]
    if len(structs) == 1:
        return f"Its fields are: {', '.join(_fields(structs[0]))}."
    literals = [str(value) for type_ in bare if isinstance(type_, types.LiteralType) for value in type_.values]
    return did_you_mean(text, literals, 0.6).strip()


def _missing_hint(type_: types.Type) -> str:
    bare = _bare(type_)
    if isinstance(bare, types.LiteralType) and len(bare.values) == 1:
        return f"Write it: {bare.values[0]}."
    return f"Give {_described([type_])}."
