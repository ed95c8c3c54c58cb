"""Train for a while: exit 0 all runs are finished, 1 some are not."""

from __future__ import annotations

import sys

from experiments.fig5_hidden_codes.config import BEYOND, FREE, SMOKE, Config, list_jobs
from experiments.trainings import command

if __name__ == "__main__":
    sys.exit(command("fig5_hidden_codes", __doc__, (Config(), SMOKE), list_jobs, FREE, beyond=BEYOND))
