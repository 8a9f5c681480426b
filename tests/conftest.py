"""Settings that hold for every test, whatever it tests."""

import os

from hypothesis import settings

# No deadlines: an example's time says more about the machine than about the code, and pytest-timeout ends what hangs.
# In CI the examples are the same every time, so that a red run is the change's doing and can be had again at will;
# at the desk they are new every time, and that is where new counter-examples are found.
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("dev", max_examples=50, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
