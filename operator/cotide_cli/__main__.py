"""The start and the end of the `cotide` process: a Ctrl-C prints one line there, too, as at other times.

`main.main` turns errors into exit codes once it runs. Before that, libraries are loaded, and after it Python shuts
down. Each takes a fifth of a second or more, and an interrupt at that time would print a traceback. The demo starts the
other commands in processes of their own by ``python -m cotide_cli``.
"""

from __future__ import annotations

import os

_INTERRUPTED = 130


def main() -> None:
    """Load and run the command line."""
    try:
        from cotide_cli.main import main as run

        run()
    except KeyboardInterrupt:
        _let_signals_end_us()
        os.write(2, b"cotide: interrupted\n")
        os._exit(_INTERRUPTED)
    finally:
        _let_signals_end_us()


def _let_signals_end_us() -> None:
    """Let the next Ctrl-C end the process by itself; one that is ignored stays so."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
