"""Where the settings of values come from: arguments, torch's config, the environment, the command line."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import torch

import kernelscope
from kernelscope.config import (
    FILTERED,
    PRINTER,
    RUN,
    printer_from_environment,
    recorded_environment,
    wants_printer,
)
from kernelscope.errors import RunError
from kernelscope.values import observe, watch


def test_bad_settings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown level; use 0"), observe("4"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be saved"), observe("1", folder=tmp_path / "file" / "v"):
        pass
    with pytest.raises(ValueError, match="only level 1 saves"), observe("2", folder=tmp_path / "v"):
        pass
    with pytest.raises(ValueError, match="use one of 'stop'"), watch("nan", on_hit="cry"):
        pass
    with pytest.raises(ValueError, match="needs a condition"), watch():
        pass
    with pytest.raises(TypeError, match="several globs, not 3"), observe("2", kernels=3):  # type: ignore[arg-type]
        pass


def test_values_are_public() -> None:
    assert kernelscope.values.observe is observe
    with pytest.raises(AttributeError, match="it has"):
        _ = kernelscope.values.nothing


def test_torchs_own_printer_is_switched_off_and_passed_on() -> None:
    import torch._inductor.config as config

    from kernelscope.compiler_control.stock_printer import StockPrinter

    told: list[tuple[str, str]] = []
    printer = StockPrinter(lambda level, kernels: told.append((level, kernels)))
    with config.patch({"aot_inductor.debug_intermediate_value_printer": "2"}):
        printer.install()
        try:
            assert config.aot_inductor.debug_intermediate_value_printer == "0"
            config.aot_inductor.filtered_kernel_names = "a,b"
            config.aot_inductor.debug_intermediate_value_printer = "3"
            config.debug = False  # not ours
            assert config.aot_inductor.debug_intermediate_value_printer == "0"
        finally:
            printer.remove()
        assert told == [("", "a,b"), ("3", "a,b")]
        assert config.aot_inductor.debug_intermediate_value_printer == "2"
    config.aot_inductor.filtered_kernel_names = None
    assert config.aot_inductor.debug_intermediate_value_printer == "0"


def test_a_session_can_be_turned_to_other_settings() -> None:
    from kernelscope.config import Config, ValueSettings
    from kernelscope.recording import Recording
    from kernelscope.values.session import ValueSession

    stream = io.StringIO()
    recording = Recording(Config(ops="all"), keeps_calls=False)
    session = ValueSession(recording, ValueSettings(), stream=stream)
    recording.open()
    try:
        torch.ones(2).neg()
        session.turn_to(ValueSettings(names=True, kernels=("*neg*",)))
        torch.ones(2).neg().exp()
        session.turn_to(ValueSettings())
        torch.ones(2).neg()
    finally:
        session.close()
        recording.close()
    assert stream.getvalue() == "[ before_launch: aten.neg.default ]\n[ after_launch: aten.neg.default ]\n"
    assert len(recording.run) == 0


def test_what_a_program_sets_in_torchs_config() -> None:
    """A level goes before that of the command line until it is off again; so do names of kernels."""
    from kernelscope.config import Config, ValueSettings
    from kernelscope.recording import Recording
    from kernelscope.startup.script_values import SetInCode
    from kernelscope.values.session import ValueSession

    asked = ValueSettings(names=True, kernels=("*exp*",))
    stream = io.StringIO()
    recording = Recording(Config(ops="all"), keeps_calls=False)
    session = ValueSession(recording, asked, stream=stream)
    set_in_code = SetInCode(session, asked, None)

    def seen() -> set[str]:
        stream.seek(0)
        stream.truncate()
        torch.ones(2).neg().exp().sin()
        return set(re.findall(r"(?:before_launch: |after_launch - )aten\.(\w+)", stream.getvalue()))

    recording.open()
    try:
        assert seen() == {"exp"}
        set_in_code("", "NEG")  # only the kernels are set: the level stays
        assert seen() == {"neg"}
        assert "[ before_launch" in stream.getvalue()
        set_in_code("2", "NEG")
        assert seen() == {"neg"}
        assert "inductor: before_launch" in stream.getvalue()
        set_in_code("0", "NEG")
        assert seen() == {"neg"}
        set_in_code("", "")
        assert seen() == {"exp"}
        set_in_code("2", "")
        assert seen() == {"exp"}
        set_in_code("0", "")
        assert seen() == {"exp"}
        assert "[ before_launch" in stream.getvalue()
        with pytest.raises(ValueError, match="debug_intermediate_value_printer='9': unknown level"):
            set_in_code("9", "")
    finally:
        session.close()
        recording.close()


def test_kernels_from_the_command_line_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelscope.options import parse_options, take_over_printer, value_settings_of

    def kernels(text: str) -> tuple[str, ...]:
        given = parse_options(text)
        take_over_printer(given)
        return value_settings_of(given).kernels

    assert kernels("--print --values-of a,b --values-of c") == ("a", "b", "c")
    monkeypatch.setenv(FILTERED, "x, y")
    assert kernels("--print") == kernels("--save-to d") == ("x", "y")
    assert kernels("--stop-on nan") == ()  # it is about what is printed


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("0", ())),
        ({PRINTER: " 2 ", FILTERED: "a, b,"}, ("2", ("a", "b"))),
        ({PRINTER: "", FILTERED: "a"}, ("0", ("a",))),
    ],
)
def test_variables(environ: dict[str, str], expected: tuple[str, tuple[str, ...]]) -> None:
    assert printer_from_environment(environ) == expected


def test_a_wrong_variable() -> None:
    with pytest.raises(ValueError, match="unknown level; use 0"):
        printer_from_environment({PRINTER: "four"})
    assert wants_printer({PRINTER: "2"})
    assert not wants_printer({PRINTER: "2", RUN: "x"})  # a recorded process has it among its options
    child = recorded_environment(Path("r"), "--print", Path("s"), {PRINTER: "2"})
    assert child[PRINTER] == "0"
