"""Ingest: read files, recognise records, and add their conversations to the lake.

Keeps true: doing it again adds nothing; a bad record costs only itself; what one call could not use is
listed with its reason and place. Contents are never logged. Memory stays bounded: records go to the lake in
batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from storage.conversation import Conversation, mark_targets, path_ids
from storage.home import Home
from storage.lake import Lake
from storage.tables import Quarantined, RawRecord
from tasks.ingest.envelope import FORMATS
from tasks.ingest.errors import IngestError, Unusable
from tasks.ingest.extract import Extracted, extract
from tasks.ingest.json_text import Record
from tasks.ingest.reader import DamagedInput, InputFile, OpenFile, find, opened
from tasks.ingest.records import split
from tasks.ingest.result import IngestResult, QuarantinedEntry

Progress = Callable[[str, int, int], None]

_BATCH_BYTES = 32 << 20
_WANTED = "Wanted: JSON with `messages`, with `request` and `response`, or with `traj` and `reward`."
_NO_JSON = {"bad_json", "bad_utf8", "truncated_tail", "oversize"}


def ingest(
    home: Home,
    paths: list[str],
    *,
    format: str = "auto",
    source: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> IngestResult:
    """Read files, folders, globs and `-`, and add what they hold to the lake of `home`.

    `progress` is called with a file, the bytes of it read so far, and its size. Raises IngestError for
    input that is not there, cannot be read, or is no trace in any known format.
    """
    if format != "auto" and format not in FORMATS:
        raise IngestError(f"{format} is not a known format. Choose auto, {', '.join(FORMATS)}.")
    started = time.monotonic()
    files = find(paths, source)
    run = _Ingest(Lake(home), format, dry_run, progress or (lambda *_: None))
    for file in files:
        run.read(file)
    if run.records and not run.recognised:
        raise IngestError(run.first_unknown)
    run.flush()
    return run.result(files, time.monotonic() - started)


@dataclass
class _Ingest:
    """One call's running state: the batch that is being filled, and the counts."""

    lake: Lake
    format: str
    dry_run: bool
    progress: Progress
    raw: list[RawRecord] = field(default_factory=list)
    conversations: list[Conversation] = field(default_factory=list)
    refused: list[Quarantined] = field(default_factory=list)
    batch_bytes: int = 0
    entries: list[QuarantinedEntry] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)  # last node of each path -> conversation id
    inner: set[str] = field(default_factory=set)
    sessions: dict[str, Conversation] = field(default_factory=dict)
    preview: dict[str, Conversation] = field(default_factory=dict)
    records: int = 0
    recognised: int = 0
    new: int = 0
    duplicate: int = 0
    bytes: int = 0
    first_unknown: str = ""

    def read(self, file: InputFile) -> None:
        """Read one file. Raises IngestError if it was named and holds records but none of a known shape."""
        recognised, records, entries = self.recognised, self.records, len(self.entries)
        with opened(file.path) as source:
            self.bytes += source.size
            for record in _records(source):
                self.records += 1
                self._take(file, source, record)
                self.progress(file.path, source.position(), source.size)
                if self.batch_bytes > _BATCH_BYTES:
                    if self.recognised == recognised and self._is_no_json(entries):
                        break
                    self.flush()
            self.progress(file.path, source.size, source.size)
        if self.records > records and self.recognised == recognised:
            found = self.entries[entries]
            problem = f"{file.path}: no trace in a known format: {found.detail} (byte {found.byte_offset})."
            if self._is_no_json(entries):
                problem += f" {_WANTED}"
            self.first_unknown = self.first_unknown or problem
            if file.named:
                raise IngestError(problem)
            self._collapse(file, records, entries)

    def _is_no_json(self, entries: int) -> bool:
        return {entry.reason for entry in self.entries[entries:]} <= _NO_JSON

    def _collapse(self, file: InputFile, records: int, entries: int) -> None:
        """Make one entry of all those of a file in a folder that is no JSON at all, a README say."""
        if self._is_no_json(entries):
            count = self.records - records
            first = self.refused[-count]
            detail = "not JSON; nothing in it was used"
            del self.entries[entries:], self.refused[-count:]
            self.records = records + 1
            one = Quarantined(**{**vars(first), "reason": "not_json", "detail": detail, "record": b""})
            self.refused.append(one)
            self.entries.append(
                QuarantinedEntry(
                    file=file.path, byte_offset=first.byte_offset, reason="not_json", detail=detail
                )
            )

    def flush(self) -> None:
        """Add the batch to the lake."""
        added = self.lake.add(self.raw, self.conversations, self.refused, dry_run=self.dry_run)
        self.new += added.new
        self.duplicate += added.duplicate
        self.raw, self.conversations, self.refused, self.batch_bytes = [], [], [], 0

    def result(self, files: list[InputFile], seconds: float) -> IngestResult:
        """The counts, as the command line prints them."""
        leaves = {id for node, id in self.ends.items() if node not in self.inner}
        preview = (
            [each.to_json() for each in self.preview.values() if each.id in leaves] if self.dry_run else None
        )
        return IngestResult(
            source=",".join(sorted({file.source for file in files})),
            files=len(files),
            bytes=self.bytes,
            records=self.records,
            new=self.new,
            duplicate=self.duplicate,
            conversations=len(leaves),
            quarantined=self.entries,
            redacted={},
            seconds=round(seconds, 3),
            preview=preview,
        )

    def _take(self, file: InputFile, source: OpenFile, record: Record) -> None:
        """The boundary at which a record fails: whatever is wrong with it goes to the quarantine."""
        self.batch_bytes += len(record.raw)
        try:
            self._use(file, source, record)
        except Unusable as problem:
            self._refuse(file, source, record, problem.reason, problem.detail)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            self._refuse(
                file, source, record, "malformed", f"a field of an unexpected kind ({type(error).__name__})"
            )

    def _use(self, file: InputFile, source: OpenFile, record: Record) -> None:
        found = extract(record, self.format, file.source, self.sessions)
        self._keep(file, source, record, found)
        if found.orphans:
            detail = f"{found.orphans} tool results without a call in their turn; the rest was used"
            self._refuse(file, source, record, "orphan_result", detail, copy=False)

    def _keep(self, file: InputFile, source: OpenFile, record: Record, found: Extracted) -> None:
        ends = []
        for each in found.conversations:
            nodes = path_ids(each.tools, each.messages)
            ends.append(nodes[-1])
            self.ends[nodes[-1]] = each.id
            self.inner.update(nodes[:-1])
            if self.dry_run:
                self.preview[each.id] = _previewed(each, self.preview.get(each.id))
        if found.session is not None:
            self.sessions[found.session] = found.conversations[0]
        self.recognised += 1
        self.conversations += found.conversations
        self.raw.append(
            RawRecord(
                source=file.source,
                file=file.path,
                file_digest=source.digest,
                byte_offset=record.byte_offset,
                record=record.raw,
                format=found.format,
                session=found.session,
                model=found.model,
                node_ids=tuple(ends),
            )
        )

    def _refuse(
        self,
        file: InputFile,
        source: OpenFile,
        record: Record,
        reason: str,
        detail: str,
        *,
        copy: bool = True,
    ) -> None:
        place: dict[str, Any] = {
            "file": file.path,
            "byte_offset": record.byte_offset,
            "reason": reason,
            "detail": detail,
        }
        self.entries.append(QuarantinedEntry(**place))
        self.refused.append(
            Quarantined(
                **place,
                source=file.source,
                file_digest=source.digest,
                length=record.length,
                digest=record.digest,
                record=record.raw if copy else b"",
            )
        )


def _records(source: OpenFile) -> Iterator[Record]:
    try:
        yield from split(source.stream)
    except DamagedInput as damage:
        yield Record(0, 0, source.digest, b"", reason=damage.reason, detail=damage.detail)


def _previewed(conversation: Conversation, before: Conversation | None) -> Conversation:
    outcome = conversation.outcome or (before.outcome if before else None)
    messages = tuple(mark_targets(conversation.messages))
    return Conversation(**{**vars(conversation), "messages": messages, "outcome": outcome})
