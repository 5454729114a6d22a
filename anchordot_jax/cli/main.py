"""The command `anchordot`: one verb, its options, and what its exit code means.

0: done. 1: the run failed or was stopped. 2: bad input, said in one sentence.
"""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from anchordot_jax.cli.compare import Compare
from anchordot_jax.cli.demo import Demo
from anchordot_jax.cli.diagnose import Diagnose
from anchordot_jax.cli.doctor import Doctor
from anchordot_jax.cli.embed import Embed
from anchordot_jax.cli.eval import Eval
from anchordot_jax.cli.export import Export
from anchordot_jax.cli.extract import Extract
from anchordot_jax.cli.fit import Fit
from anchordot_jax.cli.index import Index
from anchordot_jax.cli.inspect import Inspect
from anchordot_jax.cli.match import Match
from anchordot_jax.cli.push import Push
from anchordot_jax.cli.report import Report
from anchordot_jax.cli.search import Search
from anchordot_jax.cli.suggest import Suggest
from anchordot_jax.errors import InputError

Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Embed, tyro.conf.subcommand("embed")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Search, tyro.conf.subcommand("search")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Diagnose, tyro.conf.subcommand("diagnose")]
    | Annotated[Match, tyro.conf.subcommand("match")]
    | Annotated[Suggest, tyro.conf.subcommand("suggest")]
    | Annotated[Index, tyro.conf.subcommand("index")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Extract, tyro.conf.subcommand("extract")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Push, tyro.conf.subcommand("push")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
)

DESCRIPTION = """\
Align two frozen embedding spaces from a few hundred pairs. FILE is .npy, .npz, .h5,
.safetensors or .parquet; FILE::dataset names an array inside it. Exit code 0: done; 1:
the run failed; 2: bad input."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    try:
        code = int(_parse(arguments).run())
        sys.stdout.flush()
        return code
    except InputError as error:
        _say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        _say("stopped.")
        return 1
    except BrokenPipeError:
        # The reader of our output is gone, as in `anchordot search ... | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("ANCHORDOT_TRACEBACK"):
            raise
        if is_disk_full(error):
            _say(
                "failed: the disk is full; free some space, and the same command again "
                "goes on from what was stored."
            )
            return 1
        _say(
            f"failed: {type(error).__name__}: {error} (set ANCHORDOT_TRACEBACK=1 to "
            f"see where)"
        )
        return 1


def _parse(arguments: Sequence[str] | None) -> Command:
    """Return the command; a setting out of range is one sentence, not tyro's box."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                Command,
                prog="anchordot",
                description=DESCRIPTION,
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        cause: BaseException | None = stop
        while cause is not None:
            if isinstance(cause, InputError):
                raise cause from None
            cause = cause.__context__
        print(said.getvalue(), end="", file=sys.stderr)
        raise


def is_disk_full(error: BaseException) -> bool:
    """Return whether any library's error, or its cause, means a full disk or quota."""
    codes = (errno.ENOSPC, errno.EDQUOT)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in codes:
            return True
        if any(os.strerror(code) in str(cause) for code in codes):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _say(message: str) -> None:
    print(f"anchordot: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
