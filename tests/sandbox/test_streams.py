"""Bounded output."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox.streams import HeadTail, shorten


@given(st.lists(st.binary(max_size=40)), st.integers(2, 50))
def test_what_fits_is_kept_whole_and_what_does_not_keeps_head_and_tail(
    chunks: list[bytes], kept: int
) -> None:
    window, whole = HeadTail(kept), b"".join(chunks)
    for chunk in chunks:
        window.add(chunk)
    half = kept // 2
    if len(whole) <= 2 * half:
        assert window.text() == whole.decode("utf-8", "replace")
    else:
        assert f"{len(whole) - 2 * half} bytes left out" in window.text()
        assert window.text().startswith(whole[:half].decode("utf-8", "replace"))
        assert window.text().endswith(whole[-half:].decode("utf-8", "replace"))


def test_shortened_text_says_how_much_is_missing() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefgh", 4) == "ab\n[… 4 characters left out …]\ngh"
