"""Policies: what rules decide, for whom, and that nothing of one agent, session or runner leaks into another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel

from adjourn import Approve, ChatModelAgent, Edit, GraphAgent, Message, Runner, ToolCall, UsageError, tool
from adjourn.agents import DeepAgent, Supervisor
from adjourn.errors import GraphError
from adjourn.graph import START, MessagesState, StateGraph
from adjourn.middleware import ApprovalPolicy, ApprovalRule, Middleware, RedactPII
from adjourn.middleware.hooks import Setup, ToolCallable, ToolRequest
from adjourn.stores import Store
from adjourn.testing import ScriptedModel
from adjourn.tools import PathPattern, reviewed

deleted: list[str] = []


@pytest.fixture(autouse=True)
def nothing_deleted() -> None:
    deleted.clear()


@tool
def delete_file(path: str) -> str:
    """Delete a file."""
    deleted.append(path)
    return "deleted"


POLICY = ApprovalPolicy(
    [
        ApprovalRule(tool="delete_*", arguments={"path": PathPattern("/tmp/**")}, action="allow"),
        ApprovalRule(tool="delete_*", arguments={"path": PathPattern("/etc/**")}, action="deny", reason="not yours"),
        ApprovalRule(tool="delete_*", action="ask"),
    ]
)


def test_rules_are_not_replaced_behind_tools_that_they_guard_already() -> None:
    policy = ApprovalPolicy([])
    with pytest.raises(AttributeError):
        setattr(policy, "rules", (ApprovalRule(tool="delete_file", action="ask"),))  # noqa: B010  # type checkers refuse it


def call(path: str) -> ToolCall:
    return ToolCall(id="c1", name="delete_file", arguments={"path": path})


def agent(path: str, *middleware: Any, name: str = "A") -> ChatModelAgent:
    model = ScriptedModel([call(path), "done"])
    return ChatModelAgent(name, model=model, tools=[delete_file], middleware=middleware)


def graph(path: str, *middleware: Any, name: str = "A", **options: Any) -> Any:
    """A graph with a tools node of the given name."""

    def says(state: Any) -> dict[str, Any]:
        return {"messages": [Message.assistant("", tool_calls=[call(path)])]}

    made = StateGraph(MessagesState, name="g").add_node("says", says)
    made.add_tools_node(name, [delete_file], middleware=middleware)
    return made.add_edge(START, "says").add_edge("says", name).compile(**options)


OUTSIDE = [
    "/tmp/../etc/passwd",
    "/tmp/./../etc/passwd",
    "/tmp//../etc/passwd",
    "/tmp/%2e%2e/etc/passwd",
    "/tmp/..\\etc",
    "/tmp/\x00/../etc",
    "../etc/passwd",
    "/TMP/../etc",
    "/Etc/passwd",
]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_no_path_leads_out_of_what_is_allowed(path: str) -> None:
    result = await Runner(agent(path, POLICY)).run("go")
    assert ("not yours" in result.messages[2].text, deleted) == (True, [])


@pytest.mark.parametrize(("path", "status"), [("/tmp/a", "done"), ("/home/a", "interrupted")])
async def test_what_is_allowed_runs_and_the_rest_is_asked_about(path: str, status: str) -> None:
    assert (await Runner(agent(path, POLICY)).run("go")).status == status


ASKS = [ApprovalRule(tool="delete_file", action="ask")]


async def test_a_policy_that_one_agent_has_used_still_asks_for_a_node_of_its_name(store: Store) -> None:
    policy = ApprovalPolicy(ASKS)
    paused = await Runner(agent("/x", policy), store=store).run("go", session_id="one")
    assert paused.status == "interrupted"
    second = await graph("/x", policy, store=store).run({}, session_id="two")
    third = await Runner(GraphAgent("A", graph("/x"), middleware=[policy]), store=store).run("go", session_id="three")
    assert ([second.status, third.status], deleted) == (["interrupted", "interrupted"], [])


async def test_it_asks_each_time_and_keeps_nothing(store: Store) -> None:
    policy = ApprovalPolicy(ASKS)
    before = dict(vars(policy))
    for number in range(3):
        runner = Runner(agent("/x", policy), store=store)
        asked = (await runner.run("go", session_id=f"s{number}")).interrupts
        await runner.resume(f"s{number}", {asked[0].id: True})
    assert (len(deleted), vars(policy)) == (3, before)


class Redirects(Middleware):
    """Deletes something else."""

    async def wrap_tool(self, call: ToolCallable, request: ToolRequest) -> Any:
        return await call(replace(request, arguments={"path": "/home/ann"}))


async def test_a_wrapper_cannot_change_what_a_policy_had_approved_in_a_graph(store: Store) -> None:  # rule T1
    made = graph("/x", ApprovalPolicy(ASKS), Redirects(), store=store)
    asked = (await made.run({}, session_id="s")).interrupts
    result = await made.resume("s", {asked[0].id: True})
    assert ("a person has to approve" in result.state["last_tool_response"], deleted) == (True, [])


@pytest.mark.parametrize("others", [(), (ApprovalPolicy([ApprovalRule(action="allow")]),)])
async def test_no_wrapper_makes_a_denied_call_of_one_that_is_not(others: Any) -> None:  # rule T9
    deny = ApprovalPolicy([ApprovalRule(arguments={"path": "/home/*"}, action="deny", reason="not yours")])
    result = await Runner(agent("/x", *others, deny, Redirects())).run("go")
    assert ([each.text for each in result.messages if each.role == "tool"], deleted) == (["Error: not yours"], [])


async def test_the_first_of_two_policies_has_the_last_word() -> None:
    allows = ApprovalPolicy([ApprovalRule(action="allow")])
    assert (await Runner(agent("/x", allows, ApprovalPolicy(ASKS))).run("go")).status == "done"
    assert (await Runner(agent("/x", ApprovalPolicy(ASKS), allows)).run("go")).status == "interrupted"


MISNAMED = [ApprovalRule(tool="delete_file", arguments={"pth": "/etc/*"}, action="deny")]
MISNAMED_ALL = [ApprovalRule(tool="delete_*", arguments={"pth": "/etc/*"}, action="deny")]


@pytest.mark.parametrize("rules", [MISNAMED, MISNAMED_ALL], ids=["name", "pattern"])
async def test_a_rule_that_can_never_apply_is_refused(rules: list[ApprovalRule]) -> None:
    with pytest.raises(UsageError, match=r"names the arguments pth.*delete_file: path"):
        await Runner(agent("/x", ApprovalPolicy(rules))).run("go")
    with pytest.raises((UsageError, GraphError), match="names the arguments pth"):
        graph("/x", ApprovalPolicy(rules))


async def test_a_policy_of_the_runner_is_refused_by_the_name_of_a_tool() -> None:
    with pytest.raises(UsageError, match="names the arguments pth"):
        await Runner(agent("/x"), middleware=[ApprovalPolicy(MISNAMED)]).run("go")
    # Another agent of the same runner may have such a tool.
    assert (await Runner(agent("/x"), middleware=[ApprovalPolicy(MISNAMED_ALL)]).run("go")).status == "done"


async def test_a_tool_that_takes_anything_has_every_argument() -> None:
    async def send(**arguments: Any) -> str:
        return "sent"

    made = tool(send, schema={"type": "object"})
    policy = ApprovalPolicy([ApprovalRule(tool="send", arguments={"to": "eve"}, action="deny")])
    sends = ToolCall(id="c1", name="send", arguments={"to": "eve"})
    result = await Runner(
        ChatModelAgent("A", model=ScriptedModel([sends, "done"]), tools=[made], middleware=[policy])
    ).run("go")
    assert "not allowed" in result.messages[2].text


# Values and types


class Person(Struct):
    name: str
    iban: str | None = None


@tool
def pay(
    to: Person,
    euros: Decimal = Decimal(1),
    share: float = 1.0,
    count: int = 1,
    tags: tuple[str, ...] = (),
    fast: bool = False,
) -> str:
    """Pay."""
    deleted.append(to.name)
    return "paid"


BOB = {"name": "bob"}


def payer(rule: ApprovalRule, arguments: dict[str, Any]) -> Runner:
    model = ScriptedModel([ToolCall(id="c1", name="pay", arguments={"to": BOB, **arguments}), "done"])
    return Runner(ChatModelAgent("A", model=model, tools=[pay], middleware=[ApprovalPolicy([rule])]))


MATCHES: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"share": 100}, {"share": 100.0}, True),
    ({"share": 100}, {"share": 100}, True),
    ({"share": Decimal("0.1")}, {"share": 0.1}, True),
    ({"count": 100.0}, {"count": 100}, True),
    ({"count": 1}, {"count": 2}, False),
    ({"euros": 100}, {"euros": "100.00"}, True),
    ({"euros": 100.0}, {"euros": 100}, True),
    ({"euros": Decimal(100)}, {"euros": "1e2"}, True),
    ({"euros": 0.1}, {"euros": "0.10"}, True),
    ({"euros": 100}, {"euros": "100.01"}, False),
    ({"to": BOB}, {}, True),
    ({"to": {**BOB, "iban": "X"}}, {}, False),
    ({"to": {"iban": "X"}}, {"to": {**BOB, "iban": "X"}}, True),
    ({"to": {"iban": "X"}}, {"to": {**BOB, "iban": "Y"}}, False),
    ({"tags": ["a", "b"]}, {"tags": ["a", "b"]}, True),
    ({"tags": ["a"]}, {"tags": ["a", "b"]}, False),
]


@pytest.mark.parametrize(("pattern", "arguments", "matches"), MATCHES)
async def test_rules_compare_by_value(pattern: dict[str, Any], arguments: dict[str, Any], matches: bool) -> None:
    # rule T9
    result = await payer(ApprovalRule(tool="pay", arguments=pattern, action="deny"), arguments).run("go")
    assert ("not allowed" in result.messages[2].text, deleted) == (matches, [] if matches else ["bob"])


class Order(BaseModel):
    total: Decimal
    due: datetime | None = None


def denies(kind: Any, wanted: Any, given: Any, *, action: Any = "deny") -> Runner:
    """A runner of an agent that calls a tool with an argument of a kind, with a rule about it."""

    def send(it: Any) -> str:
        deleted.append("sent")
        return "sent"

    send.__annotations__["it"] = kind
    model = ScriptedModel([ToolCall(id="c1", name="send", arguments={"it": given}), "done"])
    policy = ApprovalPolicy([ApprovalRule(tool="send", arguments={"it": wanted}, action=action)])
    return Runner(ChatModelAgent("A", model=model, tools=[tool(send, description="Send.")], middleware=[policy]))


ID = "abcdefab-1234-4234-8234-abcdefabcdef"
OTHERWISE: list[tuple[Any, Any, Any]] = [
    (UUID, ID.upper(), ID),
    (UUID, UUID(ID), ID.upper()),
    (datetime, "2024-01-01T00:00:00+00:00", "2024-01-01T00:00:00Z"),
    (datetime, datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T02:00:00+02:00"),
    (timedelta, "PT24H", "P1D"),
    (Order, {"due": "2024-01-01T00:00:00+00:00"}, {"total": "1", "due": "2024-01-01T00:00:00Z"}),
    (Order, {"total": 100}, {"total": "100.00"}),
    (list[Decimal], [100], ["100.00"]),
    (set[str], ["b", "a"], ["a", "b"]),
    (set[str], {"b", "a"}, ["a", "b"]),
    (Person, Person("bob"), {"name": "bob"}),
    (int | str, "100", 100),
    (int | str, "1*", 100),
    (str | list[str], "eve", ["bob", "eve"]),
    (str | list[str], "e*", ["eve"]),
]


@pytest.mark.parametrize(("kind", "wanted", "given"), OTHERWISE)
async def test_a_model_that_writes_it_in_another_way_is_denied_all_the_same(kind: Any, wanted: Any, given: Any):
    # rule T9
    result = await denies(kind, wanted, given).run("go")
    assert ("not allowed" in result.messages[2].text, deleted) == (True, [])


async def test_a_call_with_no_number_for_a_decimal_does_not_end_the_run() -> None:  # rule T9
    result = await denies(Decimal, 100, "sNaN").run("go")
    assert (result.status, deleted) == ("done", ["sent"])


HOPELESS: list[tuple[Any, Any]] = [
    (list[Decimal], ["100"]),
    (Order, {"total": "100"}),
    (Literal["production", "staging"], "prd*"),
    (Literal["production", "staging"] | None, "prd*"),
]


@pytest.mark.parametrize(("kind", "wanted"), HOPELESS, ids=str)
async def test_so_is_one_deep_inside_or_among_few_choices(kind: Any, wanted: Any) -> None:  # rule T9
    with pytest.raises(UsageError, match="can never apply"):
        denies(kind, wanted, None)


@pytest.mark.parametrize("wanted", [100, [100]])
def test_a_number_for_a_decimal_can_never_allow_anything(wanted: Any) -> None:  # rule T9
    # What is allowed must be meant for sure, and a decimal is text.
    kind = list[Decimal] if isinstance(wanted, list) else Decimal
    with pytest.raises(UsageError, match="can never apply"):
        denies(kind, wanted, None, action="allow")


async def test_a_decimal_allows_the_number() -> None:  # rule T9
    assert (await denies(Decimal, Decimal(100), "100.00", action="allow").run("go")).status == "done"


@pytest.mark.parametrize("which", [pay, ["pay"], None], ids=str)
def test_a_rule_names_its_tool(which: Any) -> None:
    with pytest.raises(UsageError, match="give the name of a tool"):
        ApprovalRule(tool=which, action="deny")


@pytest.mark.parametrize("arguments", [{"to": object()}, {"to": float("nan")}, ["to"], "to"])
def test_a_pattern_without_a_json_form_is_refused(arguments: Any) -> None:  # rule T9
    with pytest.raises(UsageError, match=r"ApprovalRule\(tool='pay'\)"):
        ApprovalRule(tool="pay", arguments=arguments, action="deny")


NEVER: list[dict[str, Any]] = [
    {"count": "1*"},
    {"count": "1"},
    {"count": True},
    {"count": 1.5},
    {"count": None},
    {"count": PathPattern("/tmp/**")},
    {"fast": 1},
    {"share": "100"},
    {"euros": "100"},
    {"euros": "1*"},
    {"tags": "a*"},
    {"tags": [1]},
    {"to": "bob"},
    {"to": {"iban": 1}},
    {"to": {"nam": "bob"}},
]


@pytest.mark.parametrize("pattern", NEVER, ids=str)
@pytest.mark.parametrize("action", ["deny", "ask"])
async def test_a_value_that_the_argument_cannot_have_is_refused(pattern: dict[str, Any], action: Any) -> None:
    # rule T9
    with pytest.raises(UsageError, match="can never apply, because of its pattern for"):
        await payer(ApprovalRule(tool="pay", arguments=pattern, action=action), {}).run("go")
    assert deleted == []


def test_so_it_is_when_a_graph_or_an_agent_is_built() -> None:  # rule T9
    policy = ApprovalPolicy([ApprovalRule(tool="delete_*", arguments={"path": 1}, action="deny")])
    with pytest.raises((UsageError, GraphError), match="can never apply"):
        graph("/x", policy)
    with pytest.raises(UsageError, match="can never apply"):
        agent("/x", policy)


class Brings(Middleware):
    """Brings its tools when the agent begins, as those of a server are."""

    def before_agent(self, setup: Setup) -> Setup:
        return replace(setup, tools=(*setup.tools, pay))


@pytest.mark.parametrize("whose", ["runner", "agent"])
async def test_calls_of_tools_that_come_later_ask_where_a_rule_cannot_match(whose: str) -> None:  # rule T9
    policy = ApprovalPolicy([ApprovalRule(tool="pa*", arguments={"count": "1"}, action="deny")])
    model = ScriptedModel([ToolCall(id="c1", name="pay", arguments={"to": BOB}), "done"])
    own = [policy] if whose == "agent" else []
    agent = ChatModelAgent("A", model=model, middleware=[Brings(), *own])
    result = await Runner(agent, middleware=[] if own else [policy]).run("go")
    assert (result.status, deleted) == ("interrupted", [])


INSIDE: list[Any] = [["a*"], {"n*": "bob"}, {"name": "b*"}, {"x": [{"y": "*"}]}, {"x": {"$path": "/tmp/**"}}]


@pytest.mark.parametrize("inside", INSIDE, ids=str)
def test_a_star_inside_a_list_or_an_object_is_refused(inside: Any) -> None:  # rule T9
    with pytest.raises(UsageError, match="'to' has a '\\*' or a path pattern inside a list or an object"):
        ApprovalRule(tool="pay", arguments={"to": inside}, action="deny")
    with pytest.raises(ValueError, match="inside a list or an object"):
        Approve(remember="session", pattern={"to": inside})


# What is not a middleware


class Almost:
    def wrap_tool(self, call: Any, request: Any) -> Any:
        return call(request)


def _wrong_agents(wrong: Any) -> list[Any]:
    model = ScriptedModel(["done"])
    return [
        lambda: ChatModelAgent("A", model=model, middleware=wrong),
        lambda: DeepAgent("A", model=model, middleware=wrong),
        lambda: Supervisor("A", model=model, agents=[agent("/x", name="B")], middleware=wrong),
        lambda: GraphAgent("A", graph("/x"), middleware=wrong),
        lambda: Runner(agent("/x"), middleware=wrong),
        lambda: StateGraph(MessagesState, name="g").add_llm_node("llm", model, middleware=wrong),
        lambda: StateGraph(MessagesState, name="g").add_tools_node("t", [delete_file], middleware=wrong),
        lambda: graph("/x", middleware=wrong),
    ]


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("wrong", [[RedactPII], [Almost()], ["RedactPII"], [None], RedactPII, RedactPII(), None, "pii"])
def test_what_is_not_a_middleware_is_refused(wrong: Any, place: int) -> None:
    with pytest.raises(UsageError, match="middleware"):
        _wrong_agents(wrong)[place]()


@pytest.mark.parametrize("euros", [{}, {"euros": 100}])
async def test_a_rule_sees_defaults(euros: dict[str, Any]) -> None:  # rule T1
    @tool
    def pay(order: str, euros: float = 100) -> str:
        """Pay."""
        deleted.append(order)
        return "paid"

    rules = [ApprovalRule(tool="pay", arguments={"euros": 100.0}, action="deny")]
    model = ScriptedModel([ToolCall(id="c1", name="pay", arguments={"order": "o1", **euros}), "done"])
    made = ChatModelAgent("A", model=model, tools=[pay], middleware=[ApprovalPolicy(rules)])
    assert (await Runner(made).run("go")).status == "done"
    assert deleted == []


async def test_a_reviewer_cannot_edit_a_call_into_a_denied_one(store: Store):  # rules T9, T4
    model = ScriptedModel([call("/home/a"), "done"])
    policy = ApprovalPolicy([ApprovalRule(arguments={"path": "/etc/*"}, action="deny", reason="not yours")])
    made = ChatModelAgent("A", model=model, tools=[reviewed(delete_file)], middleware=[policy])
    asked = await Runner(made, store=store).run("go", session_id="s")
    done = await Runner(made, store=store).resume("s", {asked.interrupts[0]: Edit({"path": "/etc/passwd"})})
    assert ([each.text for each in done.messages if each.role == "tool"], deleted) == (["Error: not yours"], [])
