"""Train and measure for a while, on a machine at rest: exit 0 all is done, 1 some runs are not finished."""

from __future__ import annotations

import sys

from experiments.swae_gradients.config import FREE, SMOKE, Config, list_jobs
from experiments.trainings import command

if __name__ == "__main__":
    sys.exit(command("swae_gradients", __doc__, (Config(), SMOKE), list_jobs, FREE))
