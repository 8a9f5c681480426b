"""What importing costs, counted in modules; and that every public name is where the API says."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import pytest

import adjourn
import adjourn.errors
import adjourn.testing
from adjourn.graph import CompiledGraph, StateGraph

# What modules of the package import of Python itself; all else that comes with them is Python's own affair.
STANDARD = (
    "__future__ asyncio binascii collections contextlib contextvars copy dataclasses datetime decimal enum fnmatch "
    "functools gc hashlib hmac importlib inspect ipaddress itertools json logging math operator os pathlib queue "
    "random re threading time types typing unicodedata urllib.parse uuid warnings weakref"
)


pytestmark = pytest.mark.usefixtures("unmeasured")


def loaded_by(*statements: str) -> set[str]:
    """The modules that a new process has after these statements, and did not have before."""
    code = "; ".join(
        ["import sys", "before = set(sys.modules)", *statements, "print('|'.join(set(sys.modules) - before))"]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    return set(done.stdout.strip().split("|"))


def ours(names: set[str]) -> set[str]:
    return {name for name in names if name.partition(".")[0] == "adjourn"}


def test_importing_the_package_loads_one_module_of_it():
    loaded = loaded_by("import adjourn")
    assert ours(loaded) == {"adjourn"}
    assert loaded - loaded_by("import importlib", "import typing") == {"adjourn"}
    assert "asyncio" not in loaded


def test_a_name_loads_what_it_needs_and_no_more():
    loaded = loaded_by(
        "from adjourn import Message",
        "from adjourn._values import codec",
        "codec.encode(Message.user('also without graphs and agents it can be stored'), plain=False)",
    )
    assert "asyncio" not in loaded
    assert not {name for name in ours(loaded) if name.startswith(("adjourn.graph", "adjourn.runner", "adjourn.stores"))}


@pytest.mark.parametrize(
    "statement", ["import adjourn.graph", "from adjourn import Runner", "from adjourn import interrupt, once, workflow"]
)
def test_what_programs_import_brings_nothing_that_they_do_not_use(statement: str):
    loaded = loaded_by(statement)
    unused = (
        "sqlite",
        "adjourn.cli",
        "adjourn.testing",
        "adjourn.printing",
        "adjourn._screen",
        "adjourn.stores.sql",
    )
    assert {name for name in loaded if name.startswith(unused) or name.startswith("_sqlite")} == set()
    standard = ", ".join(name for name in STANDARD.split() if name != "__future__")
    baseline = loaded_by(f"import {standard}", "import __future__", "import msgspec, msgspec.inspect")
    assert loaded - ours(loaded) - baseline == set()


def test_nothing_from_outside_but_msgspec_is_loaded():
    loaded = loaded_by("import adjourn.graph", "from adjourn import *")
    outside = {name.partition(".")[0] for name in loaded - loaded_by("import msgspec, msgspec.inspect")}
    assert {name for name in outside if name not in sys.stdlib_module_names} <= {"adjourn", "msgspec"}


def test_sqlite_is_loaded_by_those_who_open_a_file():
    graph = "import adjourn.graph, adjourn.stores"
    run = "adjourn.stores.open_store('memory://')"
    assert not {name for name in loaded_by(graph, run) if "sqlite" in name}
    assert "sqlite3" in loaded_by(graph, "adjourn.stores.SQLiteStore('x.db')")
    assert "sqlite3" in loaded_by(graph, "adjourn.stores.open_store('sqlite:///x.db')")


# The facades


def facade_names(module: Any) -> dict[str, str]:
    """The names of a facade's block for type checkers, each with the module that it is from."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    found: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.name == alias.asname, f"{alias.name} is not exported as itself"
            found[alias.name] = (node.module or "").removeprefix(f"{module.__name__}.")
    return found


