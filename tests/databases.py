"""Databases for tests: a throw-away PostgreSQL cluster, and fresh migrated databases on either kind."""

import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from service.store import migrations
from service.store.engine import Store

NAMED_SERVER = "BACKSLIDE_TEST_POSTGRES"
"""An environment variable: the URL of a running server on which databases may be made and dropped."""


class PostgresMissing(Exception):
    """There is no PostgreSQL to test with."""


def binaries() -> Path | None:
    """Return the directory of the newest installed PostgreSQL server's programs, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


def describe() -> list[str]:
    """Return one line for each kind of database: its name and version."""
    lines = [f"database: SQLite {sqlite3.sqlite_version}"]
    named, programs = os.environ.get(NAMED_SERVER), binaries()
    if named:
        with psycopg.connect(named) as connection:
            version = connection.execute("SELECT version()").fetchone()
        return [*lines, f"database: {version[0] if version else 'PostgreSQL'} (named by {NAMED_SERVER})"]
    if programs is None:
        return [*lines, f"database: PostgreSQL is missing (install postgresql, or set {NAMED_SERVER})"]
    version_line = subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, text=True)
    return [*lines, f"database: {version_line.stdout.strip()} (a throw-away cluster)"]


@contextmanager
def server() -> Iterator[str]:
    """Yield the URL, without a database's name, of a PostgreSQL server; raises PostgresMissing."""
    named, programs = os.environ.get(NAMED_SERVER), binaries()
    if named:
        yield named
    elif programs is None:
        raise PostgresMissing(f"no PostgreSQL server is installed and {NAMED_SERVER} is not set")
    else:
        with _cluster(programs) as socket_directory:
            yield f"postgresql://postgres@/postgres?host={socket_directory}"


@contextmanager
def _cluster(programs: Path) -> Iterator[Path]:
    # Directly under the system's temporary directory: pytest's own is closed to the user that the server runs as.
    root = Path(tempfile.mkdtemp(prefix="backslide-postgres-"))
    as_user: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(root, "postgres", "postgres")
        as_user = ["--reuid=postgres", "--regid=postgres", "--init-groups"]
    data = root / "data"
    options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "-D", str(data)]
    setpriv = ["setpriv", *as_user]
    try:
        subprocess.run([*setpriv, programs / "initdb", *options], check=True, capture_output=True, cwd=root)
        # Nothing here must survive a crash; and the server must not survive the tests, however they end.
        fast = ["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]
        command = [programs / "postgres", "-D", str(data), "-k", str(root), "-c", "listen_addresses=", *fast]
        start = [*setpriv, "--pdeathsig", "INT", *(str(part) for part in command)]
        process = subprocess.Popen(start, stderr=subprocess.PIPE, text=True, cwd=root)
        assert process.stderr is not None
        try:
            reader = _await_ready(process)
            yield root
            process.send_signal(signal.SIGINT)  # a fast shutdown, which waits for nobody
            process.wait(timeout=60)
            reader.join(timeout=60)
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _await_ready(process: "subprocess.Popen[str]") -> threading.Thread:
    """Return once the server says that it takes connections; the thread reads its log from then on."""
    assert process.stderr is not None
    seen: deque[str] = deque(maxlen=50)
    for line in process.stderr:
        seen.append(line)
        if "database system is ready to accept connections" in line:
            reader = threading.Thread(target=deque, args=(process.stderr, 0), daemon=True)
            reader.start()
            return reader
    raise RuntimeError("PostgreSQL did not start:\n" + "".join(seen))


class Databases:
    """Makes fresh databases of one kind: each is a copy of one that was migrated once."""

    def __init__(self, directory: Path, server_url: str | None) -> None:
        self.directory = directory
        self.server_url = server_url
        self._template = self._make_empty(f"backslide_template_{uuid.uuid4().hex[:8]}")
        store = Store(self._url(self._template))
        migrations.upgrade(store)
        store.close()

    def fresh(self) -> str:
        """Return the URL of a new database with the newest schema and no rows."""
        name = f"backslide_{uuid.uuid4().hex[:12]}"
        if self.server_url is None:
            source, target = sqlite3.connect(self.directory / self._template), sqlite3.connect(self.directory / name)
            source.backup(target)
            source.close()
            target.close()
        else:
            self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{self._template}"')
        return self._url(name)

    def empty(self) -> str:
        """Return the URL of a new database without a schema."""
        return self._url(self._make_empty(f"backslide_{uuid.uuid4().hex[:12]}"))

    def drop(self, url: str) -> None:
        """Remove a database that nobody is connected to."""
        name = url.split("?")[0].rsplit("/", 1)[1]
        if self.server_url is None:
            for path in self.directory.glob(f"{name}*"):
                path.unlink()
        else:
            self._execute(f'DROP DATABASE "{name}"')

    def close(self) -> None:
        self.drop(self._url(self._template))

    def _make_empty(self, name: str) -> str:
        if self.server_url is not None:
            self._execute(f'CREATE DATABASE "{name}"')
        return name

    def _url(self, name: str) -> str:
        if self.server_url is None:
            return f"sqlite:///{self.directory / name}"
        head, _, query = self.server_url.partition("?")
        base = head.rsplit("/", 1)[0]
        return f"{base}/{name}" + (f"?{query}" if query else "")

    def _execute(self, statement: str) -> None:
        assert self.server_url is not None
        with psycopg.connect(self.server_url, autocommit=True) as connection:
            connection.execute(statement.encode())
