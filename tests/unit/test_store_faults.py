"""The store under attack: many processes, killed writers, damage, hostile folders."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_samples import H100, best, families, path, record

from tilewright import store
from tilewright.errors import StoreBusy, StoreError
from tilewright.store import Store, brief
from tilewright.store import own as own_store
from tilewright.store.exchange import SCHEMA
from tilewright.store.record_json import from_json, to_json

__all__ = ["families", "path"]  # fixtures


# ------------------------------------------------------------------------------- many at once

WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from tilewright.record import Record
from tilewright.store import Store
box = Store(sys.argv[1])
for i in range(25):
    box.add(Record(f"p{i}", "d", "f", f"f:w={sys.argv[2]}", "compile", True, reason="x" * 500))
"""


def spawn(script: str, *arguments: object) -> subprocess.Popen[str]:
    root = str(Path(store.__file__).parent.parent)
    command = [sys.executable, "-c", script, *map(str, arguments), root]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE)


def wait_all(children: list[subprocess.Popen[str]]) -> list[str]:
    said = [child.communicate(timeout=60)[1] for child in children]
    assert [child.returncode for child in children] == [0] * len(children), said
    return said


def test_many_processes_make_and_fill_one_store(path: Path) -> None:
    wait_all([spawn(WRITER, path, i) for i in range(6)])
    rows = Store(path).records()
    assert len(rows) == 150 and len({(r.problem, r.config) for r in rows}) == 150


def test_many_processes_meet_a_corrupt_store(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"this is no database, " * 500)
    wait_all([spawn(WRITER, path, i) for i in range(4)])
    box = Store(path)
    assert len(box.info().set_aside) == 1
    assert len({(r.problem, r.config) for r in box.records()}) == 100


def test_a_writer_killed_in_a_transaction_loses_only_that(path: Path) -> None:
    Store(path).add(record())
    script = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 1")
db.execute("BEGIN IMMEDIATE")
for i in range(2000):
    db.execute("INSERT INTO records (problem, body) VALUES ('half', ?)", ("x" * 1000,))
os._exit(0)
"""
    wait_all([spawn(script, path)])
    assert path.with_name(path.name + "-journal").exists()
    assert Store(path).records() == [record()]


def test_busy_for_too_long_says_so(path: Path) -> None:
    box = Store(path, timeout_s=0.2)
    box.add(record())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    start = time.monotonic()
    with pytest.raises(StoreBusy, match="locked"):
        box.add(record())
    assert 0.1 < time.monotonic() - start < 5
    other.execute("ROLLBACK")
    other.close()
    box.add(record())
    assert len(box.records()) == 2


def test_a_busy_store_is_kept_and_asked_again_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(path.parent))
    monkeypatch.setattr(brief, "BRIEF_S", 0.1)
    own = Store()
    own.add(record())
    with closing(sqlite3.connect(own.path, isolation_level=None)) as other, warnings.catch_warnings():
        warnings.simplefilter("error")
        other.execute("BEGIN EXCLUSIVE")
        found = own_store.default_store()
    assert found is not None and found.path == own.path and len(found.records()) == 1


def test_a_store_survives_a_fork(path: Path) -> None:
    box = Store(path)
    box.add(record())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        child = os.fork()
    if child == 0:
        try:
            box.add(record(us=2.0))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    box.add(record(us=3.0))
    assert len(box.records()) == 3


# ------------------------------------------------------------------------------- damage


def damage_text(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 100)


def damage_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def damage_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(bytes(data))


def damage_head(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[16:60] = os.urandom(44)
    path.write_bytes(bytes(data))


def damage_schema(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE records", b"CREAT\xcd TABLE records"))


def damage_column(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"id INTEGER PRIMARY", b"ie INTEGER PRIMARY"))


def damage_other_tables(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE records (surprise TEXT)")
        db.execute(f"PRAGMA user_version = {SCHEMA}")


def damage_other_version(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    "damage",
    [
        damage_half, damage_pages, damage_head, damage_schema, damage_column, damage_other_tables,
    ],  # fmt: skip
)
def test_a_corrupt_database_is_a_miss(path: Path, damage: Any) -> None:
    box = Store(path, shipped=False)
    box.add_all(replace(record(), problem=f"p{i}", reason="x" * 300) for i in range(40))
    damage(path)
    with pytest.warns(RuntimeWarning, match="was corrupt") as caught:
        assert best(box) is None
        box.add(record())
        assert best(box) == record().config
    assert len(caught) == 1
    assert len(box.info().set_aside) >= 1 and len(box.records()) == 1


def test_a_store_whose_index_is_damaged_can_be_cleared(path: Path) -> None:
    """Reading by it finds less, deleting by it fails; nothing but a look at its entries shows why."""
    box = Store(path, shipped=False)
    box.add_all(replace(record(), problem=f"p{i}") for i in range(3))
    with closing(sqlite3.connect(path)) as db:
        page = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'by_problem'").fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
    data = bytearray(path.read_bytes())
    index = slice((page - 1) * size, page * size)
    data[index] = data[index].replace(b"p1", b"q1")
    path.write_bytes(bytes(data))
    with pytest.warns(RuntimeWarning, match="was corrupt"):
        box.clear()
    assert box.records() == [] and len(box.info().set_aside) == 1


@pytest.mark.parametrize("damage", [damage_text, damage_other_version])
def test_whatever_is_in_ones_own_store_is_set_aside(
    path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    """Its name has the version: one of another is damaged."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(path.parent))
    box = Store(shipped=False)
    box.add(record())
    damage(box.path)
    with pytest.warns(RuntimeWarning, match="was corrupt"):
        assert best(box) is None
    assert len(box.info().set_aside) == 1


