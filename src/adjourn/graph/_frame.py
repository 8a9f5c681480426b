"""The frame of a graph: its channels, and where its superstep stands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from types import CoroutineType
from typing import Any, cast

import msgspec
from msgspec import Raw

from adjourn._engine.address import parse_segment
from adjourn._engine.frame import lift_values, lower_values, value_or
from adjourn._engine.program import ProgramFrame, Report
from adjourn._engine.record import GraphImage, Image, UserImage, join
from adjourn._engine.scope import Frame, Scope
from adjourn._engine.values import adopt_value
from adjourn._text import a_type
from adjourn._values import codec
from adjourn.errors import CheckpointCorrupt, ProgramChanged, StateInvalid, UsageError
from adjourn.messages import Message

from ._breakpoints import hit
from ._channels import Changes, Channel, MessagesChannel
from ._engine import advance
from ._plan import Plan
from ._routing import bind, depart
from ._spec import NodeSpec
from ._task import Routing, Send, Task, lift_overlay, lower_sends, target
from ._voice import Voice, voice_of
from .commands import START, Overwrite
from .state import Snapshot

NONE_OF_THEM: frozenset[str] = frozenset()

_messages_decoder = msgspec.json.Decoder(list[Message])


class GraphFrame(ProgramFrame):
    """A running graph.

    A superstep has three phases. In "run" its `tasks` run; then their writes are applied and it is in "route", where
    conditions decide what comes next (`routings` are those that could not be decided in one go); then the next tasks
    stand ready and it is in "run" again.
    """

    # Slots, beside the attributes that all frames have: see Scope.
    __slots__ = (
        "_values",
        "_voice",
        "channels",
        "count",
        "deferred",
        "ended",
        "exports",
        "finished",
        "graph",
        "grown",
        "ids",
        "joins",
        "made",
        "phase",
        "replaced",
        "routes_stored",
        "routings",
        "step",
        "tagged",
        "targets",
        "tasks",
        "values_new",
    )

    def __init__(self, graph: Plan, scope: Scope, parent: Frame | None, segment: str) -> None:
        super().__init__(scope, parent, segment)
        self.graph = graph
        self._voice: Voice | None = None
        self.step = self.count = self.ids = 0
        self.channels: dict[str, Any] = {}
        self.tagged: frozenset[str] = NONE_OF_THEM
        self.replaced: dict[str, None] = {}
        self.grown: dict[str, int] = {}
        self.exports: frozenset[str] = NONE_OF_THEM
        self.made: dict[str, list[Any]] = {}
        self._values: dict[str, Any] = {}
        self.values_new: dict[str, Any] = {}
        self.phase = "run"
        self.tasks: list[Task] = []
        self.routings: list[Routing] = []
        self.finished: list[NodeSpec] = []
        self.ended: list[str] = []
        self.targets: list[Send] = []
        self.joins: dict[str, dict[str, None]] = {}
        self.deferred: list[Send] = []
        self.routes_stored = False

    @property
    def values(self) -> dict[str, Any]:
        return self._values

    @property
    def voice(self) -> Voice:
        """In whose name the nodes of this graph are heard, in this turn."""
        if self._voice is None:
            self._voice = voice_of(self.parent)
        return self._voice

    # Input and output

    def begin(self, input: Any) -> None:
        update = self._input(input)
        self._voice = None
        if not self.channels and not self.recorded:
            for name, value in self.graph.schema.first().items():
                self.channels[name] = self._owned(name, value)
                self.replaced[name] = None
        self.commit_changes(self._checked(update, "the input"))
        self.made = {}
        self._start()

    def _input(self, input: Any) -> Mapping[str, Any]:
        if isinstance(input, dict):
            return input  # pyright: ignore[reportUnknownVariableType]  # of the user's making
        if input is None:
            return {}
        if isinstance(input, Mapping):
            return cast("Mapping[str, Any]", input)
        cls = self.graph.schema.cls
        if cls is not None and isinstance(input, cls):
            return {name: getattr(input, name) for name in self.graph.schema.channels if hasattr(input, name)}
        return self.text_input(input)

    def text_input(self, input: Any) -> Mapping[str, Any]:
        """A text or message as the state's `user_input`."""
        text = input.text if isinstance(input, Message) else input
        if not isinstance(text, str) or "user_input" not in self.graph.schema.channels:
            raise UsageError(f"Graph '{self.graph.name}' takes a mapping of its state as input, not {a_type(input)}.")
        return {"user_input": text}

    def _checked(self, update: Mapping[str, Any], writer: str) -> Changes:
        """What values from outside do to the state, once they fit the schema."""
        changes, schema = Changes(self.channels, self), self.graph.schema
        for name, value in update.items():
            is_whole = type(value) is Overwrite
            owned, plain = codec.adopt(value.value if is_whole else value, name)
            if not plain:
                changes.tagged |= {name}
            channel = schema.channel(name, writer)
            (channel.overwrite if is_whole else channel.update)(changes, owned, writer)
        # Only what is new is checked: the rest has been, and may be long.
        schema.check({**changes.values, **changes.tails} if changes.tails else changes.values, self.channels)
        return changes

    def _owned(self, name: str, value: Any) -> Any:
        owned, plain = codec.adopt(value, name)
        if not plain:
            self.tagged |= {name}
        return owned

    def _start(self) -> None:
        self.count = 0
        self.joins = {}
        self.deferred = []
        self.close_questions()
        depart(self, self.graph.start)

    def new_message_id(self) -> str:
        """The next message id: from the session's counter at the root, with a prefix of its own below."""
        self.ids += 1
        return f"{self._id_prefix()}{self.ids}"

    def _id_prefix(self) -> str:
        if self.parent is None:
            return "m"
        place = hashlib.blake2b(f"{self.path} {self.instance}".encode(), digest_size=5).hexdigest()
        return f"m{place}."

    def pass_message_ids(self, brought: Iterable[str]) -> None:
        """Count on after ids that messages brought along: those of another session look like our own."""
        prefix = self._id_prefix()
        for each in brought:
            number = each[len(prefix) :]
            if each.startswith(prefix) and number.isascii() and number.isdecimal() and len(number) < 16:
                self.ids = max(self.ids, int(number))

    def report(self) -> Report:
        state = Snapshot(self.graph.schema, self.channels)
        output = self.channels.get("last_response", "")
        shown = state if self.graph.schema.cls is None else self.graph.schema.build(dict(state))
        return Report(output=output if isinstance(output, str) else "", state=shown, fields=state)

    def product(self) -> Any:
        return dict(self.channels)

    def following(self) -> tuple[str, ...]:
        tasks = self.tasks
        if len(tasks) == 1:
            return (tasks[0].spec.name,)
        sends = self.targets if self.phase == "route" else self.deferred
        names = [task.spec.name for task in tasks] if tasks else [spec.name for spec, _ in sends] if sends else ()
        return tuple(dict.fromkeys(names))

    def has_more(self) -> bool:
        return bool(self.finished or self.following())

    def advance(self) -> CoroutineType[Any, Any, bool]:
        return advance(self)

    def is_pausing(self) -> bool:
        """Whether the next thing to happen here is a pause: then its record is that of the border before it, too."""
        return hit(self)

    def stops_before(self, tasks: list[Task]) -> bool:
        """Whether a cancel of the run stops this graph before these tasks."""
        return True

    def wake(self) -> None:
        if self.questions:
            self.scope.mark(self)  # With its answer; an edit that comes with it is not the only thing to be stored.

    # Changing the state

    def commit_changes(self, changes: Changes) -> None:
        """Make the changes that a superstep, an input or an edit amounts to."""
        self.channels.update(changes.values)
        for name in changes.values:
            self.replaced[name] = None
            if self.grown:
                self.grown.pop(name, None)
        if changes.tails:
            self._extend(changes.tails)
        if self.tagged or changes.tagged:
            self.tagged = self.tagged.difference(changes.values) | changes.tagged
        self.scope.changes.dirty[self] = None

    def _extend(self, tails: Mapping[str, list[Any]]) -> None:
        for name, tail in tails.items():
            if name not in self.replaced:
                self.grown.setdefault(name, len(self.channels[name]))
            self.channels[name].extend(tail)

    def export(self, name: str, value: Any, reduces: bool) -> None:
        """Note an update for the parent graph, which shares this field."""
        if not reduces or name not in self.made or type(value) is Overwrite:
            self.made[name] = [value]
            self.replaced["^" + name] = None
            self.grown.pop("^" + name, None)
            return
        if "^" + name not in self.replaced:
            self.grown.setdefault("^" + name, len(self.made[name]))
        self.made[name].append(value)

    def set_values(self, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            self._values[key] = self.values_new[key] = adopt_value(key, value)
        self.scope.mark(self)

    def merge_values(self, values: Mapping[str, Any]) -> None:
        """Take over the session values that a finished task wrote."""
        self._values.update(values)
        self.values_new.update(values)

    @property
    def has_tasks_alone(self) -> bool:
        """Whether nothing else than tasks stands below, so that all of it goes with them."""
        return True

    def abandon(self) -> None:
        for frame in self.live_children():
            frame.close()
        self.scope.forget_below(self.path)
        self.scope.changes.dropped[self.path + ";"] = None
        self.tasks, self.routings = [], []
        self.finished, self.ended, self.targets, self.deferred, self.joins = [], [], [], [], {}
        self.close_questions()
        self.phase = "run"
        self.scope.mark(self)

    def close_questions(self) -> None:
        """Forget the questions that this graph asked itself."""
        if self.questions is None:
            return
        self.withdraw_questions()
        self.scope.questions.askers.pop(self.path, None)

    def supply(self, state: Mapping[str, Any]) -> None:
        self.edit({name: value for name, value in state.items() if name not in self.channels}, None)

    def edit(self, values: Mapping[str, Any], as_node: str | None) -> None:
        changes = self._checked(values, "the edit")
        spec = None if as_node is None else self.graph.specs.get(as_node)
        if as_node is not None and spec is None:
            raise UsageError(
                f"as_node='{as_node}': graph '{self.graph.name}' has no such node. "
                f"It has: {', '.join(self.graph.specs)}."
            )
        self.commit_changes(changes)
        for name in self.exports.intersection(values):
            self.export(
                name, codec.adopt(values[name], name)[0], type(self.graph.schema.channels.get(name)) is not Channel
            )
        if spec is not None:
            self.abandon()
            depart(self, spec)

    def spec_named(self, name: str, path: str) -> NodeSpec:
        """The node that a stored frame names.

        Raises:
            ProgramChanged: there is none any more.
        """
        return target(self.graph.specs, name, path)

    # Records

    def live_children(self) -> Iterable[Frame]:
        return [*self.tasks, *self.routings]

    def snapshot(self) -> GraphImage:
        image = GraphImage(fresh=not self.recorded, step=self.step, count=self.count)
        if image.fresh:
            image.graph, self.recorded = self.graph.name, True
        if self.replaced:
            image.set = {name: self._stored(name) for name in self.replaced}
            self.replaced = {}
        if self.grown:
            image.add = {name: self._stored(name, since) for name, since in self.grown.items()}
            self.grown = {}
        if self.values_new:
            image.values = lower_values(self.values_new)
            self.values_new = {}
        if self.ids:
            image.ids = self.ids
        if self.questions is not None:
            self.put_questions(image)
        routes = self.phase != "run" or bool(self.joins or self.deferred or self.ended)
        if routes or self.routes_stored:
            self._add_routing(image)
        self.routes_stored = routes
        return image

    def _add_routing(self, image: GraphImage) -> None:
        image.phase = self.phase
        image.finished = [spec.name for spec in self.finished]
        image.ended = self.ended
        image.targets = lower_sends(self.targets)
        image.joins = {name: list(arrived) for name, arrived in self.joins.items()}
        image.deferred = lower_sends(self.deferred)

    def _stored(self, name: str, since: int | None = None) -> Any:  # Any: encoded with the record, as if it were Raw
        """A field as a record keeps it, or what a list has got `since`."""
        is_made = name[0] == "^"
        value = self.made[name[1:]] if is_made else self.channels[name]
        if since is not None:
            value = value[since:]
        # Plain values are encoded with the record, in one native call; only tagged ones need a walk.
        return codec.lower(value) if is_made or name in self.tagged else value

    def snapshot_all(self, into: dict[str, Image]) -> None:
        self.recorded = False
        self.replaced = dict.fromkeys(self.channels)
        for name in self.made:
            self.replaced["^" + name] = None
        self.grown = {}
        self.values_new = dict(self._values)
        into[self.path] = self.snapshot()
        for child in self.live_children():
            child.snapshot_all(into)
        if self.scope.dormant:
            into.update(self.scope.dormant.snapshot(self.path))

    def restore(self, image: GraphImage) -> None:
        """Become what was stored, with the tasks and routings that were under way."""
        self.recorded = True
        self.step, self.count = value_or(image.step, 0), value_or(image.count, 0)
        self.ids, self.phase = value_or(image.ids, 0), value_or(image.phase, "run")
        self.questions, self.questions_stored = image.questions or None, len(image.questions)
        if self.questions:
            self.scope.questions.askers[self.path] = self
        self.scope.note_bound(self)
        self._values = lift_values(image.values)
        self.joins = {name: dict.fromkeys(arrived) for name, arrived in value_or(image.joins, {}).items()}
        self.deferred = self._restored_sends(value_or(image.deferred, []))
        self.targets = self._restored_sends(value_or(image.targets, []))
        self.ended = value_or(image.ended, [])
        self.finished = [self._finished(name) for name in value_or(image.finished, [])]
        self.routes_stored = True
        self._restore_channels(self.scope.dormant.pieces.pop(self.path, {}))
        self._restore_children()
        bind(self)

    def _restored_sends(self, stored: list[tuple[str, dict[str, Raw] | None]]) -> list[Send]:
        return [(self.spec_named(name, self.path), lift_overlay(overlay)) for name, overlay in stored]

    def _finished(self, name: str) -> NodeSpec:
        return self.graph.start if name == START else self.spec_named(name, self.path)

    def _restore_channels(self, pieces: Mapping[str, list[Raw]]) -> None:
        for name, parts in pieces.items():
            if name.startswith("^"):
                self.made[name[1:]] = codec.decode(join(parts))
                continue
            try:
                channel = self.graph.schema.channel(name, "the stored session")
            except StateInvalid as error:
                raise ProgramChanged(self.address, f"the state has no field '{name}' any more") from error
            value = self._decoded(name, join(parts), isinstance(channel, MessagesChannel))
            channel.check_whole(value, "the stored session")
            self.channels[name] = value

    def _decoded(self, name: str, body: bytes, messages: bool) -> Any:
        if messages:
            try:
                return _messages_decoder.decode(body)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                pass  # Not only messages, or damaged: the general decoder tells which.
        if body.find(b'"$t"') >= 0:
            self.tagged |= {name}
        return codec.decode(body)

    def _restore_children(self) -> None:
        for segment in list(self.scope.dormant.below(self.path)):
            found = self.task_at(segment)
            if found is not None:
                self._restore_task(segment, found)
        self.tasks.sort(key=lambda task: (task.spec.order, task.index or 0))

    def task_at(self, segment: str) -> Task | None:
        """The task that stands at a segment below this graph; None when it is no task's."""
        kind, name, number = _parsed(segment)
        return Task(self, self.spec_named(name, f"{self.path};{segment}"), number) if kind == "node" else None

    def _restore_task(self, segment: str, task: Task) -> None:
        image = self.scope.dormant.bind(self.path, segment)
        if not isinstance(image, UserImage):
            raise CheckpointCorrupt(f"'{task.path}' is no node's frame")
        task.restore(image)
        self._check_kind(task)
        self.tasks.append(task)

    def _check_kind(self, task: Task) -> None:
        """Refuse what a graph has left of its run where a function stands now, and the other way round."""
        below, inside = self.scope.dormant.below(task.path), task.spec.inside
        if task.spec.graph is None and "~" in below:
            raise ProgramChanged(task.address, f"node '{task.spec.name}' is no graph any more")
        if task.spec.graph is not None and (task.questions or task.memos or any(each != inside for each in below)):
            raise ProgramChanged(task.address, f"node '{task.spec.name}' is a graph now, and was a function")


def _parsed(segment: str) -> tuple[str, str, int | None]:
    try:
        parsed = parse_segment(segment)
        return parsed.type, parsed.id, None if parsed.sub_id is None else int(parsed.sub_id)
    except (ValueError, TypeError) as error:
        raise CheckpointCorrupt(f"'{segment}' is no segment of a graph") from error
