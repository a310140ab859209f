"""Where ``pgc``, ``pgc-master`` and ``pgc-worker`` begin: quick to import, so that Ctrl+C is quiet from the start on.

While the program is loaded there is nothing to put in order, so SIGINT ends the process as it ends any other, without a
traceback: shells show that as 130. ``cli.common.guarded`` gives Ctrl+C to the command once it runs.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def pgc() -> None:
    """Entry point of ``pgc``."""
    from pgczmq.cli import main

    main.main()


def pgc_master() -> None:
    """Entry point of ``pgc-master``."""
    from pgczmq.cli import main

    main.master_main()


def pgc_worker() -> None:
    """Entry point of ``pgc-worker``."""
    from pgczmq.cli import main

    main.worker_main()
