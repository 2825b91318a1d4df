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
    assert page.startswith('<iframe sandbox="allow-scripts"')
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