def test_the_facades_two_tables_say_the_same():
    homes: dict[str, str] = vars(adjourn)["_HOMES"]
    table = {name: home for home, names in homes.items() for name in names.split()}
    assert sum(len(names.split()) for names in homes.values()) == len(table), "a name stands twice"
    assert facade_names(adjourn) == table
    assert sorted(table) == list(adjourn.__all__)
    assert set(dir(adjourn)) >= {*table, "__version__"}


def test_the_tables_of_the_test_tools_say_the_same():
    assert facade_names(adjourn.testing) == vars(adjourn.testing)["_HOMES"]


@pytest.mark.parametrize("name", adjourn.__all__)
def test_every_name_of_the_facade_is_there(name: str):
    value = getattr(adjourn, name)
    home = facade_names(adjourn)[name]
    assert value is getattr(import_module(f"adjourn.{home}"), name)
    assert vars(adjourn)[name] is value, "the second use costs nothing"


def test_a_name_that_does_not_exist_is_an_attribute_error():
    for module in (adjourn, adjourn.testing, import_module("adjourn.stores")):
        with pytest.raises(AttributeError, match="nobody"):
            _ = module.nobody


# The names that the API promises

PROMISED = {
    "adjourn": "Runner Run RunResult Checkpoint Interrupt Interrupted interrupt raise_interrupt AnswerWith current "
    "RunContext session_value set_session_value session_values resume_value has_resume_value address_segment "
    "once workflow Message ToolCall Retry MessageEvent Delta Retrying print_event stored "
    "ChatModel OpenAIChatModel tool Tool ToolCallInfo Approve Reject Edit Respond ExitTool",
    "adjourn.graph": "START END StateGraph StateSchema MessagesState Command Cache Overwrite Shared replace last "
    "append merge add_messages AppendMessages ReplaceLastUser RemoveAllMessages",
    "adjourn.stores": "MemoryStore SQLiteStore Store open_store",
    "adjourn.events": "to_json from_json Interrupted MessageEvent Delta Retrying Event",
    "adjourn.models": "ChatModel Chunk ToolCallChunk ModelRequest ToolSpec generate stream resolve_model "
    "OpenAIChatModel DemoModel",
    "adjourn.tools": "tool Tool ToolSpec ToolCallInfo Approve Reject Edit Respond ExitTool approved reviewed follow_up "
    "FollowUpInfo InvalidArguments ToolError ToolRefused",
    "adjourn.testing": "FakeClock count_ids ScriptedModel FunctionModel StoreSuite FaultStore",
}


@pytest.mark.parametrize("module", PROMISED)
def test_every_promised_name_can_be_imported_from_where_it_is_promised(module: str):
    home = import_module(module)
    assert [name for name in PROMISED[module].split() if not hasattr(home, name)] == []


ERRORS = {
    "UsageError": "GraphError NotInRun AmbiguousInterrupt InterruptsDisabled",
    "SessionError": "CheckpointNotFound SessionBusy PendingInterrupts UnfinishedRun AlreadyResumed UnknownInterrupt "
    "InvalidAnswer InterruptExpired StaleCheckpoint ApprovalSpent",
    "RunError": "NodeNotFound WriteConflict StateInvalid MaxStepsExceeded MaxIterationsExceeded LimitExceeded "
    "NodeTimeout RetryExhausted ReplayMismatch ProgramChanged GraphInterrupted ModelError ToolError",
    "StoreError": "Conflict StoreUnavailable CheckpointCorrupt CheckpointTooNew MissingKey NotStorable",
}


@pytest.mark.parametrize("parent", ERRORS)
def test_the_tree_of_errors_is_as_promised(parent: str):
    above = getattr(adjourn.errors, parent)
    assert above.__bases__ == (adjourn.AdjournError,)
    assert [getattr(adjourn.errors, name).__bases__ for name in ERRORS[parent].split()] == [(above,)] * len(
        ERRORS[parent].split()
    )


