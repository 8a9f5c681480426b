"""`python -m adjourn`, the same as the `adjourn` command."""

import sys

from adjourn.cli import main

sys.exit(main())
