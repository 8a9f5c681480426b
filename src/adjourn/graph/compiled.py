"""Compiled graphs: programs that are also their own runners."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Unpack

from adjourn._engine.child import run_child
from adjourn._engine.entry import current_place
from adjourn._engine.program import Program
from adjourn._engine.record import GraphImage, Image
from adjourn._engine.scope import Frame, Scope
from adjourn._generics import State_co
from adjourn._habits import explains_options
from adjourn._values.damage import Reading
from adjourn.errors import GraphInterrupted, ProgramChanged, UsageError
from adjourn.middleware.hooks import Middleware
from adjourn.runner import Options, Runner, TurnOptions
from adjourn.sessions._sync import sync_twin

from ._breakpoints import breakpoints
from ._frame import GraphFrame, Task, read_input
from ._node import Plan
from ._wrapping import run_wrapped
from .commands import Overwrite
from .draw import draw, notebook
from .nodes.program import ProgramNode
from .schema import Schema

__all__ = ["CompiledGraph", "Options"]


class CompiledGraph(Plan, Runner[Any, None, State_co], Program[Any, None, State_co, State_co]):
    """A graph that is ready to run.

    It holds no data of any run, so any number of runs can share it, from any event loop or thread.
    """

    kind = "runnable"
    has_hooks = True
    name: str

    def __init__(
        self,
        name: str,
        schema: Any,
        *,
        max_steps: int,
        step_timeout: float | None,
        run_timeout: float | None,
        check_updates: bool,
        options: Options,
    ) -> None:
        Plan.__init__(
            self, name, Schema(schema), max_steps=max_steps, step_timeout=step_timeout, run_timeout=run_timeout
        )
        if not check_updates:
            self.schema.skip_checks()
        Runner.__init__(self, self, **options)
        self.middleware: tuple[Any, ...] = self._live.settings.program.middleware

    def __repr__(self) -> str:
        return f"<graph {self.name}: {', '.join(self.nodes)}>"

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> GraphFrame:
        """Return a frame for this graph, restored from its stored image if there is one."""
        return self.open_as(GraphFrame, scope, parent, segment, image)

    def open_as(
        self, kind: type[GraphFrame], scope: Scope, parent: Frame | None, segment: str, image: Image | None
    ) -> GraphFrame:
        """Return a frame of this kind for this graph."""
        frame = kind(self, scope, parent, segment)
        if image is None:
            return frame
        if not isinstance(image, GraphImage):
            raise ProgramChanged(frame.address, f"what is stored there is not a graph, but '{self.name}' is")
        with Reading(scope.session_id):
            frame.restore(image)
        return frame

    def is_pausing(self, frame: GraphFrame) -> bool:
        """Return whether the graph pauses next at a breakpoint."""
        return self.has_breakpoints and not frame.questions and any(breakpoints(frame))

    def run_wrapped(self, task: Task, hooks: tuple[Middleware, ...]) -> Awaitable[Any]:
        """Make one attempt at a task inside these hooks."""
        return run_wrapped(task, hooks)

    def option_names(self) -> dict[str, str]:
        """Return the agents among its nodes and those of its subgraphs that can have options of their own in a turn."""
        programs = [node.program for node in self.nodes.values() if isinstance(node, ProgramNode)]
        return {name: own for program in programs for name, own in program.option_names().items()}

    def comparable_input(self, input: Any) -> Any:
        """Return input in a form that is storable, and equal for equal input."""
        if not isinstance(input, Mapping) and (self.schema.cls is None or not isinstance(input, self.schema.cls)):
            return input
        update = read_input(self, input).items()
        return {name: ["~overwrite", value.value] if type(value) is Overwrite else value for name, value in update}

    def convert_product(self, product: Any) -> State_co:
        """Return the state as nodes read it."""
        return product if self.schema.cls is None else self.schema.build(product)

    @explains_options
    async def invoke(
        self,
        state: Any = None,
        *,
        session_id: str | None = None,
        raises: Sequence[type[Exception]] = (),
        **options: Unpack[TurnOptions],
    ) -> State_co:
        """Run the graph and return its final state.

        Inside another run and without a session id, it joins that run as a child: if it pauses, the caller pauses.
        `raises` names the exceptions of such a child after which the caller may ask a person, as in `@once`.

        Raises:
            GraphInterrupted: it paused, and is not running as a child.
        """
        at = current_place.get()
        if at is not None and session_id is None:
            if options:
                raise UsageError(
                    f"'{at.address}' invokes '{self.name}' as a part of its own run, which has no {', '.join(options)} "
                    "for it. Leave them out, or give it a session_id to run it independently."
                )
            return await run_child(at, self, state, raises=raises)
        result = await self.run(state, session_id=session_id, **options)
        if result.status == "interrupted":
            raise GraphInterrupted(result.session_id, result.interrupts)
        return result.state

    @sync_twin(invoke)
    def invoke_sync(self) -> None:
        """Do what `invoke` does, from sync code."""

    def clear_cache(self, node: str | None = None) -> None:
        """Forget the cached results of a node, or of all nodes of this graph; subgraphs have caches of their own.

        Raises:
            UsageError: the graph has no such node.
        """
        if node is not None and node not in self.nodes:
            raise UsageError(f"clear_cache({node!r}): graph '{self.name}' has the nodes: {', '.join(self.nodes)}.")
        self.results.clear(node)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Draw the graph in a notebook."""
        return notebook(self.draw)

    def draw(self, format: str = "mermaid") -> str:
        """Return the graph as a Mermaid diagram, as DOT source (`format="dot"`) or as lines for a terminal ("text").

        `format="svg"` runs Graphviz's `dot`, which must be installed.
        """
        return draw(self, format)
