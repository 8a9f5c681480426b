"""A message with very many tool calls: the cost of one does not depend on how many there are."""

from __future__ import annotations

from adjourn import Runner, tool
from adjourn.agents import ChatModelAgent, Limits
from adjourn.messages import ToolCall
from adjourn.sessions import Sessions
from adjourn.stores import MemoryStore, Store
from adjourn.testing import ScriptedModel
from tests.counting import lines_of
from tests.runner.stores import WatchedStore

YES = {"decision": "approve"}


@tool(approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def teller(count: int, store: Store, *, begins: bool = False) -> Runner:
    """A runner whose model wants to pay so many times at once; one that does not begin goes on after that."""
    calls = [ToolCall(id=f"c{number}", name="pay", arguments={"cents": number}) for number in range(count)]
    model = ScriptedModel([calls, "Done."] if begins else ["Done."])
    limits = Limits(calls_per_answer=count)
    return Runner(ChatModelAgent("teller", model=model, tools=[pay], limits=limits), store=store)


async def asked(count: int, store: Store) -> list[str]:
    result = await teller(count, store, begins=True).run("Pay them all", session_id="s")
    assert len(result.interrupts) == count
    return [each.token for each in result.interrupts]


async def test_a_process_that_goes_on_does_the_same_for_each_call_however_many_there_are():  # rule C9
    async def cost(count: int) -> float:
        store = MemoryStore()
        [first, *_] = await asked(count, store)
        return await lines_of(lambda: teller(count, store).resume("s", {first: YES})) / count

    await cost(5)
    assert await cost(800) < 1.2 * await cost(100)


async def test_a_record_with_one_approval_is_as_long_however_many_are_open():  # rule C9
    async def stored(count: int) -> int:
        store = WatchedStore(MemoryStore())
        tokens = await asked(count, store)
        before = len(store.writes)
        for token in tokens[:8]:
            await teller(count, store).resume("s", {token: YES})
        partial = [write for write in store.writes[before:] if not write.full]
        return max(len(write.body) + len(write.events) for write in partial)

    assert await stored(320) < 1.1 * await stored(40)


async def test_all_calls_run_once_whether_they_are_approved_one_by_one_or_together(store: Store):  # rules T3, R4
    tokens = await asked(60, store)
    for token in tokens[:10]:
        await teller(60, store).resume("s", {token: YES})
    for token in tokens[10:20]:
        await Sessions(store).answer("s", {token: YES})
    result = await teller(60, store).resume("s", dict.fromkeys(tokens[20:], YES))
    assert result.output == "Done."
    results = [message.text for message in result.messages if message.role == "tool"]
    assert results == [f"paid {number}" for number in range(60)]
