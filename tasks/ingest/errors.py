"""Errors of ingest: what stops the whole call, and what costs one record."""


class IngestError(Exception):
    """The input as a whole cannot be read.

    The message names the file, what it looks like and what is missing.
    """


class Unusable(Exception):
    """One record cannot be used.

    `reason` is the quarantine's code; `detail` never quotes what the record says.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
