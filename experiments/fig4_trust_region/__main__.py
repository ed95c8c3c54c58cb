"""Train for a while: exit 0 all runs finished, 1 some are not, 2 bad usage."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.fig4_trust_region.config import SMOKE, Config, without_extras
from experiments.fig4_trust_region.jobs import WORK, train_all


def main() -> int:
    """Parse, train, say what is left."""
    # argparse, since this also runs where little else is installed.
    parser = argparse.ArgumentParser("python -m experiments.fig4_trust_region", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="how many runs at a time, one core each")
    parser.add_argument("--minutes", type=float, help="stop after this time; call again to go on")
    parser.add_argument("--folder", type=Path, help=f"rows and states; by default {WORK.name} in build/")
    parser.add_argument("--only-paper", action="store_true", help="leave out what goes beyond the paper")
    parser.add_argument("--smoke", action="store_true", help="the small runs, without MuJoCo")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"`--jobs` must be at least 1; got {options.jobs}.")
    config = SMOKE if options.smoke else Config()
    config = without_extras(config) if options.only_paper else config
    folder = options.folder or (WORK.with_name(f"{WORK.name}_smoke") if options.smoke else WORK)
    left = train_all(config, folder, n_jobs=options.jobs, minutes=options.minutes)
    message = f"{len(left)} runs are not finished; call again to go on." if left else "All runs are finished."
    print(message, file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
