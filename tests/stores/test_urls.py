"""Stores by URL."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adjourn.errors import UsageError
from adjourn.stores import MemoryStore, SQLiteStore, Store, open_store, register_store, urls
from adjourn.testing.suite.bench import Drive


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_store_is_given_back_as_it_is():
    store = MemoryStore()
    assert open_store(store) is store


def test_memory_is_new_each_time_unless_it_has_a_name():
    assert isinstance(open_store("memory://"), MemoryStore)
    assert open_store("memory://") is not open_store("memory://")
    assert open_store("memory://urls") is open_store("memory://urls")
    assert open_store("memory://urls") is not open_store("memory://others")


async def test_a_relative_path_is_relative_to_the_current_folder(here: Path):
    store = open_store("sqlite:///a.db")
    assert isinstance(store, SQLiteStore)
    assert store.path == here / "a.db"
    await Drive(store).start()
    await store.close()
    assert (here / "a.db").exists()


def test_an_absolute_path_has_four_slashes(here: Path):
    store = open_store(f"sqlite:///{here}/a.db")
    assert isinstance(store, SQLiteStore)
    assert store.path == here / "a.db"


def test_a_tilde_is_the_home_folder(here: Path, monkeypatch: pytest.MonkeyPatch):
    home = here / "home"
    monkeypatch.setenv("HOME", str(home))
    files = {
        "sqlite:///~/x.db": home / "x.db",
        "sqlite:///~/a/x.db?timeout=5": home / "a/x.db",
        "sqlite:///./x.db": here / "x.db",
        "sqlite:///./~/x.db": here / "~/x.db",
        "sqlite:///~x.db": here / "~x.db",
        "sqlite:////srv/~/x.db": Path("/srv/~/x.db"),
    }
    for url, path in files.items():
        store = open_store(url)
        assert isinstance(store, SQLiteStore)
        assert store.path == path, url
    assert open_store("sqlite:///~/x.db") is open_store(f"sqlite:///{home}/x.db")


def test_a_user_without_a_home_folder_is_told(monkeypatch: pytest.MonkeyPatch):
    def nowhere(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nowhere)
    with pytest.raises(UsageError, match=r"Set \$HOME"):
        open_store("sqlite:///~/x.db")


def test_one_file_is_one_store_while_it_is_in_use(here: Path):
    (here / "link.db").symlink_to(here / "a.db")
    store = open_store("sqlite:///a.db")
    for same in ("sqlite:///a.db", "sqlite:///./a.db", f"sqlite:///{here}/a.db", "sqlite:///link.db"):
        assert open_store(same) is store
    assert open_store("sqlite:///a.db?timeout=30.0&synchronous=FULL") is store
    assert open_store("sqlite:///a.db?timeout=5") is not store
    assert open_store("sqlite:///b.db") is not store
    number = id(store)
    del store
    gc.collect()
    assert not any(isinstance(each, SQLiteStore) and id(each) == number for each in gc.get_objects())


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("sqlite://", "does not name a file"),
        ("sqlite:///", "does not name a file"),
        ("sqlite://a.db", "does not name a file"),
        ("a.db", "'sqlite:///a.db'"),
        ("/srv/a.db", "'sqlite:////srv/a.db'"),
        ("postgresql://a:b@c@localhost/x", "cannot be read"),
        ("mongodb://localhost", "No store is known for 'mongodb://'"),
        ("postgresq://localhost", "'postgresq://'. Did you mean 'postgresql'?"),
        ("mongodb://localhost", "'redis://user:password@host:6379/0', with 'encrypted+' in front"),
        ("sqlite:///a.db?time=3", "unknown option 'time'"),
        ("sqlite:///a.db?timeout=soon", "timeout=soon"),
        ("sqlite:///a.db?synchronous=OFF", "NORMAL"),
        ("sqlite:///:memory:", "MemoryStore"),
        ("", "is not the URL of a store"),
    ],
)
def test_what_names_no_store_is_refused_with_advice(here: Path, url: str, advice: str):
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert advice in str(caught.value)
    assert list(here.iterdir()) == []


def test_what_is_no_store_is_refused(here: Path):
    with pytest.raises(UsageError, match="neither a store nor the URL of one"):
        open_store(here / "a.db")  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("unmeasured")
def test_sqlite_is_loaded_by_those_who_use_it():
    program = """
import sys
import adjourn.stores, adjourn.testing
adjourn.stores.open_store("memory://")
assert "sqlite3" not in sys.modules
adjourn.stores.SQLiteStore
assert "sqlite3" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ))


@pytest.mark.parametrize("module", ["adjourn.stores", "adjourn.testing"])
def test_unknown_names_are_attribute_errors(module: str):
    with pytest.raises(AttributeError, match="Nothing"):
        _ = sys.modules[module].Nothing


def test_a_scheme_can_be_registered(monkeypatch: pytest.MonkeyPatch):
    # Without what other tests have registered in this process.
    shipped = {scheme: urls._openers[scheme] for scheme in ("memory", "sqlite")}  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(urls, "_openers", shipped)
    opened: list[str] = []

    def shelf(url: str) -> Store:
        opened.append(url)
        return MemoryStore()

    with pytest.raises(UsageError, match=r"No store is known for 'shelf://'\. Known: 'memory://', 'sqlite://'\."):
        open_store("shelf://a/b?c=d")
    register_store("shelf", shelf)
    register_store("shelf", shelf)
    assert isinstance(open_store("shelf://a/b?c=d"), MemoryStore)
    assert opened == ["shelf://a/b?c=d"]


@pytest.mark.parametrize("scheme", ["", "Shelf", "a b", "shelf://", "1shelf"])
def test_what_is_not_a_scheme_cannot_be_registered(scheme: str):
    with pytest.raises(UsageError, match="a scheme consists of lower-case letters"):
        register_store(scheme, lambda _: MemoryStore())


def test_a_scheme_is_not_taken_from_another():
    with pytest.raises(UsageError, match="'memory://' already has an opener"):
        register_store("memory", lambda _: MemoryStore())


def test_an_installed_package_can_bring_a_scheme(tmp_path: Path):
    """By an entry point, which is looked for when a scheme is not known."""
    info = tmp_path / "shelf-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[adjourn.stores]\nshelf = shelf:opened\n")
    (tmp_path / "shelf.py").write_text(
        "from adjourn.stores import MemoryStore\ndef opened(url): return MemoryStore()\n"
    )
    program = """
import sys
import adjourn.stores
adjourn.stores.open_store("memory://")
assert "importlib.metadata" not in sys.modules
assert type(adjourn.stores.open_store("shelf://x")).__name__ == "MemoryStore"
"""
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"PYTHONPATH": path})
