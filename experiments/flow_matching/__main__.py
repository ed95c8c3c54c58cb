"""Pair, or train for a while: exit 0 finished, 1 not yet, 2 bad usage."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.flow_matching.config import SMOKE, Config
from experiments.flow_matching.jobs import FOLDER, prepare, train
from experiments.trainings import Place


def main() -> int:
    """Parse, pair or train, say whether anything is left."""
    # argparse, since this also runs where little else is installed.
    parser = argparse.ArgumentParser("python -m experiments.flow_matching", description=__doc__)
    parser.add_argument("--pair", action="store_true", help="pair noise with data, which trainings need")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 and so on; by default a GPU if there is one")
    parser.add_argument("--minutes", type=float, help="stop after this time; call again to go on")
    parser.add_argument(
        "--folder", type=Path, help=f"pairs, rows and states; by default {FOLDER.name} in build/"
    )
    parser.add_argument("--smoke", action="store_true", help="the small run")
    options = parser.parse_args()
    config = SMOKE if options.smoke else Config()
    folder = options.folder or (FOLDER.with_name(f"{FOLDER.name}_smoke") if options.smoke else FOLDER)
    if options.pair:
        prepare(config, folder)
        return 0
    place = Place(options.device) if options.device else Place.default()
    is_finished = train(config, folder, place, minutes=options.minutes)
    print("Finished." if is_finished else "Not finished; call again to go on.", file=sys.stderr)
    return 0 if is_finished else 1


if __name__ == "__main__":
    sys.exit(main())
