"""The one exception that means "the user can mend this"."""


class InputError(ValueError):
    """A user's mistake: the message is one sentence saying what is wrong, where, and what to do.

    The command line prints it without a traceback and exits with code 2. Every other exception is our own mistake.
    """
