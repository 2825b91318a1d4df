"""`%%kscope`, by executing a notebook with a real kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

for package in ("nbclient", "ipykernel"):
    pytest.importorskip(package, reason=f"needs {package}: make test-integrations")

SRC = Path(__file__).parents[3] / "src"


def executed(cells: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[Any]:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", f"{SRC}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}, **options)
    client.execute()
    return list(notebook.cells)


def html_of(cell: Any) -> list[str]:
    return [out["data"]["text/html"] for out in cell.outputs if "text/html" in out.get("data", {})]


def test_cell_is_recorded_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = executed(
        [
            "%load_ext kernelscope\nimport torch\nhalf = torch.compile(lambda x: x.sin() / 2)",
            "%%kscope run --values stats\ny = half(torch.ones(3))\ny.shape",
            "print([call.kernel_name for call in run.calls], y.shape)",
            "%%kscope --no-page\nhalf(torch.ones(3))\n1 / 0",
            "%%kscope --vales stats\nprint('was run')",
        ],
        tmp_path,
        monkeypatch,
        allow_errors=True,
    )
    shown, page = html_of(cells[1])[-2:]
    assert "cpp_fused_div_sin_0" in shown
    assert page.startswith('<div><iframe sandbox="allow-scripts"')
    assert not [out["text"] for out in cells[1].outputs if out.get("name") == "stderr"]  # IPython's warnings
    assert "cpp_fused_div_sin_0" in page
    assert "<script" not in page  # escaped, for the frame alone
    values = [out["data"]["text/plain"] for out in cells[1].outputs if "data" in out]
    assert "torch.Size([3])" in values
    assert cells[2].outputs[0]["text"] == "['cpp_fused_div_sin_0'] torch.Size([3])\n"
    errors = [out for out in cells[3].outputs if out["output_type"] == "error"]
    assert [error["ename"] for error in errors] == ["ZeroDivisionError"]
    assert "cpp_fused_div_sin_0" in html_of(cells[3])[0]
    assert not any("<iframe" in text for text in html_of(cells[3]))
    [error] = cells[4].outputs
    assert "%%kscope: unrecognized arguments: --vales" in error["evalue"]
    names = sorted(path.name for path in (tmp_path / "kscope-runs").iterdir())
    assert names == ["cell-1.kscope", "cell-2.kscope"]


def errors_of(cell: Any) -> list[str]:
    return [f"{out['ename']}: {out['evalue']}" for out in cell.outputs if out["output_type"] == "error"]


def test_cells_that_cannot_be_recorded_say_why_and_leave_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = executed(
        [
            "%load_ext kernelscope",
            "%%kscope\nprint(1",
            "%%kscope\nreturn 1",
            "%%kscope\nimport asyncio\nawait asyncio.sleep(0)",
            "%%kscope 'x\nprint(1)",
            "%%kscope not-a-name\nprint(1)",
            "%%kscope --help\nprint(1)",
        ],
        tmp_path,
        monkeypatch,
        allow_errors=True,
    )
    texts = [errors_of(cell) for cell in cells]
    assert [len(each) for each in texts] == [0, 1, 1, 1, 1, 1, 0]  # each is shown once
    assert texts[1][0].startswith("SyntaxError")
    assert "'return' outside function" in texts[2][0]
    assert "await outside of a function" in texts[3][0]
    assert "%%kscope: No closing quotation" in texts[4][0]
    assert "'not-a-name' cannot be the name of a variable" in texts[5][0]
    assert "what to record about tensor values" in cells[6].outputs[0]["text"]
    assert "1\n" not in [out.get("text") for cell in cells for out in cell.outputs]
    names = [path.name for path in (tmp_path / "kscope-runs").glob("*")]
    assert names == ["cell-1.kscope"]  # of `return`, which Python refuses only when the cell is compiled
