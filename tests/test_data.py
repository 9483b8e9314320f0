import hashlib
import http.server
import socket
import threading

import pytest

from sciml import cli, data
from sciml.data import DATASETS, DataFile

FILE = "materials/set/numbers.txt"
CONTENT = b"1 2 3\n"


@pytest.fixture
def server():
    """A local server with one file; any other address is 404."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802
            found = self.path == "/numbers.txt"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(CONTENT if found else b"")

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture
def registry(monkeypatch, tmp_path):
    """A registry of one file, an empty data folder and an empty cache; called with the file's address."""
    folder, cache = tmp_path / "data", tmp_path / "cache"
    monkeypatch.setenv("SCIML_DATA", str(folder))
    monkeypatch.setenv("SCIML_CACHE", str(cache))

    def make(url, content=CONTENT):
        file = DataFile(FILE, hashlib.sha256(content).hexdigest(), len(content), url)
        one = data.DataSet("numbers", "materials/set", "three numbers", "none", "nobody", "nowhere")
        monkeypatch.setattr(data, "_table", lambda: {FILE: file})
        monkeypatch.setattr(data, "DATASETS", (one,))
        return file

    make.folder, make.cache = folder, cache  # pyright: ignore[reportFunctionMemberAccess]
    return make


def put(folder, content=CONTENT):
    path = folder / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/numbers.txt"


def test_the_data_folder_comes_first_then_the_cache_then_the_download(registry, server):
    registry(f"{server}/numbers.txt")
    downloaded = data.fetch(FILE)
    assert downloaded == registry.cache / "data" / FILE and downloaded.read_bytes() == CONTENT
    registry(closed_port())
    assert data.fetch(FILE) == downloaded  # no second download
    given = put(registry.folder)
    assert data.fetch(FILE) == given == data.fetch("numbers")


@pytest.mark.parametrize("place", ["folder", "cache"])
def test_wrong_content_is_refused_wherever_it_is(registry, place):
    registry(None)
    path = put(registry.folder if place == "folder" else registry.cache / "data", b"1 2 4\n")
    with pytest.raises(ValueError, match="SHA-256") as error:
        data.fetch(FILE)
    assert str(path) in str(error.value)


def test_wrong_download_is_refused_and_leaves_nothing(registry, server):
    registry(f"{server}/numbers.txt", content=b"other")
    with pytest.raises(ValueError, match="hash"):
        data.fetch(FILE)
    assert not [path for path in registry.cache.rglob("*") if path.is_file()]


def test_without_network_the_error_says_what_to_put_where(registry, server):
    for url in (closed_port(), f"{server}/moved.txt"):
        file = registry(url)
        with pytest.raises(FileNotFoundError) as error:
            data.fetch(FILE)
        for word in (FILE, url, file.sha256, str(registry.folder / FILE)):
            assert word in str(error.value)
    file = registry(None)
    with pytest.raises(FileNotFoundError) as error:
        data.fetch(FILE)
    for word in (FILE, "nowhere", file.sha256, str(registry.folder / FILE)):
        assert word in str(error.value)


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'htc2022'"):
        data.dataset("htc202")
    with pytest.raises(ValueError, match="did you mean 'traffic/i24/11-29-2022_post_TX.pt'"):
        data.fetch("traffic/i24/11-29-2022_post_TX")
    with pytest.raises(ValueError, match="name one"):
        data.fetch("i24")


def test_commands_and_their_status(registry, server, capsys):
    registry(closed_port())
    assert cli.main(["data", "list"]) == 0 and "numbers" in capsys.readouterr().out
    assert cli.main(["data", "list", "numbers"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in (FILE, "licence", "cite", "download"))
    assert cli.main(["data", "get", "numbers"]) == 2 and FILE in capsys.readouterr().err
    assert cli.main(["data", "verify", "numbers"]) == 1 and "1 absent" in capsys.readouterr().out
    assert cli.main(["data", "verify"]) == 0
    registry(f"{server}/numbers.txt")
    capsys.readouterr()
    assert cli.main(["data", "get", "numbers"]) == 0
    assert capsys.readouterr().out.strip() == str(registry.cache / "data" / FILE)
    assert cli.main(["data", "verify", "numbers"]) == 0 and "right" in capsys.readouterr().out
    put(registry.folder, b"wrong")
    assert cli.main(["data", "verify"]) == 1 and "WRONG" in capsys.readouterr().out


def test_registry_is_complete():
    """Every file belongs to exactly one set, every set has files, terms and a citation, sums are sums."""
    owners = {}
    for each in DATASETS:
        assert each.files and each.about and each.licence and each.citation and each.source
        for file in each.files:
            owners.setdefault(file.path, []).append(each.name)
    table = data._table()
    assert set(owners) == set(table) and all(len(names) == 1 for names in owners.values())
    assert len({each.name for each in DATASETS}) == len(DATASETS)
    for file in table.values():
        assert len(bytes.fromhex(file.sha256)) == 32
        assert file.url is None or file.url.startswith("https://")
        assert file.size is None or file.size > 0
    assert len(data.dataset("i24").files) == 8 and all(file.url for file in data.dataset("i24").files)


@pytest.mark.data
def test_files_that_are_here_are_the_right_ones(data_folder):
    here = [(file, path) for file in data._table().values() if (path := data_folder / file.path).is_file()]
    assert here
    for file, path in here:
        data.check(file, path)
        assert file.size in (None, path.stat().st_size)
