"""A packed file tells what it holds, and unpacks to nothing but a run of a size that fits."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import warnings
import zipfile
from pathlib import Path

import pytest
from tests.support.sample_runs import write_sample

import kernelscope
from kernelscope import RunError
from kernelscope.cli import main
from kernelscope.store.folder import Invocation, read_invocation, write_invocation
from kernelscope.store.packing import pack, unpack


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.kscope"
    write_sample(path)
    write_invocation(
        path, Invocation(("python", "train.py", "--api-key", "abc123"), "/data/me/project", 1, 2, 0)
    )
    (path / "values" / "3").mkdir(parents=True)
    (path / "values" / "3" / "before_k_in_ptr0_cpu.pt").write_bytes(b"evidence" * 100)
    return path


def names(file: Path) -> set[str]:
    with zipfile.ZipFile(file) as archive:
        return set(archive.namelist())


def test_what_a_watch_saved_is_packed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`run --stop-on nan` saves the inputs of the call that it stopped at: the evidence."""
    (run / "values" / "hit_12").mkdir()
    (run / "values" / "hit_12" / "before_launch_k_arg0_1_cpu.pt").write_bytes(b"evidence")
    assert main(["pack", str(run), "-o", "a.zip"]) == 0
    assert "not packed" not in capsys.readouterr().out
    assert "values/hit_12/before_launch_k_arg0_1_cpu.pt" in names(Path("a.zip"))
    back = unpack(Path("a.zip"), Path("back.kscope"))
    assert (back / "values" / "hit_12" / "before_launch_k_arg0_1_cpu.pt").read_bytes() == b"evidence"


def test_files_that_stay_behind_are_counted(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "values" / "notes.txt").write_text("mine", encoding="utf-8")
    assert main(["pack", str(run), "-o", "a.zip"]) == 0
    assert "note: 1 other file in tensors/ and values/ is not packed" in capsys.readouterr().out
    (run / "values" / "3" / "x.txt").write_text("mine", encoding="utf-8")
    assert main(["pack", str(run), "-o", "b.zip"]) == 0
    assert "note: 2 other files in tensors/ and values/ are not packed" in capsys.readouterr().out


