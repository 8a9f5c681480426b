"""`python -m adjourn`, the same as the `adjourn` command."""

import sys

from .cli import main

sys.exit(main())
