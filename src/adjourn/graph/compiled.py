"""The compiled graph: a program, and the runner of itself."""

from __future__ import annotations

from typing import Any

from adjourn.core.child import run_child
from adjourn.core.errors import GraphInterrupted, ShapeChanged, UsageError
from adjourn.core.frame import here
from adjourn.core.record import GraphImage, Image
from adjourn.core.scope import Frame, Scope
from adjourn.messages import Message
from adjourn.runner import Options, Runner

from .cache import ResultCache
from .commands import START
from .draw import draw, draw_text
from .frame import GraphFrame
from .schema import Schema
from .spec import NodeSpec

__all__ = ["CompiledGraph", "Options"]


class CompiledGraph(Runner):
    """A graph that is ready to run. It holds no run's data: any number of runs at once, from any loop and thread."""

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
        self._name = name
        self.schema = Schema(schema)
        self.specs: dict[str, NodeSpec] = {}
        self.start = NodeSpec(START, -1, "inline")
        self.halts = False
        self.defers = False
        self.max_steps = max_steps
        self.step_timeout = step_timeout
        self.node_timeout = node_timeout
        self.results = ResultCache()
        super().__init__(self, **options)

    @property
    def name(self) -> str:
        """The name in addresses."""
        return self._name

    def __repr__(self) -> str:
        return f"<graph {self.name}: {', '.join(self.specs)}>"

    def open(self, scope: Scope, parent: Frame | None, segment: str, image: Image | None) -> GraphFrame:
        """A frame for this graph, from its stored image if there is one."""
        frame = GraphFrame(self, scope, parent, segment)
        if image is None:
            return frame
        if not isinstance(image, GraphImage):
            raise ShapeChanged(frame.address, f"what stands there is no graph, as '{self.name}' is")
        frame.restore(image)
        return frame

    def text_input(self, input: Any) -> dict[str, Any]:
        """A text or message as the state's `user_input`."""
        text = input.text if isinstance(input, Message) else input
        if not isinstance(text, str) or "user_input" not in self.schema.channels:
            raise UsageError(
                f"Graph '{self.name}' takes a mapping of its state as input, not a {type(input).__name__}."
            )
        return {"user_input": text}

    async def invoke(self, state: Any = None, *, session_id: str | None = None, **options: Any) -> Any:
        """Run the graph and return its final state.

        Inside a run, without a session id, it joins that run as a child: its pause is the caller's pause.

        Raises:
            GraphInterrupted: it paused (on its own, not as a child).
        """
        at = here.get()
        if at is not None and session_id is None:
            final = await run_child(at, self, state, None)
            return final if self.schema.cls is None else self.schema.build(final)
        result = await self.run(state, session_id=session_id, **options)
        if result.status == "interrupted":
            raise GraphInterrupted(result.session_id, result.interrupts)
        return result.state

    def draw(self, format: str = "mermaid") -> str:
        """The graph as a Mermaid diagram, or with `format="text"` as lines for a terminal."""
        if format not in ("mermaid", "text"):
            raise UsageError(f"draw(format={format!r}): use 'mermaid' or 'text'.")
        return draw(self) if format == "mermaid" else draw_text(self)