def damage_by_another_program(path: Path, version: int = 0) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE people (name TEXT)")
        db.execute(f"PRAGMA user_version = {version}")


def damage_by_one_with_our_version(path: Path) -> None:
    damage_by_another_program(path, SCHEMA)


def damage_by_one_with_another_version(path: Path) -> None:
    damage_by_another_program(path, 68)


def test_a_store_that_another_process_has_just_made_is_sound(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made between this one's two looks at its version."""
    box, other = Store(path, shipped=False), Store(path, shipped=False)
    create = box.database._create

    def late(db: sqlite3.Connection) -> None:
        other.add(record())
        create(db)

    monkeypatch.setattr(box.database, "_create", late)
    assert len(box.records()) == 1 and box.info().set_aside == ()


@pytest.mark.parametrize(
    "make",
    [
        damage_text,
        damage_by_another_program,
        damage_by_one_with_our_version,
        damage_by_one_with_another_version,
    ],
)
def test_what_never_was_a_store_is_left_alone(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    before = path.read_bytes()
    box = Store(path, shipped=False)
    for use in (lambda: best(box), lambda: box.add(record())):
        with pytest.raises(StoreError, match=f"{path}: is no store of tilewright's, so it is left as it is"):
            use()
    assert path.read_bytes() == before and [p for p in path.parent.iterdir() if "corrupt" in p.name] == []


def test_a_store_of_another_version_is_left_alone(path: Path) -> None:
    """Two versions that share a named file would set aside each other's winners in turn."""
    box = Store(path, shipped=False)
    box.add(record())
    damage_other_version(path)
    before = path.read_bytes()
    for use in (lambda: best(box), lambda: box.add(record())):
        with pytest.raises(StoreError, match=f"{path}: is of another version .*schema is 99.*another file"):
            use()
    assert path.read_bytes() == before and [p for p in path.parent.iterdir() if "corrupt" in p.name] == []
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA}")
    assert best(box) == record().config


def test_an_emptied_file_is_begun_anew(path: Path) -> None:
    box = Store(path)
    box.add(record())
    path.write_bytes(b"")
    assert box.records() == []
    box.add(record())
    assert len(box.records()) == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body", "{}"),
        ("body", "not json"),
        ("body", "[" * 5000),
        ("body", None),
        ("body", b"\xff\xfe\x00"),
        ("device", H100 + "x"),
        ("source", "x"),
        ("digest", ""),
    ],
)
def test_a_corrupt_record_is_a_miss(path: Path, column: str, value: object) -> None:
    box = Store(path, shipped=False)
    box.add(record("tiles:t=1.u=0", 5.0))
    box.add(record("tiles:t=2.u=0", 1.0))
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE records SET {column} = ? WHERE cold_us = 1.0", (value,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert best(box) == "tiles:t=1.u=0"
        assert [r.config for r in box.records()] == ["tiles:t=1.u=0"]
        assert best(box) == "tiles:t=1.u=0"
    assert len(caught) == 1 and "corrupt record" in str(caught[0].message)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT config FROM set_aside").fetchall() == [("tiles:t=2.u=0",)]
        assert db.execute("SELECT config FROM records").fetchall() == [("tiles:t=1.u=0",)]


