"""Compiled graphs: programs that are also their own runners."""

from __future__ import annotations

from typing import Any

from adjourn._engine.child import run_child
from adjourn._engine.frame import current_place
from adjourn._engine.record import GraphImage, Image
from adjourn._engine.scope import Frame, Scope
from adjourn._values.damage import Reading
from adjourn.errors import GraphInterrupted, ProgramChanged
from adjourn.runner import Options, Runner

from ._node import Plan
from ._supersteps import GraphFrame
from .draw import draw
from .schema import Schema

__all__ = ["CompiledGraph", "Options"]


class CompiledGraph(Plan, Runner):
    """A graph that is ready to run.

    It holds no data of any run, so any number of runs can share it, from any event loop or thread.
    """

    kind = "runnable"

    def __init__(
        self,
        name: str,
        schema: Any,
        *,
        max_steps: int,
        step_timeout: float | None,
        node_timeout: float | None,
        options: Options,
    ) -> None:
        Plan.__init__(
            self, name, Schema(schema), max_steps=max_steps, step_timeout=step_timeout, node_timeout=node_timeout
        )
        Runner.__init__(self, self, **options)

    def __repr__(self) -> str:
        return f"<graph {self.name}: {', '.join(self.nodes)}>"

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> GraphFrame:
        """Return a frame for this graph, restored from its stored image if there is one."""
        frame = GraphFrame(self, scope, parent, segment)
        if image is None:
            return frame
        if not isinstance(image, GraphImage):
            raise ProgramChanged(frame.address, f"what is stored there is not a graph, but '{self.name}' is")
        with Reading(scope.session_id):
            frame.restore(image)
        return frame

    async def invoke(self, state: Any = None, *, session_id: str | None = None, **options: Any) -> Any:
        """Run the graph and return its final state.

        Inside another run and without a session id, it joins that run as a child: if it pauses, the caller pauses.

        Raises:
            GraphInterrupted: it paused, and is not running as a child.
        """
        at = current_place.get()
        if at is not None and session_id is None:
            final = await run_child(at, self, state, None)
            return final if self.schema.cls is None else self.schema.build(final)
        result = await self.run(state, session_id=session_id, **options)
        if result.status == "interrupted":
            raise GraphInterrupted(result.session_id, result.interrupts)
        return result.state

    def draw(self, format: str = "mermaid") -> str:
        """Return the graph as a Mermaid diagram, as DOT source (`format="dot"`) or as lines for a terminal ("text").

        `format="svg"` runs Graphviz's `dot`, which must be installed.
        """
        return draw(self, format)
