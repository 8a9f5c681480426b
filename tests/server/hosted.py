"""An application for servers that are not ours: `uvicorn tests.server.hosted:app`."""

import os

from adjourn.server import App

from .agents import BOOKER, WAITER

app = App([WAITER, BOOKER], store=os.environ["ADJOURN_STORE"], grace=0.2)