def test_a_record_of_another_version_is_passed_over_and_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older checkout that shares the store must not lose what a newer one measured."""
    box = Store(path, shipped=False)
    box.add(record("tiles:t=1.u=0", 5.0))
    with monkeypatch.context() as newer:
        newer.setattr("tilewright.store.rows.to_json", lambda one: to_json(one)[:-1] + ', "surprise": 1}')
        box.add(record("tiles:t=2.u=0", 1.0))
    with pytest.warns(RuntimeWarning, match="of another version.*surprise"):
        assert best(box) == "tiles:t=1.u=0"
    assert box.info().records == 2
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT * FROM set_aside").fetchall() == []


def test_what_was_set_aside_is_cleared_too(path: Path) -> None:
    box = Store(path, shipped=False)
    box.add(record())
    with sqlite3.connect(path) as db:
        db.execute("UPDATE records SET digest = ''")
    with pytest.warns(RuntimeWarning, match="corrupt record"):
        assert box.records() == []
    assert box.clear(problem="n1c1h1w1k1r1s1-f32") == 0
    with closing(sqlite3.connect(path)) as db:
        assert len(db.execute("SELECT * FROM set_aside").fetchall()) == 1
    assert box.clear() == 0
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT * FROM set_aside").fetchall() == []


@pytest.mark.parametrize("device", [None, b"\x00\xff"])
def test_a_record_of_no_device_is_of_no_layer_alike(path: Path, device: object) -> None:
    """A search, and an untuned layer, look at those of all devices."""
    box = Store(path, shipped=False)
    box.add(record())
    with sqlite3.connect(path) as db:
        db.execute("UPDATE records SET device = ?", (device,))
    assert box.same_sizes(record().problem) == set()


def test_a_record_with_wrong_types_is_refused() -> None:
    good = json.loads(to_json(record()))
    for name, wrong in [
        ("problem", 5), ("outcome", "fine"), ("deterministic", 1), ("check", []), ("check", {"ok": True}),
        ("measurement", {"cold_us": "5"}), ("registers", 1.5), ("registers", -1), ("compile_s", None),
        ("context", {"a": 1}), ("context", {"worst": "high"}), ("reason", 5), ("surprise", 1),
        ("config", "x\ny"), ("family", None), ("context", []), ("context", {"a": 1, "b": "c"}),
        ("check", good["check"] | {"worst": "0.1"}), ("check", good["check"] | {"surprise": 1}),
    ]:  # fmt: skip
        with pytest.raises(StoreError, match="record"):
            from_json(json.dumps(good | {name: wrong}))
    assert from_json(json.dumps(good)) == replace(record(), source="")
    with pytest.raises(StoreError, match="record: not JSON"):
        from_json("{")


# ------------------------------------------------------------------------------- a hostile folder


def test_folder_and_file_are_private(tmp_path: Path) -> None:
    box = Store(tmp_path / "new" / "records.sqlite")
    box.add(record())
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new" / "records.sqlite").stat().st_mode & 0o077 == 0


def test_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "mine"))
    assert Store().path.parent == tmp_path / "mine"


@pytest.mark.parametrize("own", [False, True])
def test_a_folder_that_was_removed_is_made_again(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "mine"))
    box = Store(None if own else tmp_path / "mine" / "records.sqlite")
    box.add(record())
    shutil.rmtree(tmp_path / "mine")
    assert box.records() == []
    box.add(record())
    assert len(box.records()) == 1 and (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    shutil.rmtree(tmp_path / "mine")
    (tmp_path / "another").mkdir()
    (tmp_path / "mine").symlink_to(tmp_path / "another")
    with pytest.raises(StoreError, match=f"{tmp_path / 'mine'}: is a symbolic link"):
        box.add(record())


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StoreError, match="symbolic link.*a folder of your own"):
        Store(tmp_path / "link" / "records.sqlite")


@pytest.mark.parametrize("tail", ["", "-journal", "-wal", "-shm"])
@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe"])
def test_a_file_that_is_none_is_refused(path: Path, kind: str, tail: str) -> None:
    part = path.with_name(path.name + tail)
    elsewhere = path.parent / "precious"
    if kind == "link":
        elsewhere.write_text("keep me")
    if kind in ("link", "dangling"):
        part.symlink_to(elsewhere)
    elif kind == "folder":
        part.mkdir()
    else:
        os.mkfifo(part)
    with pytest.raises(StoreError, match="symbolic link or no plain file"):
        Store(path).add(record())
    assert elsewhere.exists() == (kind == "link")
    assert kind != "link" or elsewhere.read_text() == "keep me"


def test_what_stands_in_place_of_the_own_store_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody named the file, so "name another" would help nobody."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(folder))
    Store().path.mkdir()
    with pytest.raises(StoreError, match="no plain file; remove it, or set TILEWRIGHT_CACHE to a folder"):
        Store()


def test_a_folder_that_others_can_write_is_refused(path: Path) -> None:
    path.parent.chmod(0o777)
    with pytest.raises(StoreError, match="others can write to it; name a file in a folder of your own"):
        Store(path)


@pytest.mark.parametrize("mode", (0o775, 0o1777))
def test_a_file_that_a_user_named_may_lie_where_a_group_writes_or_in_a_folder_like_tmp(
    mode: int, path: Path
) -> None:
    path.parent.chmod(mode)
    Store(path).add(record())
    assert Store(path).info().records == 1
    assert path.stat().st_mode & 0o777 == 0o600


def test_each_error_has_its_own_advice(path: Path) -> None:
    store, full = Store(path), "PRAGMA max_page_count = 1"  # as many as there are
    store.add(record())

    def fill(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE large AS SELECT zeroblob(1000000)")

    before = store.database._connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.database, "_connect", lambda: (db := before(), db.execute(full))[0])
        with pytest.raises(StoreError, match="database or disk is full; make room$"):
            store.database.use(fill, True)
    quick = Store(path, timeout_s=0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="database is locked; is another process stuck\\?$"):
            quick.add(record())


def test_the_advice_for_a_shared_cache_folder_changes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the system's folder for temporary files, and the user root."""
    tmp_path.chmod(0o1777)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    with pytest.raises(StoreError, match="others can write to it; set TILEWRIGHT_CACHE to a folder of"):
        Store()


