"""Plans that people can follow: a to-do list for one agent, and a board of tasks for agents that share work."""

# An override is documented where it is declared.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from adjourn._habits import checks_options
from adjourn.context import current, own_values
from adjourn.errors import ToolError
from adjourn.tools import tool

from .hooks import Middleware, Setup, noted

TODO_INSTRUCTION = (
    "For work with several steps, keep a list of to-dos with `write_todos`: write it before you begin, and again "
    "whenever you begin or finish one. `read_todos` shows it. Do not use it for a single step."
)
BOARD_INSTRUCTION = (
    "Work is on a board of tasks. Add tasks with `add_task`, look at them with `list_tasks`, and change one with "
    "`update_task`: take it as its owner before you begin, and mark it done when it is. A task that others block "
    "can begin when those are done."
)
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}

TASK = "task:"
MOST = 200
_ID = re.compile(r"\d{1,9}(?:-[0-9a-f]{6})?", re.ASCII)
Status = Literal["open", "in_progress", "done", "dropped"]


class Todo(Struct, frozen=True, kw_only=True):
    """One item of a to-do list."""

    text: Annotated[str, Meta(min_length=1, max_length=1000, description="What to do.")]
    status: Annotated[Literal["pending", "in_progress", "done"], Meta(description="Its progress.")] = "pending"


class TodoList(Middleware):
    """Provides an agent with a to-do list and the tools `write_todos` and `read_todos`.

    It is the session value `~own:todos` (or another `key`, if agents have separate lists in one session), which only
    these tools write: a list of `{"text": ..., "status": "pending" | "in_progress" | "done"}`. Each write replaces it
    and emits a `Custom` event, whatever the key: `{"todos": [...]}`.
    """

    @checks_options
    def __init__(self, *, key: str = "todos", instruction: str = TODO_INSTRUCTION) -> None:
        self._key = key
        self._instruction = instruction
        self._tools = (tool(self.write_todos), tool(self.read_todos))

    def before_agent(self, setup: Setup) -> Setup:
        return noted(setup, self._instruction, self._tools)

    async def write_todos(self, todos: Annotated[list[Todo], Meta(max_length=100)]) -> str:
        """Replace the list of to-dos.

        Args:
            todos: All of them, in order.
        """
        ctx, listed = current(), msgspec.to_builtins(todos)
        own_values()[self._key] = listed
        ctx.emit({"todos": listed})  # The event itself says which agent they belong to.
        return _shown(todos)

    async def read_todos(self) -> str:
        """Show the list of to-dos."""
        return _shown(msgspec.convert(own_values().get(self._key, []), list[Todo]))


def _shown(todos: list[Todo]) -> str:
    return "\n".join(f"{_MARKS[todo.status]} {todo.text}" for todo in todos) or "There are no to-dos."


class BoardTask(Struct, frozen=True, kw_only=True):
    """One task of a board; `blocked_by` has the ids of tasks that must be done before it."""

    id: str
    text: str
    status: Status = "open"
    owner: str = ""
    blocked_by: tuple[str, ...] = ()


