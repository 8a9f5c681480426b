"""`adjourn edit`: changes the state of a session at a checkpoint, on a new branch."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from adjourn._text import visible_line
from adjourn.cli._programs import add_stored_program, named_in, runner_of
from adjourn.cli._stores import add_user_option, command
from adjourn.cli.ask.asking import hint, person
from adjourn.cli.ask.parsing import pairs_of, parse_data
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.errors import UsageError
from adjourn.runner import Runner
from adjourn.sessions import Checkpoint


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the session, the values and the place."""
    add_stored_program(parser)
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument(
        "values",
        metavar="NAME=VALUE",
        nargs="+",
        help="a field and its new value: JSON if it is JSON, else text; NAME:=JSON is always JSON, and @FILE in place "
        "of a value reads it from a file. It goes through the reducer of the field, as what a node returns",
    )
    parser.add_argument("--checkpoint", metavar="ID", help="edit this one; see `adjourn tree` (default: the head)")
    parser.add_argument("--as-node", metavar="NODE", help="as if this node had returned it: what follows runs next")
    parser.add_argument("--at", metavar="ADDRESS", help="the state of the nested graph at this address")
    parser.add_argument("--again", action="store_true", help="let approvals that have acted count once more")
    parser.add_argument("--by", metavar="NAME", default=person(), help="who edits (your login name)")
    add_user_option(parser)
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Write the checkpoint and print how to continue."""
    values = {name.removesuffix(":"): _value(name, text) for name, text in pairs_of("", options.values).items()}
    runner = runner_of(named_in(options).program, options, existing=True)
    point = asyncio.run(_edit(runner if options.user is None else runner.for_user(options.user), options, values))
    if options.json:
        print_json({"session_id": options.session, "checkpoint_id": point.id, "next": list(point.next)})
        return 0
    following = f" Next: {visible_line(', '.join(point.next))}." if point.next else ""
    changed = visible_line(", ".join(values))
    print(f"Checkpoint {visible_line(point.id)}, on a new branch, has the new {changed}.{following}")
    if point.next:
        hint(f"Go on with: {command(options, 'recover', options.program, options.session)}")
    return 0


async def _edit(runner: Runner, options: argparse.Namespace, values: dict[str, Any]) -> Checkpoint:
    try:
        return await runner.edit(
            options.session,
            values,
            checkpoint_id=options.checkpoint,
            as_node=options.as_node,
            at=options.at,
            again=options.again,
            by=options.by,
        )
    finally:
        await runner.store.close()


def _value(name: str, text: str) -> Any:  # Any: JSON
    given = _read(name, text[1:]) if text.startswith("@") else text
    if not name.endswith(":"):
        return parse_data(given)
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}={text} is not JSON: {error}. NAME=VALUE also takes text.") from None


def _read(name: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"Check the name; a text that begins with @ is written as JSON, {name.removesuffix(':')}:='\"@…\"'."
        raise UsageError(f"{name}=@{file} cannot be read: {error}. {remedy}") from None
