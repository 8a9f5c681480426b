"""Folding: an engine whose every record is folded and compared with a full record of the frames that are live.

The log writer's place is taken by one that takes a record whenever the engine lets it, so nothing is between the frames
and the records but `take`, `fold` and `restore`. The rows of questions are in a dictionary, as they were first asked,
with their answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import asdict, replace

from adjourn import Interrupt
from adjourn._engine.address import segment_text
from adjourn._engine.program import Program, ProgramFrame
from adjourn._engine.questions import open_interrupts
from adjourn._engine.record import NONE, Image, Question, Tree, decode, encode, fold, join
from adjourn._engine.scope import Frame, Scope
from adjourn._values import codec
from adjourn.events import Event
from adjourn.sessions._log import log_question, restore_questions
from adjourn.stores import AuditEntry

from .building import World
from .strategies import Dice

_UNSAID: tuple[Any, ...] = (UNSET, None, [], {}, "pending", "run", 0, False)
"""What a record may leave out without saying less."""


def canonical(tree: Tree) -> dict[str, Any]:
    """A folded session in one form, however its records were cut."""
    frames = {path: _image(image) for path, image in tree.frames.items()}
    for path, pieces in tree.pieces.items():
        frames[path]["channels"] = {name: codec.decode(join(parts)) for name, parts in pieces.items()}
    changed = {each: _plain(asdict(tree.changed[each])) for each in tree.asking() if each in tree.changed}
    return {"turn": tree.turn, "app": tree.app, "asked": tree.asked, "frames": frames, "changed": changed}


def _image(image: Image) -> dict[str, Any]:
    apart = ("fresh", "set", "add", "put", "gone")
    fields = {name: getattr(image, name) for name in image.__struct_fields__ if name not in apart}
    if fields.get("attempt") == 1:
        del fields["attempt"]
    return {name: _plain(value) for name, value in fields.items() if _is_said(value)}


def _is_said(value: Any) -> bool:
    return value is not NONE and not any(value is unsaid or value == unsaid for unsaid in _UNSAID)


def _plain(value: Any) -> Any:
    if isinstance(value, Raw):
        return codec.decode(value) if value is not NONE else None
    if isinstance(value, Question):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value


class Folding:
    """Runs one program, and takes its records itself."""

    def __init__(
        self, build: Callable[[], Program], answer: Callable[[Interrupt], Any], world: World, dice: Dice
    ) -> None:
        self.build = build
        self.answer_to = answer
        self.world = world
        self.dice = dice
        self.bodies: list[bytes] = []
        self.rows: dict[str, AuditEntry] = {}
        self.asked: set[str] = set()
        self.store = None
        self.owner = ""
        self.scope = self._scope()
        program = build()
        self.segment = segment_text(program.kind, program.name)
        self.root: ProgramFrame = program.open(self.scope, None, self.segment, None)
        self.scope.root = self.root

    def _scope(self) -> Scope:
        scope = Scope("s", app="proof", user_id=None, clock=lambda: 0.0)
        scope.branch = "b"
        scope.loop, scope.thread = asyncio.get_running_loop(), threading.get_ident()
        scope.deps = self.world
        scope.logs_events = scope.has_boundaries = True
        scope.log = self
        return scope

    # What frames call

    def close(self, error: Exception) -> None:
        """Nobody ends these runs from outside."""

    def soon(self) -> None:
        """Take a record now, or when the loop comes to it, or leave it to a later one."""
        match self.dice.roll(3):
            case 0:
                self.record()
            case 1:
                asyncio.get_running_loop().call_soon(self.record)
            case _:
                pass

    async def durable(self, *, here: bool = False) -> None:
        self.record()

    async def reported(self) -> None:
        self.record()

    async def note_begin(self, digest: str) -> bool:
        self.record()
        return False

    async def boundary(self, source: str, frame: Frame, step: int, following: Callable[[], tuple[str, ...]]) -> None:
        following()
        self.record()

    is_unsure = False

    async def assure(self) -> None:
        pass

    def assure_here(self) -> None:
        pass

    def emit(self, event: Event) -> None:
        pass

    def emit_live(self, event: Event) -> None:
        pass

    # Records

    def record(self) -> None:
        """Take what changed, and see that folding it gives all there is."""
        for name, question in self.scope.questions.open.items():
            if name not in self.asked:
                self.asked.add(name)
                body = log_question(question, None)
                self.rows[name] = AuditEntry(
                    branch="b", id=name, body=body, expires=None, value=None, how=None, by=None, at=None
                )
        self.bodies.append(encode(self.scope.build_record(full=not self.bodies)))
        folded = canonical(fold(self.bodies))
        live = canonical(fold([encode(self.scope.build_record(full=True))]))
        assert folded == live, _difference(folded, live)

    def restored(self, records: int) -> Folding:
        """Another engine that goes on from so many records, as another process would."""
        other = Folding(self.build, self.answer_to, self.world, self.dice)
        other.bodies = self.bodies[:records]
        tree = fold(other.bodies)
        other.rows, other.asked = dict(self.rows), set(tree.asking())
        restore_questions("s", tree, {each: self.rows[each] for each in other.asked})
        for each, question in tree.questions.items():
            if question.is_open:
                other.rows[each] = replace(other.rows[each], value=None, how=None)
        stored = canonical(fold(other.bodies))
        other.scope = other._scope()
        other.scope.restore(tree)
        image = other.scope.dormant.bind("", self.segment)
        assert image is not None
        other.root = other.scope.root = self.build().open(other.scope, None, self.segment, image)
        again = canonical(fold([encode(other.scope.build_record(full=True))]))
        assert again == stored, _difference(again, stored)
        return other

    # Driving

    def begin(self, given: Any) -> None:
        self.scope.turn = 1
        self.root.begin(given)
        self.record()

    async def advance(self) -> bool:
        """Run as far as it goes, and record where that is."""
        try:
            return await self.root.advance()
        finally:
            self.record()

    def answer(self) -> None:
        """Answer some of the open questions."""
        for asked in self.dice.some(list(open_interrupts(self.scope, None))):
            value = codec.encode(*codec.adopt(self.answer_to(asked), "answer"))
            self.rows[asked.id] = replace(self.rows[asked.id], value=value, how="answered")
            self.scope.answer(asked.id, how="answered", value=value)
        if self.dice.roll(2):
            self.record()


def _difference(folded: dict[str, Any], live: dict[str, Any]) -> str:
    differing = [key for key in ("turn", "app", "asked", "changed") if folded[key] != live[key]]
    lines = [f"{key}: folded {folded[key]}, live {live[key]}" for key in differing]
    paths = {**folded["frames"], **live["frames"]}
    for path in paths:
        one, two = folded["frames"].get(path), live["frames"].get(path)
        if one != two:
            lines.append(f"{path}:\n  folded {one}\n  live   {two}")
    return "\n".join(lines)


def decoded_records(bodies: list[bytes]) -> list[Any]:
    """The records, for a person who looks for a mistake."""
    return [decode(body) for body in bodies]
