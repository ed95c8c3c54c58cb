"""The command `orthoslice`, which is `python -m orthoslice` too."""

# No more than this: Ctrl-C is heard from the first line of `main` on.
import os
import signal
import sys


def main() -> None:
    """Run the command line: Ctrl-C ends it without a traceback from here to the last moment of the process."""
    # Shells start background processes with Ctrl-C ignored, and that is kept.
    hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if hears:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from orthoslice.backend.stopping import interrupts, quietly_unraisable

    if hears:
        signal.signal(signal.SIGINT, interrupts)
        sys.unraisablehook = quietly_unraisable
    if sys.stderr is None:
        # Replaces the closed one: a file opened later could get its descriptor, and messages would go there.
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
            # Printing help can meet a full disk too.
            sys.stdout.flush()
    except SystemExit as leaving:
        _leave(int(leaving.code or 0))
    except BrokenPipeError:
        # The reader of the pipe has gone.
        _leave(1)
    except OSError as error:
        _leave(tell_error(error))


def _leave(code: int) -> None:
    """End the process without Python's finalisation, during which Ctrl-C would kill it.

    After Ctrl-C exit functions are skipped too: they would wait for threads whose work is not wanted any more.
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
