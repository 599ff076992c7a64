"""What all tests share: a home for Prefect that is not the user's, the gates of the markers, and two models.

A test that needs something this machine lacks is skipped with the reason. Where CI is set it fails instead: a
green run there means that everything ran.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
BASE_IMAGE = "nightschool-base:bookworm"
MODEL_NAME = "smollm2-135m-instruct"
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # their ids are 0, 1, 2, as in SmolLM2

# SmolLM2's own template: it knows no tools, which the renderer has to live with.
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# Read at import by prefect, transformers and matplotlib, so set before any test module is imported.
SCRATCH = tempfile.mkdtemp(prefix="nightschool-tests-")
os.environ.update(
    PREFECT_HOME=f"{SCRATCH}/prefect",
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="120",
    PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW="ignore",
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    MPLCONFIGDIR=f"{SCRATCH}/matplotlib",
    MPLBACKEND="agg",
    TOKENIZERS_PARALLELISM="false",
)
# The user's own settings must not decide a test.
for name in ("NIGHTSCHOOL_HOME", "PREFECT_API_URL", "PREFECT_PROFILE"):
    os.environ.pop(name, None)


def pytest_unconfigure() -> None:
    """The scratch directory goes with the session."""
    shutil.rmtree(SCRATCH, ignore_errors=True)


@cache
def missing_docker() -> str | None:
    """Why no sandbox can run here; None where one can."""
    import docker

    try:
        client = docker.from_env(timeout=20)
    except docker.errors.DockerException as error:
        return f"no Docker engine answers ({error}); run `make setup`"
    try:
        client.images.get(BASE_IMAGE)
    except docker.errors.ImageNotFound:
        return f"the image {BASE_IMAGE} is missing; run `make setup`"
    finally:
        client.close()
    return None


@cache
def real_model() -> Path:
    """Where the embedded model is, or would be."""
    home = Path(os.environ.get("NIGHTSCHOOL_TEST_HOME") or ROOT / "var")
    return home / "models" / MODEL_NAME


def missing_model() -> str | None:
    """Why the embedded model cannot be used; None where it can."""
    if (real_model() / "model.safetensors").is_file():
        return None
    return f"no model in {real_model()}; `make nightly` makes it, NIGHTSCHOOL_TEST_HOME names another home"


def missing_server() -> str | None:
    """Why no SkyRL server can be started; None where one can."""
    from importlib.util import find_spec

    return None if find_spec("skyrl") else "skyrl is not installed; run `make setup`"


@cache
def chromium() -> str | None:
    """The path of Chromium or Chrome, None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next(filter(None, map(shutil.which, names)), None)


def missing_browser() -> str | None:
    """Why no page can be looked at; None where one can."""
    return None if chromium() else "no chromium on the PATH (Debian: apt-get install chromium)"


GATES: dict[str, Callable[[], str | None]] = {
    "docker": missing_docker,
    "server": missing_server,
    "model": missing_model,
    "browser": missing_browser,
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a marked test, or in CI fails it, where what it needs is missing."""
    for name, missing in GATES.items():
        if item.get_closest_marker(name) and (reason := missing()):
            unavailable(reason)


def unavailable(reason: str) -> None:
    """Ends the running test: skipped on a developer's machine, failed in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have this: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def or_skip() -> Callable[[str], None]:
    """For a test that finds out by itself that something is missing: call it with the reason."""
    return unavailable


@pytest.fixture
def browser() -> str:
    """The browser's path, for tests marked `browser`."""
    found = chromium()
    assert found is not None
    return found


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The embedded 135M model, for tests marked `model`; read it, never write there."""
    return real_model()


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random Llama with a byte-level tokenizer, and SmolLM2's template and special ids."""
    directory = tmp_path_factory.mktemp("tiny-llama")
    vocabulary = save_tiny_tokenizer(directory)
    save_tiny_llama(directory, vocabulary)
    return directory


def save_tiny_tokenizer(directory: Path) -> int:
    """Trains a small byte-level BPE on this repository's own prose; returns the size of its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CHAT_TEMPLATE, (ROOT / "LICENSE").read_text(encoding="utf-8")], trainer)
    fast: Any = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        unk_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )
    fast.save_pretrained(directory)
    return int(tokenizer.get_vocab_size())


def save_tiny_llama(directory: Path, vocabulary: int) -> None:
    """Random weights, the same in every session."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = LlamaForCausalLM(config)
    model.generation_config.update(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    model.save_pretrained(directory)
