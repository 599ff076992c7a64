"""What an agent left behind, carried from its dead container into the verifier's fresh one.

Keeps true: the verifier never runs in a file system an agent could have prepared beyond what is its work: the
working directory as it is, declared artifacts, and what an unprivileged user could write elsewhere. Devices,
pipes and sockets stay behind; a link that leads to the tests or the verdict is tampering; size is bounded.
Leaves to others: the tests.
"""

import functools
import posixpath
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.archives import read_tar
from sandbox.container import Sandbox
from sandbox.errors import SandboxError
from sandbox.harbor import Task

STAGED = "/.nightschool/work"
MAX_FILES = 100_000
MAX_PATHS = 256
# Never carried from outside the working directory: the engine's own files, and what only the verifier may
# provide.
_NEVER = (
    "dev",
    "proc",
    "sys",
    "run",
    "etc",
    "usr",
    "bin",
    "sbin",
    "lib",
    "lib64",
    "boot",
    "tests",
    "logs",
    "solution",
    ".nightschool",
)
_ABSOLUTE = re.compile(r"(?<![\w.*$})/-])/([A-Za-z0-9_.-]+)")
_HOME = re.compile(r"~|\bHOME\b|\bhome\(|gettempdir|TMPDIR")
_FORBIDDEN_TARGETS = ("tests", "logs", "solution", "proc", ".nightschool")


@dataclass
class Work:
    """`deleted` are paths that are to go; `links` are the carried links, absolute path to raw target."""

    deleted: list[str]
    links: dict[str, str] = field(default_factory=dict)

    def tampering(self) -> str | None:
        """What shows that the agent meant to reach the tests or the verdict, or None."""
        for path in self.links:
            target = resolve(path, self.links)
            if target.strip("/").split("/")[0] in _FORBIDDEN_TARGETS:
                return f"{path} is a link to {target}"
        return None


def collect(box: Sandbox, task: Task, tar: tarfile.TarFile, *, max_bytes: int) -> Work:
    """Add to `tar` (to be unpacked at /) all the verifier gets from `box`, whose processes must be dead.

    The working directory goes to STAGED, all else where it was.

    Raises:
        SandboxError: it is more than `max_bytes` bytes or MAX_FILES files.
    """
    separate = task.config.verifier.environment_mode == "separate"
    # Asking the engine for all changes costs a quarter of a second: only where the tests may look at them.
    look = not separate and not is_root(box.user) and looks_outside(task.path, task.digest, box.workdir)
    outside, deleted = _outside(box) if look else ([], [])
    roots = [] if separate or box.workdir == "/" else [(box.workdir, STAGED)]
    for artifact in task.config.artifacts:
        source = posixpath.normpath(posixpath.join(box.workdir, artifact.source))
        roots.append((source, posixpath.join("/", artifact.destination or source)))
    work, budget = Work(deleted), _Budget(max_bytes)
    for source, destination in [*roots, *((path, path) for path in outside)]:
        _copy(box, source, destination, tar, work, budget)
    return work


@functools.lru_cache(maxsize=4096)
def looks_outside(task: Path, digest: str, workdir: str) -> bool:
    """Whether the tests name a place an agent may write outside `workdir`.

    Any absolute path of no system folder, or a home.
    """
    known = {*_NEVER, *([] if workdir == "/" else [workdir.strip("/").split("/")[0]])}
    for file in sorted((task / "tests").rglob("*")):
        if not file.is_file() or file.is_symlink():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        if _HOME.search(text) or not known.issuperset(_ABSOLUTE.findall(text)):
            return True
    return False


def is_root(user: str) -> bool:
    """Whether `user[:group]` is the superuser."""
    return user.split(":")[0] in ("0", "root")


def resolve(path: str, links: dict[str, str]) -> str:
    """Where `path` leads, following `links` (absolute path to raw target) in every component."""
    done, rest, steps = "/", path.strip("/").split("/"), 0
    while rest:
        part = rest.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            done = posixpath.dirname(done)
            continue
        here = posixpath.join(done, part)
        target = links.get(here)
        if target is None or steps > 64:
            done = here
            continue
        steps += 1
        rest = target.split("/") + rest
        done = "/" if target.startswith("/") else done
    return done


def _outside(box: Sandbox) -> tuple[list[str], list[str]]:
    """(paths to carry, paths to delete) that differ from the image outside the working directory."""
    own = "" if box.workdir == "/" else box.workdir + "/"
    changes = [
        (kind, path)
        for kind, path in box.changes()
        if path.strip("/").split("/")[0] not in _NEVER and not (own and f"{path}/".startswith(own))
    ]
    parents_of_workdir = set(_ancestors(box.workdir)) if own else set()
    parents = parents_of_workdir | {posixpath.dirname(path) for _, path in changes}
    added = {path for kind, path in changes if kind == "added"} - parents_of_workdir
    carried = [
        path
        for kind, path in changes
        if (path in added and added.isdisjoint(_ancestors(path)))
        or (kind == "changed" and path not in parents)
    ]
    # An agent that scatters its work over hundreds of places is graded on the first of them.
    deleted = [path for kind, path in changes if kind == "deleted"]
    return carried[:MAX_PATHS], deleted[:MAX_PATHS]


def _ancestors(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


@dataclass
class _Budget:
    bytes_left: int
    files_left: int = MAX_FILES

    def spend(self, size: int) -> None:
        self.bytes_left -= size
        self.files_left -= 1
        if self.bytes_left < 0 or self.files_left < 0:
            raise SandboxError(
                "the agent left more work than a verifier takes (max_work_mb, or 100000 files)"
            )


def _copy(
    box: Sandbox, source: str, destination: str, tar: tarfile.TarFile, work: Work, budget: _Budget
) -> None:
    """Copy one tree of the container into `tar` under another name."""
    top = posixpath.basename(source.rstrip("/"))
    with box.get(source) as chunks, read_tar(chunks) as original:
        for info in original:
            budget.spend(info.size + 512)
            relative = info.name.rstrip("/")[len(top) :].lstrip("/")
            if info.issym():
                work.links[posixpath.join(source, relative) if relative else source] = info.linkname
            elif info.islnk():
                info.linkname = _renamed(destination, info.linkname[len(top) :])
            elif not (info.isreg() or info.isdir()):
                continue
            info.name = _renamed(destination, relative)
            info.mode &= 0o1777  # a setuid program is no work
            tar.addfile(info, original.extractfile(info) if info.isreg() else None)


def _renamed(destination: str, relative: str) -> str:
    return posixpath.join(destination, relative.lstrip("/")).strip("/")