CALLS = {
    "run": "input session_id user_id values deps on_pending checkpoint_id max_steps",
    "resume": "session_id answers by checkpoint_id values state deps max_steps",
    "recover": "session_id deps",
    "attach": "session_id after",
    "pending": "session_id",
    "status": "session_id",
    "messages": "session_id",
    "sessions": "",
    "delete": "session_id",
    "cancel": "session_id mode",
    "history": "session_id limit before source under",
    "checkpoint": "session_id id",
    "state": "session_id checkpoint_id at",
    "tree": "session_id",
    "diff": "session_id a b",
    "edit": "session_id values checkpoint_id as_node at",
    "fork": "session_id checkpoint_id to",
    "prune": "session_id",
    "run_sync": "input",
    "resume_sync": "session_id answers",
    "recover_sync": "session_id",
}


@pytest.mark.parametrize("owner", [adjourn.Runner, CompiledGraph])
@pytest.mark.parametrize("name", CALLS)
def test_a_runner_and_a_compiled_graph_have_the_promised_calls(owner: type, name: str):
    parameters = inspect.signature(getattr(owner, name)).parameters
    assert [wanted for wanted in CALLS[name].split() if wanted not in parameters] == []


MORE_CALLS: dict[Any, dict[str, str]] = {
    CompiledGraph: {"invoke": "", "draw": ""},
    StateGraph: {
        "add_node": "retry timeout cache interrupt_before interrupt_after destinations defer thread description",
        "add_sequence": "",
        "add_subgraph": "name graph input output",
        "add_edge": "source target",
        "add_conditional_edges": "source fn mapping",
        "set_entry_point": "name",
        "set_finish_point": "name",
        "compile": "interrupt_before interrupt_after max_steps step_timeout node_timeout strict",
    },
    adjourn.Run: {
        "text": "",
        "detach": "",
        "cancel": "mode timeout",
        "__aenter__": "",
        "__await__": "",
        "__iter__": "",
    },
    adjourn.RunContext: {
        "emit": "data",
        "progress": "done total text",
        "run": "input key",
        "run_all": "",
        "try_run": "",
    },
}


@pytest.mark.parametrize(
    ("owner", "name"),
    [(owner, name) for owner, calls in MORE_CALLS.items() for name in calls],
    ids=lambda each: str(each),
)
def test_other_promised_calls_are_there(owner: Any, name: str):
    call = getattr(owner, name)
    parameters = set(inspect.signature(call).parameters)
    for hint in get_type_hints(call).values():
        if get_origin(hint) is Unpack:  # options of several calls, in a TypedDict
            parameters |= set(get_type_hints(get_args(hint)[0]))
    assert [wanted for wanted in MORE_CALLS[owner][name].split() if wanted not in parameters] == []


FIELDS: dict[Any, str] = {
    adjourn.RunResult: "status output value message messages state interrupts usage session_id checkpoint_id",
    adjourn.Interrupt: "id address info reason prompt key schema choices created expires is_root_cause parent "
    "checkpoint_id session_id",
    adjourn.Checkpoint: "id parent_id source step created next interrupts state metadata address",
    adjourn.RunContext: "address values session_id user_id deps attempt idempotency_key was_interrupted "
    "interrupt_state is_resume_target has_resume_data resume_data",
    adjourn.Message: "role text parts tool_calls tool_call_id name usage finish_reason id",
    adjourn.Retrying: "attempt max_attempts delay error",
    adjourn.Interrupted: "interrupts checkpoint_id agent path address seq",
}


@pytest.mark.parametrize("owner", FIELDS, ids=lambda owner: owner.__name__)
def test_promised_attributes_are_there(owner: Any):
    fields = set(getattr(owner, "__struct_fields__", ())) | set(dir(owner))
    assert [name for name in FIELDS[owner].split() if name not in fields] == []


def test_what_a_dependent_sees_is_typed():
    assert (Path(adjourn.__file__).parent / "py.typed").exists()
    assert inspect.signature(adjourn.interrupt).return_annotation is not inspect.Signature.empty