def test_a_link_to_a_run_is_not_an_empty_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused, and the reason is said."""
    other = Path("other.kscope")
    other.mkdir()
    (other / "run.db").symlink_to(run / "run.db")
    for words in (["show"], ["pack", "-o", "a.zip"]):
        assert main([words[0], str(other), *words[1:]]) == 2
        assert "run.db is a symbolic link" in capsys.readouterr().err
    assert not Path("a.zip").exists()


def test_values_are_packed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", str(run), "-o", "a.zip"]) == 0
    assert "1 file of values, 800 B" in capsys.readouterr().out
    assert names(Path("a.zip")) == {"run.db", "flight", "command.json", "values/3/before_k_in_ptr0_cpu.pt"}
    back = unpack(Path("a.zip"), Path("back.kscope"))
    assert (back / "values" / "3" / "before_k_in_ptr0_cpu.pt").read_bytes() == b"evidence" * 100
    assert main(["pack", str(run), "--without", "values", "-o", "b.zip"]) == 0
    assert not [name for name in names(Path("b.zip")) if name.startswith("values")]


def test_everything_is_private(run: Path) -> None:
    pack(run, Path("a.zip"))
    back = unpack(Path("a.zip"), Path("new/back.kscope"))
    main(["report", str(run), "-o", "page.html"])
    main(["export", str(run), "--json", "-o", "run.json"])
    for path in (
        Path("a.zip"),
        Path("page.html"),
        Path("run.json"),
        back.parent,
        back,
        *back.rglob("*"),
        run / "run.db",
        run / "flight",
        run / "command.json",
    ):
        assert not path.stat().st_mode & 0o077, path


def test_share_lists_what_leaves(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", str(run), "--share", "-o", "a.zip"]) == 0
    said = capsys.readouterr().out
    for word in ("paths", "host", "here", "train.py", "/data/me/project", "source", "kernels", "values"):
        assert word in said
    assert "abc123" not in said
    assert main(["pack", str(run), "--share", "--json", "-o", "b.zip"]) == 0
    assert json.loads(capsys.readouterr().out)["leaves"]["host"][0] == "here"


def test_what_is_left_out_is_not_in_the_file(run: Path) -> None:
    with sqlite3.connect(run / "run.db", isolation_level=None) as db:
        db.execute("UPDATE graphs SET path = '/data/me/cache/w.py', source = 'SOURCE-1 /data/me/cache/w.py'")
        db.execute("UPDATE sites SET origin = ?", (json.dumps([["/data/me/project/model.py", 3, "f"]]),))
        db.execute("UPDATE kernels SET source = 'SOURCE-2'")
        db.execute("UPDATE info SET value = '\"host-1\"' WHERE key = 'host'")
        db.execute("INSERT INTO findings VALUES (9, 'x', 'see /data/me/project/model.py', 1, '', '')")
    without = ["paths", "host", "command", "environment", "source"]
    pack(run, Path("a.zip"), without=without)
    with zipfile.ZipFile("a.zip") as archive:
        data = archive.read("run.db")
    for word in (b"SOURCE-1", b"SOURCE-2", b"/data/me", b"host-1", b"train.py"):
        assert word not in data, word
    assert b"model.py" in data
    assert "command.json" not in names(Path("a.zip"))
    back = kernelscope.load(unpack(Path("a.zip"), Path("b.kscope")))
    assert len(back) == 40
    assert str(back.calls[0].origin) == "…/model.py:3 in f"
    assert back.why_not_made_here()


def test_a_small_file_that_becomes_a_large_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(run / "run.db", "run.db")
    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write("run.db")
        archive.writestr("tensors/ab.safetensors", bytes(100 << 20))
    assert Path("bomb.zip").stat().st_size < 1 << 20
    assert main(["unpack", "bomb.zip"]) == 2
    assert "--any-size" in capsys.readouterr().err
    assert not Path("kscope-runs/bomb.kscope").exists()
    assert main(["unpack", "bomb.zip", "--any-size"]) == 0


def test_a_run_that_does_not_fit(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(run, Path("a.zip"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(RunError, match=r"has 1\.0 kB left"):
        unpack(Path("a.zip"), Path("b.kscope"))
    assert not Path("b.kscope").exists()


@pytest.mark.parametrize(
    "member",
    [
        "../x",
        "/x",
        "run.db/../../x",
        "tensors/../x.safetensors",
        "values/3/../../x.pt",
        "values/3/.x.pt",
        "evil.py",
        "values/x.pt",
        "rank-1/rank-1/run.db",
        "tensors/x.safetensors",
        "values/3/a\nb.pt",
        "run.db\0x",
    ],
)
def test_only_files_of_a_run(run: Path, member: str) -> None:
    with zipfile.ZipFile("evil.zip", "w") as archive:
        archive.write(run / "run.db", "run.db")
        archive.writestr(zipfile.ZipInfo("placeholder"), b"x")
        archive.infolist()[-1].filename = member
        archive.NameToInfo[member] = archive.infolist()[-1]
    with pytest.raises(RunError, match=r"not a packed run|damaged"):
        unpack(Path("evil.zip"), Path("b.kscope"))
    assert not Path("b.kscope").exists()
    assert sorted(path.name for path in run.parent.iterdir()) == ["evil.zip", "x.kscope"]


def test_the_same_file_twice(run: Path) -> None:
    """By the same name, by names that a file system may take for one, and by bytes that overlap."""
    value = "values/3/before_k_in_ptr0_cpu.pt"
    for names in (("run.db", "run.db"), ("run.db", "RUN.DB"), ("run.db", "run.db."), ("run.db", "run.db/")):
        with zipfile.ZipFile("twice.zip", "w") as archive, warnings.catch_warnings(action="ignore"):
            for name in names:
                archive.write(run / "run.db", name)
        with pytest.raises(RunError, match="not a packed run"):
            unpack(Path("twice.zip"), Path("b.kscope"))
        assert not Path("b.kscope").exists()
    with zipfile.ZipFile("overlap.zip", "w") as archive:
        archive.write(run / "run.db", "run.db")
        archive.writestr(value, b"x" * 100)
        archive.infolist()[1].header_offset = 0
    with pytest.raises(RunError, match=r"damaged|not a packed run"):
        unpack(Path("overlap.zip"), Path("b.kscope"))
    assert not Path("b.kscope").exists()


def test_what_a_zip_says_of_itself_is_not_printed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Comments and names hold anything."""
    with zipfile.ZipFile("said.zip", "w") as archive:
        archive.write(run / "run.db", "run.db")
        archive.comment = b"\x1b[2J\x1b]0;owned\x07"
        archive.writestr("values/1/\x1b[2J\u202e.pt", b"x")
    assert main(["unpack", "said.zip"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("kernelscope: said.zip is not a packed run: it holds")
    assert err.rstrip("\n").isprintable()


@pytest.mark.parametrize("name", ["-rf.zip", "..zip", ".zip", "a b\n\x1b[2J.zip", "x.kscope.zip.zip"])
def test_the_name_of_a_packed_file_leads_nowhere(
    run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pack(run, Path("a.zip"))
    Path("a.zip").rename(name)
    status = main(["unpack", "--", name])
    out, err = capsys.readouterr()
    assert status in (0, 2)
    assert "\x1b" not in out + err
    made = [path.parent.resolve() for path in Path().resolve().rglob("run.db") if path.parent != run]
    assert all(path.parent == Path("kscope-runs").resolve() for path in made), made
    assert bool(made) == (status == 0)


def test_a_link_in_a_zip_is_a_file(run: Path) -> None:
    link = zipfile.ZipInfo("flight")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile("link.zip", "w") as archive:
        archive.write(run / "run.db", "run.db")
        archive.writestr(link, "/etc/passwd")
    back = unpack(Path("link.zip"), Path("b.kscope"))
    assert not (back / "flight").is_symlink()
    assert (back / "flight").read_text(encoding="utf-8") == "/etc/passwd"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_to_compress(run: Path, method: int) -> None:
    with zipfile.ZipFile("x.zip", "w", method) as archive:
        archive.write(run / "run.db", "run.db")
    with pytest.raises(RunError, match="unknown compression"):
        unpack(Path("x.zip"), Path("b.kscope"))


def test_secrets_of_the_command_are_not_kept(run: Path) -> None:
    invocation = read_invocation(run)
    assert invocation is not None
    assert invocation.command == ("python", "train.py", "--api-key", "[secret]")
    assert invocation.secrets == 1
    assert "abc123" not in (run / "command.json").read_text(encoding="utf-8")


def test_packed_and_unpacked_here_it_is_still_ours(run: Path) -> None:
    pack(run, Path("a.zip"))
    assert kernelscope.load(unpack(Path("a.zip"), Path("b.kscope"))).why_not_made_here() == ""


def test_another_user_has_another_key(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert kernelscope.load(run).why_not_made_here() == ""
    shutil.copytree(run, "copy.kscope")
    assert kernelscope.load("copy.kscope").why_not_made_here() == ""
    monkeypatch.setitem(os.environ, "XDG_STATE_HOME", str(tmp_path / "other"))
    assert "signature is not yours" in kernelscope.load(run).why_not_made_here()
    assert not (tmp_path / "other").exists()  # looking makes no key


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE kernels SET source = 'x' WHERE id = 1",
        "UPDATE sites SET line = 3",
        "DELETE FROM stages WHERE id = 1",
        "UPDATE graphs SET source = ''",
        "UPDATE arguments SET wrapper_name = 'x' WHERE position = 0",
        "INSERT INTO kernels VALUES (99, 'k', 'cpp', 'i', 'evil', '')",
        "INSERT INTO info VALUES ('compiler_settings', '{}')",
        "DELETE FROM info WHERE key = 'origin'",
        "UPDATE info SET value = '\"other\"' WHERE key = 'uuid'",
    ],
)
def test_a_run_that_was_changed_is_not_ours(run: Path, change: str) -> None:
    with sqlite3.connect(run / "run.db", isolation_level=None) as db:
        db.execute(change)
    assert kernelscope.load(run).why_not_made_here()


def test_a_copy_of_a_strangers_run_is_not_signed(run: Path) -> None:
    with sqlite3.connect(run / "run.db", isolation_level=None) as db:
        db.execute("UPDATE kernels SET source = 'evil'")
    copy = kernelscope.load(run).save("copy.kscope")
    assert "not signed" in kernelscope.load(copy).why_not_made_here()


def test_the_signature_of_another_run_does_not_fit(run: Path) -> None:
    write_sample(Path("y.kscope"), text="evil()\n")
    with sqlite3.connect(run / "run.db") as db:
        [(origin,)] = db.execute("SELECT value FROM info WHERE key = 'origin'").fetchall()
    with sqlite3.connect("y.kscope/run.db", isolation_level=None) as db:
        db.execute("UPDATE info SET value = ? WHERE key = 'origin'", (origin,))
    assert kernelscope.load("y.kscope").why_not_made_here()
