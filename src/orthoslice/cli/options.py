"""The options of the command line, each said once: commands name the groups they take."""

from __future__ import annotations

import enum
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from orthoslice.backend.markup import shown
from orthoslice.backend.stopping import EXIT_INTERRUPTED, interrupts

# Errors of users and their machines.
_TOLD = (ValueError, TypeError, OverflowError, ImportError, MemoryError, OSError)

_STOPPED = "orthoslice: stopped before there was anything to show.\n"

_FILES, _NUMBERS, _OUTPUT = "What is read", "How it is worked out", "What is printed"


class Units(enum.StrEnum):
    """What lengths are measured in."""

    auto = "auto"
    standard = "standard"
    raw = "raw"


class Missing(enum.StrEnum):
    """What happens to missing values."""

    refuse = "refuse"
    drop = "drop"
    indicate = "indicate"


class Directions(enum.StrEnum):
    """Names of `directions` in the library."""

    auto = "auto"
    orthogonal = "orthogonal"
    equispaced = "equispaced"
    optimized = "optimized"
    kerdock = "kerdock"
    sobol = "sobol"
    iid = "iid"
    hadamard = "hadamard"


def _size(text: str | None) -> str | None:
    if text is not None and re.fullmatch(r"[1-9]\d{0,4}x[1-9]\d{0,4}", text) is None:
        raise typer.BadParameter(f"must be WIDTHxHEIGHT, such as 32x32; got {text!r}.")
    return text


def _mark(text: str | None) -> str | None:
    if text is not None and (len(text) != 1 or text.isalnum()):
        raise typer.BadParameter(f"must be one character, such as a comma; got {text!r}.")
    return text


def _memory(text: str) -> str:
    from orthoslice.check.options import check_memory

    try:
        check_memory(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


class Reading(NamedTuple):
    """What is wanted of the files."""

    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Compare these columns only, whatever they hold. Names with commas in quotes: '\"a,b\",c'.",
            rich_help_panel=_FILES,
        ),
    ] = None
    ignore: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Leave these columns out.", rich_help_panel=_FILES),
    ] = None
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Refuse to leave out any column but those in --ignore.", rich_help_panel=_FILES
        ),
    ] = False
    missing: Annotated[
        Missing,
        typer.Option(
            help="Of missing values: refuse them, drop their rows, or indicate them, to compare gaps too.",
            rich_help_panel=_FILES,
        ),
    ] = Missing.refuse
    drop_missing: Annotated[
        bool,
        typer.Option("--drop-missing", help="The same as --missing drop.", rich_help_panel=_FILES),
    ] = False
    na_values: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="What else stands for a missing value, such as unknown,-999.",
            rich_help_panel=_FILES,
        ),
    ] = None
    decimal: Annotated[
        str,
        typer.Option(callback=_mark, help="The decimal mark of numbers in text.", rich_help_panel=_FILES),
    ] = "."
    thousands: Annotated[
        str | None,
        typer.Option(
            callback=_mark, help="The mark between thousands of numbers in text.", rich_help_panel=_FILES
        ),
    ] = None
    signs: Annotated[
        str | None,
        typer.Option(help="Characters beside numbers in text, such as %$.", rich_help_panel=_FILES),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(help="Of text files. Default: UTF-8, or else Latin-1.", rich_help_panel=_FILES),
    ] = None
    units: Annotated[
        Units,
        typer.Option(
            help="Standard deviations of the columns (standard), or units as they are (raw). Default: standard "
            "for tables, raw for arrays, embeddings and images.",
            rich_help_panel=_FILES,
        ),
    ] = Units.auto
    standardize: Annotated[
        bool,
        typer.Option("--standardize", help="The same as --units standard.", rich_help_panel=_FILES),
    ] = False
    whiten: Annotated[
        bool,
        typer.Option("--whiten", help="Standard deviations, without correlations.", rich_help_panel=_FILES),
    ] = False
    resize: Annotated[
        str | None,
        typer.Option(
            metavar="WxH",
            callback=_size,
            help="Bring images to this size, such as 32x32.",
            rich_help_panel=_FILES,
        ),
    ] = None
    memory: Annotated[
        str,
        typer.Option(
            callback=_memory,
            help="About how much memory to use; larger files are read in pieces.",
            rich_help_panel=_FILES,
        ),
    ] = "1GB"

    @property
    def scale(self) -> str | None:
        """How tables are brought to common units: None, "auto", or as the library calls it."""
        if self.standardize and self.whiten:
            raise ValueError("Pass --standardize or --whiten, not both.")
        if self.units != "auto" and (self.whiten or (self.standardize and self.units == "raw")):
            other = "--whiten" if self.whiten else "--standardize"
            raise ValueError(f"Pass --units {self.units} or {other}, not both.")
        if self.standardize or self.whiten:
            return "standard" if self.standardize else "whiten"
        return None if self.units == "raw" else str(self.units)

    @property
    def gaps(self) -> str:
        """What happens to missing values."""
        if self.drop_missing and self.missing == "indicate":
            raise ValueError("Pass --drop-missing or --missing indicate, not both.")
        return "drop" if self.drop_missing else str(self.missing)


