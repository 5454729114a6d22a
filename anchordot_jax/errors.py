"""The one error users see for bad input."""


class InputError(ValueError):
    """Bad input: one sentence saying what, where, what was got, and what to try.

    The command line prints it without a traceback and exits with code 2.
    """
