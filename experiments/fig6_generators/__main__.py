"""Train for a while: exit 0 all runs are finished, 1 they are not."""

from __future__ import annotations

import sys

from experiments.fig6_generators.config import FREE, NAME, SMOKE, Config, list_jobs
from experiments.trainings import command

if __name__ == "__main__":
    sys.exit(command(NAME, __doc__, (Config(), SMOKE), list_jobs, FREE))
