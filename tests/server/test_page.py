"""The piece of JavaScript in docs/service.md, run by Node as it is printed."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from adjourn.server import App
from adjourn.spec import load
from tests.server.serving import PATIENCE, Serving
from tests.test_docs import ROOT, blocks_of

AGENTS = ROOT / "examples" / "service" / "agents"
NODE = shutil.which("node")

# What a page has: a place for text, and a person. It says at the end what the person saw.
PAGE = """
const shown = [], prompts = [], answers = %s;
const show = (text) => shown.push(text);
const ask = async (prompt) => (prompts.push(prompt), answers.shift());
await talk("Book a ticket to Rome");
console.log(JSON.stringify({ text: shown.join(""), prompts }));
"""


def page(url: str, answers: list[str]) -> subprocess.CompletedProcess[str]:
    (code,) = [each.code for each in blocks_of("js", ROOT / "docs" / "service.md") if "talk(message)" in each.code]
    assert "http://localhost:8000" in code
    script = code.replace("http://localhost:8000", url) + PAGE % json.dumps(answers)
    command = [str(NODE), "--input-type=module", "-"]
    return subprocess.run(command, input=script, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_a_page_shows_the_prompt_and_posts_the_answer():  # rules V1, V3
    with Serving(App([load(AGENTS)])) as server:
        url = f"http://127.0.0.1:{server.server.port}"
        booked = page(url, ["Ann", "yes"])
        assert booked.stderr == ""
        seen = json.loads(booked.stdout)
        assert seen["prompts"][0] == "Who is travelling?"
        assert seen["prompts"][1].startswith("May ticket-booker call book_ticket")
        assert seen["text"].startswith("Booked: Ann to Rome")
        refused = page(url, ["Ann", "perhaps"])
        assert "Error: " in refused.stderr
        assert "perhaps" in refused.stderr
