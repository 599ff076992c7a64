"""SkyRL's engine process with our torch backend in it.

Keeps true: a sampler checkpoint on disk can be sampled at any time, whether or not its model is loaded or its session still
lives. Started by `serving.api_main`; runs nothing at import.
"""

import argparse
import time
from typing import Any

import skyrl.tinker.engine as skyrl_engine
from pydantic import BaseModel
from skyrl.tinker import types
from skyrl.tinker.config import EngineConfig, add_model

from serving.process import exit_with_parent

GATHER_S = 0.15  # how long a batch waits for another request to join it

skyrl_backends = skyrl_engine.get_backend_classes


def backend_classes(name: str, use_ray: bool = False) -> tuple[type[Any], type[BaseModel]]:
    """SkyRL's backends, and `torch`: ours."""
    if name == "torch":
        from serving.engine.backend import TorchBackend, TorchBackendConfig

        return TorchBackend, TorchBackendConfig
    found: tuple[type[Any], type[BaseModel]] = skyrl_backends(name, use_ray=use_ray)
    return found


class Engine(skyrl_engine.TinkerEngine):
    """SkyRL's engine, which also answers for checkpoints whose model is not loaded."""

    def _filter_valid_requests(
        self, requests: dict[str, tuple[str, BaseModel]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        from_file = {
            request: (model, data)
            for request, (model, data) in requests.items()
            if isinstance(data, types.SampleInput)
            and model
            and self._archive(model, data.checkpoint_id).exists()
        }
        errors, valid = super()._filter_valid_requests(
            {k: v for k, v in requests.items() if k not in from_file}
        )
        return errors, valid | from_file

    def find_batchable_sample(self, session: Any) -> dict[str, Any]:
        """What can be sampled together, waiting a moment for more: agents ask one by one, and a batch of 32 costs little more
        than one row."""
        found: dict[str, Any] = super().find_batchable_sample(session)
        while found:
            time.sleep(GATHER_S)
            session.expire_all()
            more: dict[str, Any] = super().find_batchable_sample(session)
            if len(more) <= len(found):
                return more
            found = more
        return found

    def _archive(self, model_id: str, checkpoint_id: str) -> Any:
        return self.config.checkpoints_base / model_id / "sampler_weights" / f"{checkpoint_id}.tar.gz"


def main() -> None:
    """The engine's entry point; its arguments are those of SkyRL's `EngineConfig`."""
    parser = argparse.ArgumentParser(description="Tinker engine with the torch backend")
    add_model(parser, EngineConfig)
    skyrl_engine.get_backend_classes = backend_classes
    exit_with_parent()
    Engine(EngineConfig.model_validate(vars(parser.parse_args()))).run()


if __name__ == "__main__":
    main()
