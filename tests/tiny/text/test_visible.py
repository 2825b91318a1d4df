"""Nothing that a terminal obeys or hides is left in a text, and JSON keeps its meaning."""

from __future__ import annotations

import io
import json
import sys
import unicodedata

from kernelscope.text.visible import control, one_line, visible, visible_form, visible_stream

KEPT = "\n\t"


def test_every_control_and_format_character_is_shown() -> None:
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") and letter not in KEPT:
            shown = visible(f"a{letter}b")
            assert letter not in shown, hex(code)
            assert shown.isascii(), hex(code)


def test_ordinary_text_stays() -> None:
    text = "train.py:3 → ↔ … █ µs é 名前\n\tx\r\n"
    assert visible(text) == text
    assert one_line("a\nb\tc\rd") == r"a\nb\tc\rd"


def test_json_means_the_same() -> None:
    given = {"name": "\x1b[2J\x7f\x9b\u202e\u200b\U000e0041", "list": ["\x00"]}
    printed = visible(json.dumps(given, ensure_ascii=False))
    assert printed.isascii()
    assert json.loads(printed) == given


def test_bytes_of_file_names_cannot_spell_a_control_character() -> None:
    for raw in (b"\xc2\x9b31m", b"\x9b", b"\xff\xc2\x9b", b"\xe2\x80\xae", b"\xff\xef\xbb\xbf"):
        shown = visible(raw.decode("ascii", "surrogateescape")).encode("utf-8", "surrogateescape")
        assert not any(0x80 <= byte < 0xA0 for byte in shown), (raw, shown)
        assert b"\xef\xbb\xbf" not in shown
    kept = "/tmp/é".encode().decode("ascii", "surrogateescape")
    assert visible(kept) == kept
    assert visible("\udce9") == "\udce9"  # a name in Latin-1


def test_a_stream_sends_only_our_own_sequences() -> None:
    inner = io.StringIO()
    stream = visible_stream(inner)
    assert visible_stream(stream) is stream
    print("a\x1b[31m", file=stream)
    control(stream, "\r\x1b[K")
    assert inner.getvalue() == "a\\x1b[31m\n\r\x1b[K"


def test_every_text_of_a_document() -> None:
    assert visible_form({"\x1b": ["\x07", 1, None, {"a": "\u202e"}]}) == {
        "\\x1b": ["\\x07", 1, None, {"a": "\\u202e"}]
    }
