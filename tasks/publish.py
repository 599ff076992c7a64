"""Makes the registry's checkpoints answerable on the standing endpoint.

Keeps true: the registry is the only truth; the endpoint's catalogue is rebuilt from it at any time, with the server running
or not, and a path once given stays good.
"""

from pathlib import Path

from serving.catalog import register
from serving.model import model_digest
from storage.home import Home
from storage.registry import Registry


def publish(home: Home, model_dir: Path) -> list[str]:
    """Registers every checkpoint of this base model with the endpoint of `home`; returns their tinker:// paths.

    Does nothing before the endpoint's first start, which publishes by itself.
    """
    if not (home.serving / "tinker.db").exists():
        return []
    base, name = model_digest(model_dir), str(model_dir.resolve())
    return [
        register(home.serving, c.id, name, int(c.manifest["rank"]), c.sampler_tar, c.training_tar)
        for c in Registry(home).list()
        if c.manifest.get("base_model") == base
    ]
