"""Exceptions, split by what the caller can do about them."""


class ClearwayError(Exception):
    """Base of all that Clearway raises on purpose. Its message says what was expected, what was found, what to do."""


class InputError(ClearwayError):
    """Something given from outside is wrong: the caller can correct it. Command-line exit code 2."""


class MissingExtraError(ClearwayError):
    """An optional dependency is not installed. Command-line exit code 3."""


class InternalError(ClearwayError):
    """Our bug: an invariant does not hold. Never caught except to write the story down. Exit code 70."""
