"""The loop of a chat-model agent: think, act, think again, until it ends.

    first ─▶ think ─▶ after_thinking ─▶ end ─▶ see_end
              ▲  │ (the model called tools)
              │  ▼
              │ act ─▶ after_acting ─▶ end, or hand over ─▶ after_handoff
              └──────────────┘

`think` and `act` are steps of a graph. The methods between them decide what follows, only from the frame's state, and
one record has both; with durability "step" it is stored before the next step begins. `think` itself names the calls of
tools that run next (`_follow`).
"""

# Overrides are documented on the base class.

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from adjourn._calls.approval import check_call, must_ask
from adjourn._calls.caller import Instruction, middleware_around, with_own_ids
from adjourn._calls.model import Asking, hooked, same_start
from adjourn._calls.tool import CallResult, use
from adjourn._engine.address import parse_segment, segment_text
from adjourn._engine.child import layer
from adjourn._engine.entry import SAID
from adjourn._engine.record import Question
from adjourn._engine.scope import Action
from adjourn._parts import OURS
from adjourn._values.frozen import shorten
from adjourn.agents._frame import FULL, AgentFrame
from adjourn.agents._handoff import HandoffPlan, hand_over, reachable
from adjourn.agents._nodes import CallNode, InnerNode, call_number, call_of
from adjourn.agents._transcript import Edited, Ending, Progress, TranscriptEntry
from adjourn.errors import LimitExceeded, MaxIterationsExceeded, UsageError
from adjourn.events import BreakLoop, Exit, MessageEvent, ToolResult
from adjourn.graph._frame import HANDLED, Task
from adjourn.graph._node import Send
from adjourn.messages import Message, ToolCall
from adjourn.middleware.hooks import AgentEnd, Hooks, Last, Middleware
from adjourn.models import ModelRequest
from adjourn.runner import AgentOptions, Limits

from ._config import UNLIMITED, ChatConfig
from ._output import read_output
from ._setup import ChatKit, plain_kit, prepared_kit, transfer_tool

NOT_RUN = "This call was not run: another one ended the turn before it."


