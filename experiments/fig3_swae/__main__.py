"""Train for a while, and time a step at the end: exit 0 all is done, 1 some runs are not finished."""

from __future__ import annotations

import sys

from experiments.fig3_swae.config import FREE, SMOKE, Config, list_jobs
from experiments.fig3_swae.timing import measure_into
from experiments.trainings import command

if __name__ == "__main__":
    sys.exit(command("fig3_swae", __doc__, (Config(), SMOKE), list_jobs, FREE, measure_into))