class Weighing(NamedTuple):
    """Weights of rows, for commands that know what to do with them."""

    weights: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="How much each row counts.", rich_help_panel=_FILES),
    ] = None


class Drawing(NamedTuple):
    """What distances are estimated with."""

    p: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="The power: 1 for plain means, more for tails. Default: 2; 1 in tests.",
            rich_help_panel=_NUMBERS,
        ),
    ] = None
    n_directions: Annotated[
        int | None,
        typer.Option(min=1, help="How many directions to look from.", rich_help_panel=_NUMBERS),
    ] = None
    directions: Annotated[
        Directions, typer.Option(help="How directions are chosen.", rich_help_panel=_NUMBERS)
    ] = Directions.auto
    seed: Annotated[
        int,
        typer.Option(min=0, help="The same seed gives the same numbers.", rich_help_panel=_NUMBERS),
    ] = 0


class Stopping(NamedTuple):
    """When an estimate is good enough."""

    rtol: Annotated[
        float | None,
        typer.Option(
            help="Go on until the distance is this accurate, such as 0.01; exit code 1 if that fails.",
            rich_help_panel=_NUMBERS,
        ),
    ] = None


class Clustering(NamedTuple):
    """Which cluster measures the distance of all rows."""

    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Have the workers of this Dask scheduler, such as tcp://host:8786, measure the sliced "
            "distance. They open .npy files that all of them see by their path; other tables are sent to them.",
            rich_help_panel=_NUMBERS,
        ),
    ] = None


class Sampling(NamedTuple):
    """How many rows the slower parts look at."""

    max_rows: Annotated[
        int,
        typer.Option(
            min=2,
            help="The slower parts use at most this many rows of a table, chosen at random.",
            rich_help_panel=_NUMBERS,
        ),
    ] = 5000


class Testing(NamedTuple):
    """How a test is made."""

    n_permutations: Annotated[
        int,
        typer.Option(min=1, help="How often rows are shuffled between the files.", rich_help_panel=_NUMBERS),
    ] = 999


class Deciding(NamedTuple):
    """When a difference counts."""

    level: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Exit with 1 if the p-value is at most this, as diff does. Words call a change what is below "
            "it, or 0.05.",
            rich_help_panel=_NUMBERS,
        ),
    ] = None

    @property
    def limit(self) -> float:
        """The level that words and verdicts use."""
        return 0.05 if self.level is None else self.level


class Grouping(NamedTuple):
    """How one file becomes several tables."""

    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Split one file by the values of this column, and compare the parts.",
            rich_help_panel=_FILES,
        ),
    ] = None


class Printing(NamedTuple):
    """How the answer looks."""

    json: Annotated[
        bool | None,
        typer.Option("--json/--words", help="JSON, as when piped; or words.", rich_help_panel=_OUTPUT),
    ] = None


def unwrapped(function: Callable[..., None]) -> str:
    """What a command says of itself, without the line breaks of its source."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(function) or "")


def run_command(work: Callable[[], None]) -> None:
    """Run a command: bad files, bad options and a missing library are one line on stderr, and exit code 2."""
    try:
        interrupts.words = _STOPPED
        work()
        # Flushed here, where a full disk can still be reported.
        sys.stdout.flush()
        if interrupts.heard:
            raise typer.Exit(EXIT_INTERRUPTED)
    except BaseException as error:
        # Libraries may turn a Ctrl-C into another error.
        if interrupts.heard or isinstance(error, KeyboardInterrupt):
            if not isinstance(error, typer.Exit):
                print(_STOPPED, end="", file=sys.stderr)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        if isinstance(error, BrokenPipeError) or not isinstance(error, _TOLD):
            raise
        raise typer.Exit(tell_error(error)) from None
    finally:
        interrupts.words = ""


def tell_error(error: Exception) -> int:
    """Say what went wrong in one line on stderr; the exit code."""
    hint = " Or add --standardize." if isinstance(error, OverflowError) else ""
    print(shown(f"Error: {str(error) or type(error).__name__}{hint}"), file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        # Otherwise Python would flush again at exit, and print an error.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (as long as the process lasts)
    return 2


def command(
    app: typer.Typer, *groups: type[Any], name: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command, with the options of these groups after its own.

    It has the name of the function unless another is given. The function gets each group as one argument,
    called as the group is in lower case.
    """
    fields = {group: get_type_hints(group, include_extras=True) for group in groups}

    def register(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        names = {group.__name__.lower(): group for group in groups}
        own = [q for q in inspect.signature(function).parameters.values() if q.name not in names]
        parameters = [q.replace(annotation=hints[q.name]) for q in own]
        for group, kinds in fields.items():
            parameters += [
                inspect.Parameter(
                    n, inspect.Parameter.KEYWORD_ONLY, default=group._field_defaults[n], annotation=a
                )
                for n, a in kinds.items()
            ]

        @functools.wraps(function)
        def run(**given: Any) -> None:
            whole = {name: group(*(given.pop(f) for f in group._fields)) for name, group in names.items()}
            run_command(lambda: function(**given, **whole))

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {q.name: q.annotation for q in parameters}
        del run.__wrapped__
        app.command(name, help=unwrapped(function))(run)
        return run

    return register
