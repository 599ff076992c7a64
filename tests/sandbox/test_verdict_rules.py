"""Harbor's rules for reading a reward; no engine needed."""

import pytest

from sandbox.errors import VerifierError
from sandbox.verifier import overall, parse_rewards


@pytest.mark.parametrize(
    ("files", "rewards"),
    [
        ({"reward.txt": b"1\n"}, {"reward": 1.0}),
        ({"reward.txt": b" 0.25 "}, {"reward": 0.25}),
        ({"reward.json": b'{"reward": 0.5, "style": 1}'}, {"reward": 0.5, "style": 1.0}),
        ({"reward.json": b'{"reward": true}'}, {"reward": 1.0}),
        ({"reward.json": b'{"reward": 0}', "reward.txt": b"1"}, {"reward": 0.0}),
    ],
)
def test_rewards_are_read_and_json_wins(files: dict[str, bytes], rewards: dict[str, float]) -> None:
    assert parse_rewards(files) == rewards


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, "RewardFileNotFoundError"),
        ({"reward.txt": b""}, "RewardFileEmptyError"),
        ({"reward.json": b" \n", "reward.txt": b"1"}, "RewardFileEmptyError"),
        ({"reward.txt": b"nan"}, "VerifierOutputParseError"),
        ({"reward.txt": b"inf"}, "VerifierOutputParseError"),
        ({"reward.txt": b"pass"}, "VerifierOutputParseError"),
        ({"reward.txt": b"\xff"}, "VerifierOutputParseError"),
        ({"reward.json": b"1"}, "VerifierOutputParseError"),
        ({"reward.json": b"{}"}, "VerifierOutputParseError"),
        ({"reward.json": b'{"reward": NaN}'}, "VerifierOutputParseError"),
        ({"reward.json": b'{"reward": "1"}'}, "VerifierOutputParseError"),
        ({"reward.json": b'{"reward": null}'}, "VerifierOutputParseError"),
        ({"reward.json": b'{"reward": 1' + b"0" * 400 + b"}"}, "VerifierOutputParseError"),
        ({"reward.json": b"[" * 100000}, "VerifierOutputParseError"),
        ({"reward.json": None}, "VerifierOutputParseError"),
    ],
)
def test_what_is_no_reward_is_no_verdict_and_never_0(files: dict[str, bytes | None], kind: str) -> None:
    with pytest.raises(VerifierError) as raised:
        parse_rewards(files)
    assert raised.value.kind == kind


def test_the_reward_called_reward_counts_else_the_mean() -> None:
    assert overall({"reward": 0.0, "other": 1.0}) == 0.0
    assert overall({"a": 0.0, "b": 1.0}) == 0.5
