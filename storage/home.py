"""The home directory: where everything Nightschool keeps has its place.

Only names and places are decided here. Each store makes its own directories when it first writes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from storage.errors import StorageError


@dataclass(frozen=True)
class Home:
    """One home directory. `root` is absolute when it was made by `open`."""

    root: Path

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Home:
        """The home at `path`, made if need be. Raises StorageError if it cannot be a writable directory."""
        root = Path(path).expanduser().absolute()
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageError(
                f"cannot make the home directory {root}: {reason}. "
                "Choose another with --home or NIGHTSCHOOL_HOME."
            ) from error
        if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
            raise StorageError(
                f"the home directory {root} is not readable and writable by this user. "
                "Change its permissions, or choose another with --home or NIGHTSCHOOL_HOME."
            )
        return cls(root)

    @property
    def lake(self) -> Path:
        """Traces: raw records, message nodes, outcomes, quarantine, manifests."""
        return self.root / "lake"

    @property
    def datasets(self) -> Path:
        """Training rows, one directory per version."""
        return self.root / "datasets"

    @property
    def checkpoints(self) -> Path:
        """Trained weights, one immutable directory per checkpoint."""
        return self.root / "checkpoints"

    @property
    def refs(self) -> Path:
        """Names that move: prod, canary, previous, and the lake's head."""
        return self.root / "refs"

    @property
    def runs(self) -> Path:
        """What each run did: manifest, events, metrics, report."""
        return self.root / "runs"

    @property
    def inbox(self) -> Path:
        """Where new traces are dropped."""
        return self.root / "inbox"

    @property
    def models(self) -> Path:
        """Base models, converted once."""
        return self.root / "models"

    @property
    def locks(self) -> Path:
        """Lock files; the lock is flock's, the content only says who holds it."""
        return self.root / "locks"

    @property
    def stages(self) -> Path:
        """Outputs of finished stages, keyed by the digest of their inputs."""
        return self.root / "stages"

    @property
    def serving(self) -> Path:
        """State of the standing endpoint."""
        return self.root / "serving"

    @property
    def prefect(self) -> Path:
        """State of the embedded Prefect server."""
        return self.root / "prefect"
