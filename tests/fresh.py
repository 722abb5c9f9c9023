"""A seed of this run, for tests that compare twins on fresh input; `IRBM_TEST_SEED` repeats a run that failed."""

import os
import secrets

# In the environment, so that processes started from here share it.
SEED = int(os.environ.setdefault("IRBM_TEST_SEED", str(secrets.randbelow(2**31))))
