"""Train for a while: exit 0 all runs are finished, 1 some are not."""

from __future__ import annotations

import sys

from experiments.fig3_swae.config import FREE, SMOKE, Config, list_jobs
from experiments.trainings import command

if __name__ == "__main__":
    sys.exit(command("fig3_swae", __doc__, (Config(), SMOKE), list_jobs, FREE))
