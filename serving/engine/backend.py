"""SkyRL's `AbstractBackend` on plain torch: one transformers model, PEFT adapters, one device.

Keeps true: losses are sums (the client normalises); gradients accumulate until `optim_step`; a sampler checkpoint is a file
at once, and is sampled from that file as an adapter of its own, so an adapter in training is never overwritten and a
checkpoint outlives the process that wrote it. Leaves to others: queues, sessions and the database (SkyRL's engine).
"""

import contextlib
import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Literal, override

import torch
from pydantic import BaseModel
from safetensors.torch import load_file, save_file
from skyrl.backends.backend import AbstractBackend
from skyrl.backends.renderer import render_model_input
from skyrl.tinker import types
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from serving.engine import attention
from serving.engine.adapters import Adapters, write_archive
from serving.engine.losses import LOSSES
from serving.engine.passes import hidden_states, micro_batches, pad, token_logprobs
from serving.engine.sampling import Sampled, SampleSettings, generate


class TorchBackendConfig(BaseModel, extra="forbid", frozen=True):
    """What the engine's command line passes to this backend."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    device: str = "auto"
    tokens_per_pass: int = 2048
    sample_rows: int = 32
    snapshots: int = 6
    threads: int | None = None


class TorchBackend(AbstractBackend):
    """See the module's docstring.

    Raises:
        ValueError: an unknown loss, a missing model, a checkpoint that does not fit; SkyRL's engine turns it into the
            error of that one request.
    """

    def __init__(self, base_model: str, config: TorchBackendConfig) -> None:
        self.config, self.metrics = config, types.EngineMetrics()
        if config.threads:
            torch.set_num_threads(config.threads)
        self.device = _device(config.device)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(base_model)
        base: Any = AutoModelForCausalLM.from_pretrained(
            base_model, dtype=_dtype(config.dtype, self.device), attn_implementation=attention.register()
        )
        self.adapters = Adapters(base.to(self.device).eval(), config.snapshots)
        self.stop_tokens = _end_tokens(base_model, self.tokenizer)
        self.optimizers: dict[str, torch.optim.AdamW] = {}

    @override
    def has_model(self, model_id: str) -> bool:
        return model_id in self.optimizers

    @override
    def create_model(self, model_id: str, lora_config: types.LoraConfig, model_role: str = "policy") -> None:
        if model_role != "policy":
            raise ValueError(f"this backend trains policies; a model of role {model_role!r} was asked for")
        self.adapters.create(model_id, lora_config.rank, lora_config.alpha, lora_config.seed)
        self.optimizers[model_id] = torch.optim.AdamW(self.adapters.parameters(model_id), lr=0.0)

    @override
    def delete_model(self, model_id: str) -> None:
        del self.optimizers[model_id]
        self.adapters.delete(model_id)

    @override
    def forward_backward(self, prepared_batch: types.PreparedModelPassBatch) -> dict[str, Any]:
        return self._model_pass(prepared_batch, train=True)

    @override
    def forward(self, prepared_batch: types.PreparedModelPassBatch) -> dict[str, Any]:
        return self._model_pass(prepared_batch, train=False)

    @override
    def optim_step(self, model_id: str, request_data: types.OptimStepInput) -> types.OptimStepOutput:
        optimizer, adam = self.optimizers[model_id], request_data.adam_params
        parameters = self.adapters.parameters(model_id)
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        for group in optimizer.param_groups:
            group.update(
                lr=adam.learning_rate,
                betas=(adam.beta1, adam.beta2),
                eps=adam.eps,
                weight_decay=adam.weight_decay,
            )
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return types.OptimStepOutput(metrics={"grad_norm": float(norm)})

    @override
    def sample(self, prepared_batch: types.PreparedSampleBatch) -> dict[str, Any]:
        prompts = [rendered.prompt_ids for rendered in render_model_input(prepared_batch.all_model_inputs)]
        results: list[Sampled | None] = [None] * len(prompts)
        errors: dict[int, str] = {}
        for path in dict.fromkeys(prepared_batch.all_checkpoint_paths):
            rows = [i for i, p in enumerate(prepared_batch.all_checkpoint_paths) if p == path]
            try:
                model = self.adapters.activate(self.adapters.snapshot(Path(path)) if path else None)
            except (OSError, ValueError, KeyError, tarfile.TarError) as error:
                errors |= dict.fromkeys(rows, f"checkpoint {Path(path).name} cannot be loaded: {error}")
                continue
            for start in range(0, len(rows), self.config.sample_rows):
                part = rows[start : start + self.config.sample_rows]
                settings = [self._settings(prepared_batch.all_sampling_params[i]) for i in part]
                sampled = generate(model, [prompts[i] for i in part], settings, self._decode)
                for i, result in zip(part, sampled, strict=True):
                    results[i] = result
        return {
            request: self._sample_output(prompts, results, errors, batch_slice, prepared_batch)
            for request, batch_slice in ((s[0], s) for s in prepared_batch.request_batch_slices)
        }

    @override
    def save_sampler_checkpoint(self, output_path: Any, model_id: str, persist: bool = True) -> None:
        # `persist` is ignored: a file costs 0.2 s, and only a file can be sampled after the weights moved on.
        self.adapters.write_sampler_archive(model_id, Path(str(output_path)))

    @override
    def save_checkpoint(self, output_path: Any, model_id: str) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            save_file(self.adapters.state_dict(model_id), folder / "adapter_model.safetensors")
            torch.save(self.optimizers[model_id].state_dict(), folder / "optimizer.pt")
            write_archive(folder, Path(str(output_path)))

    @override
    def load_checkpoint(self, checkpoint_path: Any, model_id: str, load_optimizer: bool) -> None:
        with tempfile.TemporaryDirectory() as name, tarfile.open(str(checkpoint_path), "r:gz") as tar:
            tar.extractall(name, filter="data")
            folder = Path(name)
            self.adapters.load_state_dict(model_id, load_file(folder / "adapter_model.safetensors"))
            if load_optimizer:
                state = io.BytesIO((folder / "optimizer.pt").read_bytes())
                self.optimizers[model_id].load_state_dict(torch.load(state, weights_only=True))

    def _model_pass(self, batch: types.PreparedModelPassBatch, *, train: bool) -> dict[str, Any]:
        """One forward (and backward) over the batch, model by model; a loss we do not have fails its request alone."""
        inputs = [rendered.prompt_ids for rendered in render_model_input(batch.all_model_inputs)]
        results: dict[str, Any] = {}
        for request, model_id, start, end in batch.request_batch_slices:
            loss = batch.all_loss_fns[start] if end > start else "cross_entropy"
            if loss not in LOSSES:
                results[request] = types.ErrorResponse(
                    error=f"loss {loss!r} is not one of this backend's: {', '.join(sorted(LOSSES))}",
                    status="failed",
                )
                continue
            self.adapters.activate(model_id)
            outputs: dict[int, dict[str, Any]] = {}
            for group in micro_batches(inputs[start:end], self.config.tokens_per_pass):
                rows = [start + i for i in group]
                with torch.set_grad_enabled(train):
                    outputs |= self._micro_pass(batch, inputs, rows, loss, train=train)
            total = sum(sum(output["elementwise_loss"]["data"]) for output in outputs.values())
            results[request] = types.ForwardBackwardOutput(
                loss_fn_output_type="scalar",
                loss_fn_outputs=[outputs[i] for i in range(start, end)],
                metrics={"loss:sum": total},
            )
        return results

    def _micro_pass(
        self,
        batch: types.PreparedModelPassBatch,
        inputs: list[list[int]],
        rows: list[int],
        loss: str,
        *,
        train: bool,
    ) -> dict[int, dict[str, Any]]:
        """Losses and logprobs of some rows; gradients are added to the active adapter when `train`."""

        def column(values: list[list[float]]) -> Tensor:
            return pad([values[i] or [0.0] * len(inputs[i]) for i in rows], torch.float32, self.device)

        targets = pad([batch.all_targets[i] for i in rows], torch.long, self.device)
        mask = column(batch.all_token_weights)
        model = self.adapters.model
        logprobs = token_logprobs(
            model, hidden_states(model, [inputs[i] for i in rows], self.device), targets, mask != 0
        )
        config = batch.all_loss_fn_configs[rows[0]] or {}
        losses = LOSSES[loss](
            logprobs, column(batch.all_sampling_logprobs), column(batch.all_advantages), mask, config
        )
        if train and losses.requires_grad:
            losses.sum().backward()
        shown = {"elementwise_loss": losses.detach().cpu(), "logprobs": logprobs.detach().cpu()}
        return {
            i: {name: _tensor(values[k, : len(inputs[i])]) for name, values in shown.items()}
            for k, i in enumerate(rows)
        }

    def _settings(self, params: types.SamplingParams) -> SampleSettings:
        return SampleSettings(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            seed=params.seed,
            top_k=params.top_k,
            top_p=params.top_p,
            stop_tokens=frozenset(params.stop_tokens or ()) | self.stop_tokens,
            stop_strings=tuple(params.stop_strings or ()),
        )

    def _decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids))

    def _sample_output(
        self,
        prompts: list[list[int]],
        results: list[Sampled | None],
        errors: dict[int, str],
        batch_slice: tuple[str, str, int, int, bool, int],
        batch: types.PreparedSampleBatch,
    ) -> types.SampleOutput | types.ErrorResponse:
        _, _, start, end, wants_logprobs, top_k = batch_slice
        if start in errors:
            return types.ErrorResponse(error=errors[start], status="failed")
        sequences = [
            types.GeneratedSequence(
                stop_reason="stop" if r.stop_reason == "stop" else "length",
                tokens=r.token_ids,
                logprobs=r.logprobs,
            )
            for r in results[start:end]
            if r is not None
        ]
        if not wants_logprobs:
            return types.SampleOutput(sequences=sequences)
        path = batch.all_checkpoint_paths[start]
        model = self.adapters.activate(self.adapters.snapshot(Path(path)) if path else None)
        scored, top = _prompt_logprobs(model, prompts[start], top_k, self.device)
        return types.SampleOutput(sequences=sequences, prompt_logprobs=scored, topk_prompt_logprobs=top)


@torch.inference_mode()
def _prompt_logprobs(
    model: Any, prompt: list[int], top_k: int, device: torch.device
) -> tuple[list[float | None], list[list[tuple[int, float]] | None] | None]:
    """The logprob of each prompt token but the first, and the `top_k` likeliest at each place."""
    ids = torch.tensor([prompt], device=device)
    logprobs = model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
    scored = logprobs.gather(-1, ids[0, 1:, None])[:, 0].tolist()
    if not top_k:
        return [None, *scored], None
    values, indices = logprobs.topk(min(top_k, logprobs.shape[-1]), -1)
    rows = [list(zip(i, v, strict=True)) for i, v in zip(indices.tolist(), values.tolist(), strict=True)]
    return [None, *scored], [None, *rows]


def _tensor(values: Tensor) -> dict[str, Any]:
    return {"data": values.tolist(), "dtype": "float32", "shape": [len(values)]}


def _device(name: str) -> torch.device:
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _dtype(name: str, device: torch.device) -> torch.dtype:
    """bfloat16 where the device multiplies it natively, float32 elsewhere (emulated bf16 is slower than float32)."""
    if name != "auto":
        chosen: torch.dtype = getattr(torch, name)
        return chosen
    if device.type == "cuda":
        return torch.bfloat16
    return torch.bfloat16 if device.type == "cpu" and _cpu_has_bf16() else torch.float32


def _cpu_has_bf16() -> bool:
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text(errors="replace")
        return "avx512_bf16" in flags or "amx_bf16" in flags
    return False


def _end_tokens(base_model: str, tokenizer: Any) -> frozenset[int]:
    """The ids that end a turn, from the tokenizer and the generation config."""
    ids = {tokenizer.eos_token_id}
    with contextlib.suppress(OSError):
        eos = GenerationConfig.from_pretrained(base_model).eos_token_id
        ids |= set(eos) if isinstance(eos, list) else {eos}
    return frozenset(i for i in ids if i is not None)
