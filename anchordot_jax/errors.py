"""The one error users see for bad input, and what others said, in short."""


class InputError(ValueError):
    """Bad input: one sentence saying what, where, what was got, and what to try.

    The command line prints it without a traceback and exits with code 2.
    """


REASON_LENGTH = 160


def reason(error: BaseException) -> str:
    """Return an error's message on one short line, without the bytes it may quote."""
    text = " ".join(str(error).split()) or type(error).__name__
    return "".join(filter(str.isprintable, text))[:REASON_LENGTH]
