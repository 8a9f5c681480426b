"""The files of docs/yaml.md load as they are printed, and run."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from adjourn import Runner
from adjourn.spec import Loaded
from adjourn.spec import _declared as declared
from tests.spec.folder import Folder
from tests.spec.test_schema import fits
from tests.test_docs import ROOT

PAGE = (ROOT / "docs" / "yaml.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"^```\w+\n# agents/(\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
ENVIRONMENT = {"OPENAI_KEY_OF_SALES": "sk-123456789", "LLM_HOST": "127.0.0.1:9"}


@pytest.fixture
def loaded(folder: Folder) -> Loaded:
    for name, text in FILES.items():
        folder.write(name, text)
    return folder.load(environ=ENVIRONMENT).check()


async def test_an_agent_that_uses_others_runs_as_it_is_printed(loaded: Loaded):
    runner = Runner(loaded.agents["desk"])
    (asked,) = (await runner.run("hi", session_id="s", values=loaded.served["desk"].values)).interrupts
    assert (await runner.resume("s", {asked: True})).status == "done"


async def test_the_page_loads_and_its_agents_ask(loaded: Loaded):
    assert sorted(loaded.agents) == ["careful", "desk", "refund-desk", "ticket-booker"]
    assert loaded.checkpoint is not None
    for name, answer, said in (("ticket-booker", True, "Booked."), ("refund-desk", "refund", "Paid.")):
        served = loaded.served[name]
        runner = Runner(loaded.agents[name])
        (asked,) = (await runner.run("hi", session_id=name, values=served.values)).interrupts
        assert (await runner.resume(name, {asked: answer})).output == said


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml")])
def test_the_page_fits_the_schema(name: str):
    assert fits(FILES[name])


def test_the_page_names_every_type_of_agents_and_nodes():
    rows = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE))))
    kinds = (*get_args(declared.AnySpec), *get_args(declared.AnyNode))
    assert {kind.__struct_config__.tag for kind in kinds} <= rows
