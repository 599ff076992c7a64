"""The built-in agent as the steps use it: one configuration, and the policy that samples it from a Tinker server.

Keeps true: training rollouts and evaluations run the same agent on the same renderer, token in and token out. Leaves to
others: the loop of turns and tools (sandbox.agents).
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sandbox.agents import BashAgent, Completion
from serving.renderer import Renderer
from serving.server import TinkerServer


class AgentConfig(BaseModel):
    """The bash-tool agent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system_prompt: str = "You do file chores in /app with the bash tool."
    """What the agent is told before its task."""
    max_turns: int = Field(default=4, ge=1)
    """Model calls in one rollout."""
    max_tokens_per_turn: int = Field(default=96, ge=1)
    """Tokens the model may say at once."""
    max_context_tokens: int = Field(default=768, ge=16)
    """Tokens of the whole conversation; the rollout ends when the next turn would not fit."""
    max_result_chars: int = Field(default=400, ge=16)
    """Characters of one command's output that the model is shown."""


class TinkerPolicy:
    """Samples one turn at a time from a tinker sampling client, waiting for as long as its server lives."""

    def __init__(self, server: TinkerServer, client: Any, stop: list[int]) -> None:
        self._server, self._client, self._stop = server, client, stop

    def sample(self, prompt: list[int], *, max_tokens: int, temperature: float, seed: int) -> Completion:
        """One completion of `prompt`; raises ServerFailed or the SDK's error."""
        from tinker import types

        params = types.SamplingParams(
            max_tokens=max_tokens, temperature=temperature, seed=seed, stop=self._stop
        )
        request = types.ModelInput.from_ints(prompt)
        answer = self._server.result(
            self._client.sample(prompt=request, num_samples=1, sampling_params=params)
        )
        sequence = answer.sequences[0]
        return Completion(list(sequence.tokens), list(sequence.logprobs or []), str(sequence.stop_reason))


def bash_agent(
    server: TinkerServer, client: Any, renderer: Renderer, config: AgentConfig, *, temperature: float
) -> BashAgent:
    """The agent that acts with what `client` samples."""
    return BashAgent(
        TinkerPolicy(server, client, renderer.stop_token_ids),
        renderer,
        system_prompt=config.system_prompt,
        max_turns=config.max_turns,
        max_tokens_per_turn=config.max_tokens_per_turn,
        max_context=config.max_context_tokens,
        max_result_chars=config.max_result_chars,
        temperature=temperature,
    )
