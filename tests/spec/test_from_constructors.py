"""An option is declared once: the constructor, files, their schema, `help` and the page of names have it from there."""

from __future__ import annotations

import inspect
from typing import Any, Literal, Unpack, get_args

import msgspec
import pytest
from msgspec import inspect as types

from adjourn import ChatModelAgent, Supervisor, UsageError
from adjourn._habits import check_known, checks_options
from adjourn._options import hints_of, options_of, tells_options
from adjourn._yaml import read_yaml
from adjourn.agents.chat._config import ChatOptions
from adjourn.runner import Options
from adjourn.spec import _declared as declared
from adjourn.spec._agents import make_agent
from adjourn.spec._fitting import Fitting
from adjourn.spec._parts import Parts, Surroundings
from adjourn.spec._references import References
from adjourn.testing import ScriptedModel
from tests.reference import OPTIONS, option_rows
from tests.spec.folder import Folder, document


class Speaker(ChatModelAgent):
    """An agent with an option that exists only here."""

    @checks_options
    def __init__(
        self,
        name: str,
        *,
        model: Any,
        tone: Literal["warm", "cool"] = "warm",
        hums: Any = None,
        **options: Unpack[ChatOptions[Any, Any]],
    ) -> None:
        """Make an agent.

        tone: how it
            sounds. Files do not say more.
        hums: a function, which no file can have.
        """
        super().__init__(name, model=model, **options)
        self.tone = tone


@declared.options_from(Speaker)
class SpeakerSpec(declared.ChatSpec, tag="speaker", frozen=True, kw_only=True):
    """A speaker."""


class Loud(Options, total=False):
    """The options of a runner, and one that exists only here.

    volume: how loud it is.
    """

    volume: int


@tells_options(Loud)
def run_loudly(**options: Unpack[Loud]) -> None:
    """Run.

    Raises:
        UsageError: an option is not known.
    """
    check_known("run_loudly", options, Loud.__annotations__)


SPEC = "type: speaker\nmodel: demo:tickets\nmax_iterations: 3\n"


def made_of(folder: Folder, text: str) -> tuple[Any, list[str]]:
    (node,), problems = read_yaml(text)
    references = References(folder.path, ())
    surroundings = Surroundings(references, {})
    fitting = Fitting(surroundings.check)
    spec = fitting.fit(node, types.type_info(SpeakerSpec), ("spec",))
    fitting.places[()] = node.place
    parts = Parts(surroundings, fitting.places, fitting.faulty, {})
    made: Any = make_agent(parts, "ann", spec)
    return made, [each.message for each in (*problems, *fitting.problems, *parts.problems)]


def test_the_constructor_takes_it():
    assert Speaker("A", model=ScriptedModel([]), tone="cool").tone == "cool"
    with pytest.raises(UsageError, match="tone='loud'"):
        Speaker("A", model=ScriptedModel([]), tone="loud")  # pyright: ignore[reportArgumentType]


def test_a_file_takes_it(folder: Folder):
    made, problems = made_of(folder, f"{SPEC}tone: cool\n")
    assert (made.tone, made.max_iterations, problems) == ("cool", 3, [])
    assert made_of(folder, SPEC)[0].tone == "warm"
    assert made_of(folder, f"{SPEC}tone: loud\n")[1] == ["'tone' is the text 'loud'; give one of cool, warm"]
    assert made_of(folder, f"{SPEC}hums: a\n")[1] == ["there is no field 'hums' here"]


def test_the_schema_has_it():
    fields = msgspec.json.schema(SpeakerSpec)["$defs"]["SpeakerSpec"]["properties"]
    assert fields["tone"] == {"enum": ["cool", "warm"], "default": "warm"}
    assert declared.descriptions(SpeakerSpec)["tone"] == "how it sounds."


def test_the_page_of_names_has_it():
    assert "| `tone` | how it sounds. Files do not say more. |" in option_rows(Speaker)
    assert list(option_rows(Loud))[-1] == "| `volume` | how loud it is. |"


def test_an_option_of_a_runner_is_in_help_and_among_those_that_are_known():
    assert "\nvolume: how loud it is.\n\nRaises:" in (run_loudly.__doc__ or "")
    assert list(options_of(run_loudly)) == [*options_of(Options), "volume"]
    run_loudly(volume=3)
    with pytest.raises(UsageError, match=r"unknown option volum.* There are: store, .*, volume"):
        run_loudly(volum=3)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("kind", [each for name, each in OPTIONS.items() if name != "Runner"])
def test_the_type_of_every_option_is_known_when_the_program_runs(kind: Any):
    """An option of an unknown type would be missing in files without a word."""
    assert options_of(kind).keys() & inspect.signature(kind).parameters.keys() <= hints_of(kind.__init__).keys()


def test_what_has_no_form_in_files_is_left_out():
    fields = declared.ChatModelAgentSpec.__struct_fields__
    left_out = options_of(ChatModelAgent).keys() - set(fields)
    assert left_out == {"name", "model_input", "retry", "failover"}
    assert {kind.__struct_config__.tag for kind in get_args(declared.AnySpec) if hasattr(kind, "made_by")} == {
        "chat_model_agent", "supervisor", "deep_agent", "sequential", "parallel", "loop", "plan_execute"
    }  # fmt: skip


CHAT = "type: chat_model_agent\nmodel: demo:tickets\n"


def test_options_that_depend_on_others_are_judged_beside_them(folder: Folder):
    booking = 'tools: ["python://parts:book"]\n'
    folder.add("x", f"{CHAT}{booking}return_directly: [book]\noutput_type: {{type: string}}\noutput_mode: tool")
    made = folder.load().check().agents["x"]
    assert isinstance(made, ChatModelAgent)
    assert (made.return_directly, made.output_mode) == (("book",), "tool")
    for spec, said in (
        (f"{CHAT}{booking}return_directly: [‸boook]", "return_directly names 'boook'"),
        (f"{CHAT}output_mode: ‸tool", "but no output_type"),
        (f"{CHAT}output_type: ‸{{type: strin}}\noutput_mode: tool", "expected one of"),
    ):
        found, places = folder.mistakes(document("x", spec))
        assert [(each.line, each.column) for each in found] == places
        assert said in str(found[0])


def test_an_option_that_a_file_leaves_out_has_the_default_of_the_constructor(folder: Folder):
    folder.add("x", CHAT)
    folder.add("boss", "type: supervisor\nmodel: demo:tickets\nagents: [x]")
    boss = folder.load().check().agents["boss"]
    assert isinstance(boss, ChatModelAgent)
    assert boss.instruction == options_of(Supervisor)["instruction"].default
