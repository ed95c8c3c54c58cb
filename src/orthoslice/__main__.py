"""The command `orthoslice`, which is `python -m orthoslice` too."""

# No more than this: Ctrl-C is heard from the first line of `main` on.
import os
import signal
import sys


def main() -> None:
    """Run the command line: Ctrl-C ends it without a traceback from here to the last moment of the process."""
    # What shells start in the background ignores Ctrl-C, and goes on ignoring it.
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hears:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from orthoslice.backend.stopping import interrupts, quietly_unraisable

    if hears:
        signal.signal(signal.SIGINT, interrupts)
        sys.unraisablehook = quietly_unraisable
    if sys.stderr is None:
        # It takes the place of the closed one, so that what writes there does not write into a file of data.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (as long as the process lasts)
    if sys.stdout is None:
        print("Error: standard output must be open, if only as /dev/null; it is closed.", file=sys.stderr)
        sys.exit(2)
    from orthoslice.cli import app
    from orthoslice.cli.options import tell_error

    try:
        try:
            app()
        finally:
            # Help can meet a full disk too.
            sys.stdout.flush()
    except SystemExit as leaving:
        _leave(int(leaving.code or 0))
    except BrokenPipeError:
        # Who was to read it has gone.
        _leave(1)
    except OSError as error:
        _leave(tell_error(error))


def _leave(code: int) -> None:
    """End the process, and do not wait for Python to take itself apart: Ctrl-C would kill it there.

    After Ctrl-C there is nothing to wait for at all, as for threads that work on what was wanted before.
    """
    import atexit
    import contextlib

    from orthoslice.backend.stopping import EXIT_INTERRUPTED

    if code != EXIT_INTERRUPTED:
        atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