class ChatPlan(HandoffPlan):
    """What a chat-model agent does in a turn; the methods are in the order in which they are called.

    What a step returns is in the frame's state before `after_…` reads it, and one record has both. These methods decide
    from the state alone, so another process decides the same. Only the kit is not recorded: `prepare` makes it anew in
    each process, before any step runs there.
    """

    agent: ChatConfig

    def __init__(self, agent: ChatConfig) -> None:
        super().__init__(agent)
        self.instruction: Instruction = agent.made_instruction()
        self.model: InnerNode = self.add("model", self.think, self.after_thinking)
        self.tools: InnerNode = self.add("tools", self.act, self.after_acting, CallNode)
        self.add_sub_agents(agent.sub_agents)
        self.after: InnerNode = self.add("after", self.see_end, _nothing)
        self._hooks: Last[Hooks] = Last()
        self._kits: Last[ChatKit] = Last()

    # A turn begins

    def check_input(self, frame: AgentFrame, input: Any) -> None:
        if input is None and frame.parent is None and not frame.fields.values.get("entries"):
            raise UsageError(
                f"Agent '{self.name}' needs an input: text, a Message or a list of them. Nothing has been said "
                "in this session yet."
            )

    def first(self, frame: AgentFrame) -> list[Send]:
        if not self.hooks(frame).before_agent:  # Hooks may set the values that are still missing.
            self.instruction.filled(frame.read_value)  # Raises for a missing value before the turn begins.
        return super().first(frame)

    def own_turn(self, frame: AgentFrame) -> list[Send]:
        return [(self.model, None)]

    def hooks(self, frame: AgentFrame) -> Hooks:
        """Return the hooks around the agent: those of the runner and of the graphs around it, then its own."""
        turn = frame.turn
        if turn.hooks is None:
            middleware = (*middleware_around(frame, is_node=False), *self.agent.middleware)
            turn.hooks = self._hooks.of(middleware, partial(Hooks, middleware))
        return turn.hooks

    def limits(self, frame: AgentFrame) -> Limits:
        """The limits of this turn: its own, or the agent's."""
        own = frame.turn.options
        return self.agent.limits if own is None or own.limits is None else own.limits

    def _own_options(self, frame: AgentFrame) -> AgentOptions | None:
        found = frame.scope.for_agents.get(self.agent.name)
        return None if found is None else msgspec.convert(found, AgentOptions)

    async def prepare(self, frame: AgentFrame) -> bool:
        turn = frame.turn
        if turn.kit is None:
            agent, turn.options = self.agent, self._own_options(frame)
            hooks, agents = self.hooks(frame), reachable(frame)
            if hooks.before_agent:
                kit = await prepared_kit(frame, agent, self.instruction, hooks, agents)
            elif turn.options is None:
                kit = self._kits.of((hooks, *agents), partial(plain_kit, agent, hooks, agents))
            else:
                kit = plain_kit(agent, hooks, agents)
            if kit is not None and turn.options is not None:
                limits = self.limits(frame)
                kit.max_calls = limits.calls_per_answer
                kit.counts_tokens = kit.counts_tokens or limits.tokens is not None
            turn.kit = kit
        return turn.kit is not None

    # Think: ask the model once

    async def think(self, frame: AgentFrame, task: Task) -> object:
        """Ask the model, and record its answer and what follows from it."""
        agent, kit = self.agent, cast("ChatKit", frame.turn.kit)
        hooks = kit.hooks
        self._check_limits(frame)
        seen = frame.seen()
        messages = (
            await hooked(hooks.before_model, "before_model", seen, kit, agent.retry) if hooks.before_model else seen
        )
        asking = Asking(frame, kit, agent.models, agent.retry, frame.progress.model)
        answer = await asking.answer(partial(self._request, frame, messages))
        if hooks.after_model:
            # The hooks see the calls with the ids under which they will run.
            own = with_own_ids(answer, set(frame.transcript.used_ids()))
            *messages, answer = await hooked(hooks.after_model, "after_model", [*messages, own], kit, agent.retry)
            if answer != own:  # Other ids of calls alone void nothing that readers have.
                asking.check_shown(answer)
        rewritten = [] if messages is seen else self._rewritten(frame, seen, messages)
        self._conclude(frame, task, rewritten, answer, asking.model)
        return HANDLED

    def _check_limits(self, frame: AgentFrame) -> None:
        """Raise if another model call would exceed a limit.

        Raises:
            MaxIterationsExceeded, LimitExceeded: the agent can be recovered with a larger limit.
        """
        agent, progress, limits = self.agent, frame.progress, self.limits(frame)
        if progress.model_calls >= agent.max_iterations:
            raise MaxIterationsExceeded(agent.name, agent.max_iterations)
        if limits is UNLIMITED:
            return
        seconds = progress.seconds
        if limits.seconds is not None:
            now = time.monotonic()
            seconds, frame.turn.since = seconds + now - frame.turn.since, now
            frame.set_progress(seconds=seconds)
        counts = {"model_calls": progress.model_calls, "tokens": progress.tokens, "seconds": seconds}
        for name, count in counts.items():
            limit = getattr(limits, name)
            if limit is not None and count >= limit:
                raise LimitExceeded(agent.name, name, limit)

    async def _request(self, frame: AgentFrame, messages: Sequence[Message]) -> ModelRequest:
        agent, instruction = self.agent, await self._instruction(frame)
        if agent.model_input is not None:
            made: Any = agent.model_input(instruction, tuple(messages))
            sent: Any = await made if inspect.isawaitable(made) else made
            if not _are_messages(sent):
                raise UsageError(
                    f"model_input of agent '{agent.name}' returned {shorten(sent)}. Return a list of messages."
                )
        else:
            sent = (Message.system(instruction), *messages) if instruction else messages
        return ModelRequest(
            messages=sent,
            tools=frame.turn.kit.specs,
            options=self._model_options(frame),
            output=agent.output_schema,
            output_mode=agent.output_mode,
        )

    def _model_options(self, frame: AgentFrame) -> Mapping[str, Any]:
        own, turn = frame.turn.options, frame.scope.turn_options
        return turn if own is None else {**turn, **own.model_options}

    async def _instruction(self, frame: AgentFrame) -> str:
        """Return the instruction that precedes the conversation.

        It is made for each call, so values written to the session in the meantime count, with or without a pause.
        """
        kit, own = frame.turn.kit, self.instruction
        if kit.instead is not None:
            instruction = kit.instead
        else:
            text = own.filled(frame.read_value) if own.function is None else await own.called()
            instruction = kit.around(text)
        return f"{instruction}\n\n{kit.transfer}" if instruction and kit.transfer else instruction or kit.transfer

    def _rewritten(self, frame: AgentFrame, seen: list[Message], made: list[Message]) -> list[TranscriptEntry]:
        """Return an entry with the agent's view as hooks changed it, if they did."""
        if made == seen:
            return []
        # A single list is always read in the same order, so positions in the view never change. Entries that are handed
        # up to another list end up between entries of other agents.
        same = same_start(seen, made) if frame.transcript.before is None else 0
        rest = tuple(made[same:])
        return [TranscriptEntry(author=self.agent.name, turn=frame.scope.turn, seen_as=rest, seen_from=same)]

    def _conclude(
        self, frame: AgentFrame, task: Task, rewritten: list[TranscriptEntry], answer: Message, model: int
    ) -> None:
        """Write the answer to the transcript, with what follows from it."""
        transcript, before = frame.transcript, frame.progress
        message = transcript.identified(with_own_ids(answer, transcript.used_ids()))
        entries = [*rewritten, frame.entry(message)]
        progress = replace(
            before,
            model_calls=before.model_calls + 1,
            tool_calls=before.tool_calls + len(message.tool_calls),
            tokens=before.tokens + (message.usage.total_tokens if message.usage else 0),
            batch=len(transcript.entries) + len(entries) - 1,
            model=model,
        )
        frame.emit(MessageEvent(address=frame.address, message=message))
        task.sends, progress, more = self._follow(frame, message, progress)
        task.writes = [("entries", [*entries, *more], True), ("progress", progress, True)]

    def _follow(
        self, frame: AgentFrame, message: Message, progress: Progress
    ) -> tuple[list[Send] | None, Progress, list[TranscriptEntry]]:
        """Return what runs next: the tools that were called, the model again, or None if the agent ends."""
        agent, calls = self.agent, len(message.tool_calls)
        if calls:
            count = 1 if agent.is_sequential else calls
            return [(self.tools, {"number": number}) for number in range(1, count + 1)], progress, []
        value, problem = read_output(agent, agent.output_schema, message, progress.misfits)
        if problem is not None:
            reply = frame.entry(Message(role="user", content=problem, provider=OURS))
            return [(self.model, None)], replace(progress, misfits=progress.misfits + 1), [reply]
        ending = Ending(output=message.text, value=value, of="" if value is None else agent.name)
        return None, replace(progress, ending=ending), []

    def after_thinking(self, frame: AgentFrame) -> list[Send]:
        """End the agent: the model has answered without calling a tool."""
        return frame.end(frame.progress.ending or Ending())

    # Act: run the tools that the model called, one task each

    async def act(self, frame: AgentFrame, task: Task) -> object:
        """Run one call, and record its result."""
        number = call_number(task)
        call = frame.calls[number - 1]
        self._check_call_limit(frame, number)
        self._conclude_call(frame, task, call, await use(task, frame, frame.turn.kit, call))
        return HANDLED

    def check_call(self, frame: AgentFrame, task: Task, question: Question) -> None:
        """Refuse an answer about a call that could not run any more; tools that hooks add are known only to them.

        Raises:
            ProgramChanged: the tool is gone, or takes something else than was shown.
            Superseded: something else would be asked in its place.
        """
        if not self.hooks(frame).before_agent:
            transfer = [transfer_tool(agents)] if (agents := reachable(frame)) else []
            tools = {tool.name: tool for tool in (*self.agent.tools, *transfer)}
            handles = callable(self.agent.on_unknown_tool)
            given = call_of(task, frame.calls).arguments
            check_call(task.address, question, tools, given, handles_unknown=handles)

    def _check_call_limit(self, frame: AgentFrame, number: int) -> None:
        """Raise if a tool call exceeds the limit; those before it in its batch run."""
        limit = self.limits(frame).tool_calls
        if limit is not None and frame.progress.tool_calls - len(frame.calls) + number > limit:
            raise LimitExceeded(self.agent.name, "tool_calls", limit)

    def _conclude_call(self, frame: AgentFrame, task: Task, call: ToolCall, result: CallResult) -> None:
        message = Message.tool(result.content, tool_call_id=call.id, name=call.name)
        if result.error is not None:
            message = message.with_finish("error")
        entries = [frame.entry(message)]
        if result.arguments is not None:
            edited = Edited(call_id=call.id, arguments=result.arguments, by=result.by)
            entries.insert(0, TranscriptEntry(author=self.name, turn=frame.scope.turn, edited=edited))
        task.writes = [("entries", entries, True)]
        if call.name in frame.turn.kit.return_directly and result.error is None:
            # This result is emitted when all calls have results.
            if result.full is not None:
                task.write_value(FULL + call.id, result.full)
            return
        frame.emit(
            ToolResult(
                address=task.address,
                tool=call.name,
                call_id=call.id,
                result=message.text,
                error=result.error,
                full=result.full,
            )
        )

    def after_acting(self, frame: AgentFrame) -> list[Send]:
        """Return what follows when calls have results: another call, a tool's action, a direct result or the model."""
        agent, kit, action = self.agent, frame.turn.kit, frame.turn.next_action()
        if action is None and not agent.is_sequential and not kit.return_directly:
            self._pass_on(frame)
            return [(self.model, None)]
        answered = self._answered(frame)
        left = [number for number, call in enumerate(frame.calls, 1) if call.id not in answered]
        if action is None and agent.is_sequential and left:
            return [(self.tools, {"number": left[0]})]
        direct = self._direct(frame, answered)
        # The first one is emitted last: it is the agent's result.
        for result in reversed(direct):
            frame.emit(self._result_event(frame, result))
        if action is not None:
            said = self._last_text(frame)
            frame.transcript.extend([self._not_run(frame, number) for number in left])
            self._pass_on(frame)
            return self._do(frame, action, said)
        self._pass_on(frame)
        return frame.end(Ending(output=direct[0].text)) if direct else [(self.model, None)]

    def take_values(self, frame: AgentFrame, values: Mapping[str, Any]) -> Mapping[str, Any]:
        said = [key for key in values if key.startswith(SAID)]
        if not said:
            return values
        frame.set_progress(said=(*frame.progress.said, *(values[key] for key in said)))
        return {key: value for key, value in values.items() if key not in said}

    def _pass_on(self, frame: AgentFrame) -> None:
        """Add what people said together with their answers, after the results of the calls."""
        if frame.progress.said:
            frame.transcript.extend([frame.entry(message, "") for message in frame.progress.said])
            frame.set_progress(said=())

    def _answered(self, frame: AgentFrame) -> dict[str, Message]:
        """Return the results of the batch so far by call id, in call order."""
        entries = frame.transcript.entries[frame.progress.batch + 1 :]
        said = [entry.message for entry in entries if entry.message is not None and entry.message.role == "tool"]
        found = {message.tool_call_id: message for message in said}
        return {call.id: found[call.id] for call in frame.calls if call.id in found}

    def _not_run(self, frame: AgentFrame, number: int) -> TranscriptEntry:
        call = frame.calls[number - 1]
        return frame.entry(Message.tool(NOT_RUN, tool_call_id=call.id, name=call.name))

    def _direct(self, frame: AgentFrame, answered: Mapping[str, Message]) -> list[Message]:
        """Return the results of direct tools, the first of which is the agent's; failed calls are left to the model."""
        names = frame.turn.kit.return_directly
        return [each for each in answered.values() if each.name in names and each.finish_reason != "error"]

    def _result_event(self, frame: AgentFrame, result: Message) -> ToolResult:
        call_id = result.tool_call_id or ""
        address = f"{frame.address};{segment_text('tool', result.name or '', call_id)}"
        full = frame.turn.fulls.pop(call_id, None)
        return ToolResult(address=address, tool=result.name or "", call_id=call_id, result=result.text, full=full)

    def _last_text(self, frame: AgentFrame) -> str:
        entries = frame.transcript.entries
        return next((entry.message.text for entry in reversed(entries) if entry.message and entry.author), "")

    # Actions of tools: exit, break a loop, hand over

    def _do(self, frame: AgentFrame, action: Action, said: str) -> list[Send]:
        match action.name:
            case "exit":
                result = action.arguments["result"]
                frame.emit(Exit(address=frame.address, result=result))
                return frame.end(Ending(output=result, action="exit"))
            case "break_loop":
                frame.emit(BreakLoop(address=frame.address))
                return frame.end(Ending(output=said, action="break_loop"))
            case _:
                return hand_over(frame, action.arguments["target"])

    # End

    def last(self, frame: AgentFrame, ending: Ending) -> list[Send]:
        if self.agent.output_key is not None and ending.action != "transfer":
            frame.merge_values({self.agent.output_key: ending.output})
        return [(self.after, None)] if frame.turn.kit is not None and frame.turn.kit.hooks.after_agent else []

    async def see_end(self, frame: AgentFrame, task: Task) -> object:
        """Call the hooks that see how the agent ended."""
        ending = frame.progress.ending or Ending()
        messages = tuple(frame.seen())
        end = AgentEnd(agent=self.agent.name, output=ending.output, action=ending.action, messages=messages)
        for middleware in reversed(frame.turn.kit.hooks.after_agent):

            async def run(middleware: Middleware = middleware) -> None:
                found: Any = middleware.after_agent(end)
                if inspect.isawaitable(found):
                    await found

            await layer("middleware", middleware.name, run, part=f"after_agent:{middleware.name}")
        frame.end_hooks()
        return HANDLED

    # Restoring from a record, pausing and cancelling

    def task_at(self, frame: AgentFrame, segment: str) -> Task | None:
        wanted = parse_segment(segment).sub_id if segment.startswith("tool:") else None
        number = None if wanted is None else self._call_numbers(frame).get(wanted)
        return None if number is None else Task(frame, self.tools, number, {"number": number})

    def _call_numbers(self, frame: AgentFrame) -> dict[str, int]:
        """Return the numbers of the calls that are being answered, by their ids."""
        calls, turn = frame.calls, frame.turn
        if turn.numbered is None or turn.numbered[0] is not calls:
            turn.numbered = (calls, {call.id: number for number, call in enumerate(calls, 1)})
        return turn.numbered[1]

    def is_pausing(self, frame: AgentFrame) -> bool:
        return frame.tasks[0].node is self.tools and all(self._asks_first(frame, task) for task in frame.tasks)

    def _asks_first(self, frame: AgentFrame, task: Task) -> bool:
        """Return whether a person will be asked about a call before any user code runs."""
        tool = frame.turn.kit.tools.get(call_of(task, frame.calls).name)
        return tool is not None and must_ask(frame, tool)

    def stops_before(self, frame: AgentFrame, tasks: list[Task]) -> bool:
        # Between two steps of an agent, either its model or its tools have just answered.
        mode, node = frame.scope.cancellation.mode, tasks[0].node if tasks else self.model
        if mode == "after_model":
            return node is self.tools
        return node is not self.tools if mode == "after_tools" else True


def _are_messages(given: object) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(each, Message) for each in cast("list[object]", given))


def _nothing(frame: AgentFrame) -> list[Send]:
    return []
