"""Supervisor: an agent hands work to others, one after the other, and gets it back when each has answered.

    python examples/supervisor.py

Money is moved, and moved back; each transfer waits for a person. The balances are session values: they are stored with
the step that changed them, so that no crash and no second look makes a transfer happen twice.
"""

from _console import main, model, script
from approval import decide

from adjourn import ChatModelAgent, RunContext, Supervisor, ToolCall, tool

OPENING = {"checking": 1000, "savings": 200}


@tool
async def check_balance(account: str, ctx: RunContext) -> str:
    """Look up how much is in an account.

    Args:
        account: Which one: `checking` or `savings`.
    """
    return f"There are {ctx.values.get('balances', OPENING)[account]} euros in {account}."


@tool(approval=True)
async def transfer_funds(source: str, target: str, euros: int, ctx: RunContext) -> str:
    """Move money from one account to another.

    Args:
        source: Where it comes from.
        target: Where it goes.
        euros: How much.
    """
    balances: dict[str, int] = dict(ctx.values.get("balances", OPENING))
    balances[source] -= euros
    balances[target] += euros
    ctx.values["balances"] = balances
    now = ", ".join(f"{account} {left}" for account, left in balances.items())
    return f"Moved {euros} euros from {source} to {target}. Now: {now}."


def hand_to(agent: str) -> ToolCall:
    return ToolCall(id=f"to_{agent}", name="transfer_to_agent", arguments={"agent_name": agent})


def move(source: str, target: str) -> ToolCall:
    arguments = {"source": source, "target": target, "euros": 500}
    return ToolCall(id=f"from_{source}", name="transfer_funds", arguments=arguments)


account_agent = ChatModelAgent(
    name="account_agent",
    description="Knows how much is in the accounts",
    instruction="You look up balances with `check_balance`, and nothing else.",
    model=model(
        script(
            ToolCall(id="look", name="check_balance", arguments={"account": "checking"}),
            lambda found: found,
        )
    ),
    tools=[check_balance],
)

transaction_agent = ChatModelAgent(
    name="transaction_agent",
    description="Moves money between the accounts",
    instruction="You move money with `transfer_funds`: one transfer at a time. Then say what came of it.",
    model=model(
        script(
            move("checking", "savings"),
            lambda moved: f"The first transfer: {moved}",
            move("savings", "checking"),
            lambda moved: f"The second transfer: {moved}",
        )
    ),
    tools=[transfer_funds],
)

agent = Supervisor(
    name="financial_supervisor",
    description="Looks after the accounts",
    model=model(
        script(
            hand_to("account_agent"),
            hand_to("transaction_agent"),
            hand_to("transaction_agent"),
            lambda told: f"The money went to savings and is back. {told.partition(' said: ')[2]}",
        )
    ),
    agents=[account_agent, transaction_agent],
)

if __name__ == "__main__":
    main(
        agent, "Is there enough to move 500 euros from checking to savings? If so do it, and then move it back", decide
    )
