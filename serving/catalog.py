"""Makes a checkpoint from a file answerable on a Tinker server, under a path that never changes.

Keeps true: registering is idempotent and needs no restart (the server reads its database at each request); the file is
linked, or copied across file systems, so the registry stays the only owner of its own. Leaves to others: which checkpoints.
"""

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

CHECKPOINT_NAME = "final"
SESSION = "nightschool-registry"


def sampler_path(checkpoint_id: str) -> str:
    """The `tinker://` path to sample a registered checkpoint."""
    return f"tinker://{checkpoint_id}/sampler_weights/{CHECKPOINT_NAME}"


def training_path(checkpoint_id: str) -> str:
    """The `tinker://` path to go on training from a registered checkpoint."""
    return f"tinker://{checkpoint_id}/weights/{CHECKPOINT_NAME}"


def register(
    state_dir: Path,
    checkpoint_id: str,
    base_model: str,
    rank: int,
    sampler: Path,
    training: Path | None = None,
) -> str:
    """Makes a checkpoint answerable on the server whose state is in `state_dir`; returns its sampler path.

    Args:
        state_dir: the state folder of a server that has started at least once.
        checkpoint_id: letters, digits, `-` and `_`.
        base_model: the name under which that server knows its base model.
        rank: of the adapter.
        sampler, training: the two archives.
    """
    from skyrl.tinker.types import CheckpointType

    folder = state_dir / "checkpoints" / checkpoint_id
    _link(sampler, folder / "sampler_weights" / f"{CHECKPOINT_NAME}.tar.gz")
    kinds = [CheckpointType.SAMPLER]
    if training:
        _link(training, folder / f"{CHECKPOINT_NAME}.tar.gz")
        kinds.append(CheckpointType.TRAINING)
    _write_rows(state_dir / "tinker.db", checkpoint_id, base_model, rank, kinds)
    return sampler_path(checkpoint_id)


def _write_rows(database: Path, checkpoint_id: str, base_model: str, rank: int, kinds: list[object]) -> None:
    from skyrl.tinker.db_models import CheckpointDB, CheckpointStatus, ModelDB, SessionDB, enable_sqlite_wal
    from sqlmodel import Session, create_engine

    engine = create_engine(f"sqlite:///{database}")
    enable_sqlite_wal(engine)
    now = datetime.now(UTC)
    with Session(engine) as session:
        session.merge(
            SessionDB(session_id=SESSION, sdk_version="registry", status="expired", last_heartbeat_at=now)
        )
        session.commit()
        lora = {"rank": rank, "alpha": 32.0, "seed": 0}
        session.merge(
            ModelDB(
                model_id=checkpoint_id, base_model=base_model, lora_config=lora, status="unloaded", request_id=0,
                session_id=SESSION,
            )
        )  # fmt: skip
        session.commit()
        for kind in kinds:
            session.merge(
                CheckpointDB(
                    model_id=checkpoint_id, checkpoint_id=CHECKPOINT_NAME, checkpoint_type=kind,
                    status=CheckpointStatus.COMPLETED, completed_at=now,
                )
            )  # fmt: skip
        session.commit()
    engine.dispose()


def _link(source: Path, target: Path) -> None:
    """`target` becomes `source`'s content in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        os.link(source, beside)
    except OSError:
        shutil.copyfile(source, beside)
    os.replace(beside, target)
