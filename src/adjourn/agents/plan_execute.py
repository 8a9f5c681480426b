"""PlanExecute: make a plan, do its first step and revise the plan, until there is an answer."""

# Overrides are documented on the base class.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from adjourn._generics import Deps_contra
from adjourn._habits import checks_options
from adjourn._text import counted
from adjourn.errors import UsageError
from adjourn.events import MessageEvent
from adjourn.graph._node import Node, Send
from adjourn.messages import Message
from adjourn.models import ChatModel

from ._frame import AgentFrame, AgentPlan
from ._transcript import Ending
from .agent import Agent
from .chat import ChatModelAgent

_NAMES = re.compile(r"\{(goal|plan|step|done)\}")


class Plan(Struct, frozen=True, kw_only=True):
    """The steps that lead to the goal, in order."""

    steps: list[str]


class Replan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is left to do; or, when nothing is, the answer for the user."""

    steps: list[str] = []
    response: str | None = None


class Prompts(Struct, frozen=True, kw_only=True):
    """The prompts of the three agents; `{goal}`, `{plan}`, `{step}` and `{done}` are filled in."""

    plan: str = "Make a short plan for this goal, as steps that each can be done and checked:\n{goal}"
    execute: str = "The goal is: {goal}\nThe plan is:\n{plan}\nDone so far:\n{done}\nNow do this step: {step}"
    replan: str = (
        "The goal is: {goal}\nThe plan was:\n{plan}\nDone so far:\n{done}\n"
        "If the goal is reached, respond to the user. Else give the steps that are left."
    )


class _Work(Struct, frozen=True, kw_only=True):
    """The progress of a plan, kept in a session value."""

    goal: str
    steps: list[str] = []
    done: list[list[str]] = []


class _Steps(AgentPlan):
    """Planner, executor and replanner; the methods are in the order in which they are called."""

    prompts = True

    def __init__(self, agent: PlanExecute) -> None:
        super().__init__(agent)
        self._options = agent
        self.planner = self.add_member(agent.planner, self.after_planning)
        self.executor = self.add_member(agent.executor, self.after_executing)
        self.replanner = self.add_member(agent.replanner, self.after_replanning)

    def first(self, frame: AgentFrame) -> list[Send]:
        prompt = frame.view.last_prompt(frame.transcript.sources)
        self._keep(frame, _Work(goal="" if prompt is None else prompt.text))
        return self._ask(frame, self.planner, self._options.prompts.plan)

    def after_planning(self, frame: AgentFrame) -> list[Send]:
        """Do the first step of the plan when the planner has ended."""
        ending = frame.ending_of(self._options.planner.name)
        if ending.action is not None:
            return frame.end(replace(ending, trail=()))
        steps, text = _answer(ending)
        if text is not None and not steps:
            steps = [text]  # An agent that only returns text makes a plan of one step.
        if not steps:
            return self._ask(frame, self.replanner, self._options.prompts.replan)  # Perhaps there is nothing to plan.
        return self._go_on(frame, steps, None)

    def after_executing(self, frame: AgentFrame) -> list[Send]:
        """Revise the plan when a step is done."""
        ending = frame.ending_of(self._options.executor.name)
        if ending.action is not None:
            return frame.end(replace(ending, trail=()))
        work = self._work(frame)
        self._keep(frame, replace(work, done=[*work.done, [work.steps[0], ending.output]]))
        frame.set_progress(rounds=frame.progress.rounds + 1)
        return self._ask(frame, self.replanner, self._options.prompts.replan)

    def after_replanning(self, frame: AgentFrame) -> list[Send]:
        """Continue with the new plan, or end with the answer."""
        ending = frame.ending_of(self._options.replanner.name)
        if ending.action is not None:
            return frame.end(replace(ending, trail=()))
        return self._go_on(frame, *_answer(ending))

    def _go_on(self, frame: AgentFrame, steps: list[str], response: str | None) -> list[Send]:
        """Do the first of these steps, or end."""
        work = replace(self._work(frame), steps=steps)
        self._keep(frame, work)
        last = work.done[-1][1] if work.done else ""
        if response is not None or not steps:
            return self._respond(frame, response or last)
        if frame.progress.rounds >= self._options.max_iterations:
            text = f"Stopped after {counted(frame.progress.rounds, 'step')}, with {len(steps)} still to do."
            return self._respond(frame, f"{text} The last one gave: {last}")
        return self._ask(frame, self.executor, self._options.prompts.execute)

    def _respond(self, frame: AgentFrame, text: str) -> list[Send]:
        """End with an answer as a separate message, since the messages of the three agents are JSON."""
        if text:
            message = frame.transcript.identified(Message.assistant(text))
            frame.transcript.extend([frame.entry(message)])
            frame.emit(MessageEvent(address=frame.address, message=message))
        return frame.end(Ending(output=text))

    def _ask(self, frame: AgentFrame, node: Node, prompt: str) -> list[Send]:
        work = self._work(frame)
        filled = {
            "goal": work.goal,
            "plan": "\n".join(f"{number}. {step}" for number, step in enumerate(work.steps, 1)),
            "step": work.steps[0] if work.steps else "",
            "done": "\n".join(f"- {step}: {result}" for step, result in work.done) or "nothing",
        }
        frame.transcript.extend([frame.entry(Message.user(_filled(prompt, filled)))])
        return [(node, None)]

    def _key(self) -> str:
        return f"~work:{self.name}"

    def _work(self, frame: AgentFrame) -> _Work:
        return msgspec.convert(frame.read_value(self._key()), _Work)

    def _keep(self, frame: AgentFrame, work: _Work) -> None:
        frame.merge_values({self._key(): msgspec.to_builtins(work)})
        frame.scope.mark(frame)


class PlanExecute(Agent[Deps_contra, Any]):
    """An agent made of three: `planner`, `executor` and `replanner`, each a model or an agent.

    The `output_type` of a planner has `steps` (or is a list of them), that of a replanner `steps` or a `response`;
    each step may be of any type. It ends when the replanner responds or leaves no steps, or after `max_iterations`
    steps with the last result.
    """

    @checks_options
    def __init__(
        self,
        name: str,
        *,
        planner: str | ChatModel | Agent[Deps_contra, Any],
        executor: str | ChatModel | Agent[Deps_contra, Any],
        replanner: str | ChatModel | Agent[Deps_contra, Any],
        max_iterations: int = 10,
        description: str = "",
        prompts: Prompts | None = None,
    ) -> None:
        """Make an agent of three.

        name: used in addresses and records; it must be unique in the agent's tree.
        planner: the model or agent that makes the plan.
        executor: the model or agent that carries out a step.
        replanner: the model or agent that revises the plan, or ends with the answer.
        max_iterations: how many steps are carried out at most; 10 by default.
        description: describes this agent to other agents that can hand over to it or call it.
        prompts: what the three are told, with names in braces that are filled in.
        """
        if max_iterations < 1:
            raise UsageError(f"PlanExecute '{name}': max_iterations={max_iterations}. Give 1 or more.")
        self.name = name
        self.description = description
        self.max_iterations = max_iterations
        self.prompts: Prompts = prompts or Prompts()
        self.planner: Agent = _agent(planner, f"{name}_planner", Plan)
        self.executor: Agent = _agent(executor, f"{name}_executor", None)
        self.replanner: Agent = _agent(replanner, f"{name}_replanner", Replan)

    @property
    def agents(self) -> Sequence[Agent]:
        return (self.planner, self.executor, self.replanner)

    def make_plan(self) -> AgentPlan:
        return _Steps(self)


def _agent(given: Any, name: str, output: Any) -> Agent:
    if not isinstance(given, Agent):
        return ChatModelAgent(name, model=given, output_type=output)
    if output is not None and isinstance(given, ChatModelAgent) and not _may_plan(given.output_schema):
        raise UsageError(
            f"'{given.name}' has no output_type with steps, so it cannot return a plan. Give it one with a list called "
            f"`steps`, such as {output.__name__}."
        )
    return cast("Agent", given)


def _may_plan(schema: dict[str, Any] | None) -> bool:
    if schema is None:
        return False
    if "$ref" in schema:
        schema = cast("dict[str, Any]", schema["$defs"][schema["$ref"].rpartition("/")[2]])
    # A type that is not an object, such as a list or a union, is the `value` of one.
    return not {"steps", "value"}.isdisjoint(schema.get("properties", ()))


def _answer(ending: Ending) -> tuple[list[str], str | None]:
    """Return the steps and the response in an ending; anything that is not a plan is a response."""
    value: Any = ending.output if ending.value is None else ending.value
    if isinstance(value, list):
        return list(map(_text, cast("list[Any]", value))), None
    data = cast("dict[str, Any]", value if isinstance(value, dict) else {"response": value})
    response = data.get("response")
    # Models do not leave fields out: an empty response is none.
    return list(map(_text, data.get("steps") or ())), None if response is None else _text(response) or None


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _filled(prompt: str, values: dict[str, str]) -> str:
    """Return the prompt with its names filled in, in one pass: text of a model is never a template."""
    return _NAMES.sub(lambda found: values[found.group(1)], prompt)
