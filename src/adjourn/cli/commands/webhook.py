"""`adjourn webhook`: what the operator of webhooks needs: secrets, and whether messages arrive."""

from __future__ import annotations

import argparse
import asyncio
import os

from adjourn.cli.commands.serve import WEBHOOKS
from adjourn.cli.output.documents import add_json_option, print_json
from adjourn.errors import UsageError
from adjourn.webhooks import load_webhooks, new_secret


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what to do, and the file."""
    help_ = "secret: print a new one; test: send a message of the type 'test' to each webhook of the file"
    parser.add_argument("action", choices=("secret", "test"), help=help_)
    parser.add_argument("--webhooks", metavar="FILE", help=f"the file of webhooks (${WEBHOOKS})")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Print a secret, or try the webhooks out; return 1 if one does not take the message."""
    if options.action == "secret":
        secret = new_secret()
        if options.json:
            print_json({"secret": secret})
        else:
            print(secret)
        return 0
    path = options.webhooks or os.environ.get(WEBHOOKS)
    if not path:
        raise UsageError(f"Name the file of webhooks with --webhooks FILE, or ${WEBHOOKS}.")
    found = asyncio.run(load_webhooks(path).test())
    if options.json:
        print_json([{"webhook": name, "sent": failure is None, "failure": failure} for name, failure in found.items()])
    else:
        for name, failure in found.items():
            print(f"{name}: {'sent' if failure is None else failure}")
    return 1 if any(found.values()) else 0