class TaskBoard(Middleware):
    """Provides an agent with a board of tasks: `add_task`, `update_task` and `list_tasks`.

    Tasks are session values that only these tools write, one each, such as `~own:task:1-3fa9c2` (another `prefix` makes
    another board), so that calls and agents that run side by side add their own tasks, and do not undo each other's
    changes of different ones. Each change is a `Custom` event with the whole task: `{"task": {...}}`.
    """

    @checks_options
    def __init__(self, *, prefix: str = TASK, instruction: str = BOARD_INSTRUCTION) -> None:
        self._prefix = prefix
        self._instruction = instruction
        self._tools = (tool(self.add_task), tool(self.update_task), tool(self.list_tasks))

    def before_agent(self, setup: Setup) -> Setup:
        return noted(setup, self._instruction, self._tools)

    async def add_task(
        self,
        text: Annotated[str, Meta(min_length=1, max_length=2000)],
        blocked_by: Sequence[str] = (),
        owner: str = "",
    ) -> str:
        """Add a task to the board.

        Args:
            text: What to do.
            blocked_by: The ids of tasks that must be done before it.
            owner: Who does it.
        """
        tasks = self._tasks()
        if len(tasks) >= MOST:
            raise ToolError(f"The board has {MOST} tasks, which is the most it holds.")
        return self._put(tasks, BoardTask(id=_new_id(tasks), text=text, owner=owner, blocked_by=tuple(blocked_by)))

    async def update_task(
        self,
        id: str,
        status: Status | None = None,
        owner: str | None = None,
        text: Annotated[str, Meta(min_length=1, max_length=2000)] | None = None,
        blocked_by: Sequence[str] | None = None,
    ) -> str:
        """Change a task of the board; what is not given stays as it is.

        Args:
            id: Which task.
            status: How far it is; dropped if it need not be done any more.
            owner: Who does it.
            text: What to do.
            blocked_by: The ids of all tasks that must be done before it.
        """
        tasks = self._tasks()
        if id not in tasks:
            raise ToolError(f"There is no task '{id}'. There are: {', '.join(tasks) or 'none'}.")
        blockers = None if blocked_by is None else tuple(blocked_by)
        given = {"status": status, "owner": owner, "text": text, "blocked_by": blockers}
        changed = replace(tasks[id], **{name: value for name, value in given.items() if value is not None})
        if changed.status in ("in_progress", "done") and (waiting := _blockers(tasks, changed)):
            raise ToolError(f"Task '{id}' is blocked by {', '.join(waiting)}. Do these first, or change blocked_by.")
        return self._put(tasks, changed)

    async def list_tasks(self) -> str:
        """Show all tasks of the board."""
        tasks = self._tasks()
        return "\n".join(_line(tasks, task) for task in tasks.values()) or "There are no tasks."

    def _tasks(self) -> dict[str, BoardTask]:
        values, prefix = own_values(), self._prefix
        ids = [key.removeprefix(prefix) for key in values if key.startswith(prefix)]
        found = [msgspec.convert(values[prefix + each], BoardTask) for each in ids if _ID.fullmatch(each)]
        return {task.id: task for task in sorted(found, key=lambda task: (_number(task.id), task.id))}

    def _put(self, tasks: dict[str, BoardTask], task: BoardTask) -> str:
        unknown = [each for each in task.blocked_by if each not in tasks]
        if unknown:
            raise ToolError(
                f"There is no task '{unknown[0]}' to be blocked by. There are: {', '.join(tasks) or 'none'}."
            )
        tasks[task.id] = task
        if _is_circular(tasks, task):
            raise ToolError(f"Task '{task.id}' would wait for itself. Give other ids in blocked_by.")
        data: dict[str, Any] = msgspec.to_builtins(task)
        ctx = current()
        own_values()[self._prefix + task.id] = data
        ctx.emit({"task": data})
        return _line(tasks, task)


def _new_id(tasks: Iterable[str]) -> str:
    """Return the next number with a mark of this call: calls at the same time, which it cannot see, get that number."""
    number = max(map(_number, tasks), default=0) + 1
    return f"{number}-{current().idempotency_key[:6]}"


def _number(id: str) -> int:
    return int(id.partition("-")[0])


def _blockers(tasks: Mapping[str, BoardTask], task: BoardTask) -> list[str]:
    return [each for each in task.blocked_by if each in tasks and tasks[each].status not in ("done", "dropped")]


def _is_circular(tasks: Mapping[str, BoardTask], task: BoardTask) -> bool:
    seen, ahead = set[str](), list(task.blocked_by)
    while ahead:
        each = ahead.pop()
        if each not in seen:
            seen.add(each)
            ahead += tasks[each].blocked_by
    return task.id in seen


def _line(tasks: Mapping[str, BoardTask], task: BoardTask) -> str:
    waiting = _blockers(tasks, task)
    notes = [task.status, *([f"owner {task.owner}"] if task.owner else [])]
    notes += [f"blocked by {', '.join(waiting)}"] if waiting else []
    return f"{task.id}. {task.text} ({'; '.join(notes)})"