@pytest.mark.parametrize("path", [":memory:", "file:records.sqlite", "file::memory:?cache=shared"])
def test_a_store_in_memory_alone_or_by_a_uri_is_refused(path: str) -> None:
    with pytest.raises(StoreError, match="no URI, and never in memory alone"):
        Store(path)


def test_another_users_folder_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(StoreError, match="another user"):
        Store(path)


def test_another_users_file_is_refused(path: Path) -> None:
    path.touch()
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, 12345)
    with pytest.raises(StoreError, match="belongs to user 12345"):
        Store(path)


def test_records_that_another_user_wrote_beside_a_store_are_not_read(path: Path) -> None:
    """SQLite takes what a write-ahead log holds for the database's content, even if that has none itself."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    path.parent.chmod(0o1777)
    box = Store(path)
    box.add(record())
    theirs, log = path.with_name("theirs"), path.with_name(path.name + "-wal")
    theirs.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(theirs, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("DELETE FROM records")
        log.write_bytes(theirs.with_name("theirs-wal").read_bytes())
    os.chown(log, 12345, 12345)
    with pytest.raises(StoreError, match="-wal: belongs to user 12345, not to you; name another"):
        box.records()
    log.unlink()
    assert len(box.records()) == 1


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="name a file in a folder of your own"):
        Store(tmp_path / "file" / "cache" / "records.sqlite")
