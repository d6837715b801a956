"""A hub on the loopback interface: the few endpoints of the Hugging Face Hub that pushing and pulling a repository use, files in memory, and what goes wrong with them.

Data sets are known as `datasets/org/name`, models as `org/name`.
"""

import base64
import dataclasses
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

TOKENS = {"hf_test": "write", "hf_reader": "read"}


@dataclasses.dataclass
class Fault:
    """What goes wrong with requests to a path, so many times."""

    pattern: str
    times: int
    method: str = "GET"
    status: int | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    cut_after: int | None = None
    """bytes of the answer, after which the connection is closed."""
    endless: bool = False
    """the answer has no length and no end."""


class Store:
    """Repositories: every commit is a whole set of files; branches and tags name commits."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}
        self.references: dict[str, dict[str, str]] = {}
        self.objects: dict[str, bytes] = {}
        self.private: dict[str, bool] = {}
        self.gated: set[str] = set()
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.sent_bytes = 0

    def fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method == method and re.search(fault.pattern, path):
                fault.times -= 1
                return fault
        return None

    def create(self, repository: str, *, private: bool) -> None:
        self.commits[repository], self.references[repository], self.private[repository] = {}, {}, private
        self.commit(repository, {}, reference="main")

    def commit(self, repository: str, files: dict[str, bytes], *, reference: str) -> str:
        base = self.references[repository].get(reference) or self.references[repository].get("main")
        content = {**(self.commits[repository][base] if base else {}), **files}
        digest = hashlib.sha1(repr((base, sorted(content.items()))).encode()).hexdigest()
        self.commits[repository][digest] = content
        self.references[repository][reference] = digest
        return digest

    def find(self, repository: str, revision: str) -> str | None:
        digest = self.references[repository].get(unquote(revision), revision)
        return digest if digest in self.commits[repository] else None


def _handler(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") == "chunked":
                parts = []
                while size := int(self.rfile.readline(), 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def send(self, data: bytes | dict | list, status: int = 200, **headers: str) -> None:
            payload = data if isinstance(data, bytes) else json.dumps(data).encode()
            start = 0
            if status == 200 and self.command == "GET" and (found := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))):
                start, status = int(found[1]), 206
                headers["Content_Range"] = f"bytes {start}-{len(payload) - 1}/{len(payload)}"
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key.replace("_", "-"), value)
            self.send_header("Content-Type", "application/octet-stream" if isinstance(data, bytes) else "application/json")
            if self.wrong and self.wrong.endless:
                self.end_headers()
                self.close_connection = True
                for _ in range(10_000):
                    self.wfile.write(bytes(2**16))
                    store.sent_bytes += 2**16
                return
            self.send_header("Content-Length", str(len(payload) - start))
            self.end_headers()
            if self.command == "HEAD":
                return
            if self.wrong and self.wrong.cut_after is not None:
                self.wfile.write(payload[start : start + self.wrong.cut_after])
                self.wfile.flush()
                self.connection.close()
                self.close_connection = True
                return
            self.wfile.write(payload[start:])
            store.sent_bytes += len(payload) - start

        def fail(self, code: str, status: int = 404, message: str | None = None) -> None:
            self.send({"error": code}, status, X_Error_Code=code, X_Error_Message=message or code)

        wrong: Fault | None = None

        def goes_wrong(self) -> bool:
            """Counts the request; whether a fault has answered it already."""
            store.requests.append(f"{self.command} {self.path}")
            self.wrong = store.fault(self.command, self.path)
            if self.wrong is None or self.wrong.status is None:
                return False
            self.body()
            self.send({"error": "fault"}, self.wrong.status, **self.wrong.headers)
            return True

        @property
        def token(self) -> str:
            return self.headers.get("Authorization", "").removeprefix("Bearer ")

        def unknown_token(self) -> bool:
            if self.token and self.token not in TOKENS:
                self.fail("Unauthorized", 401, "Invalid credentials in Authorization header")
                return True
            return False

        @property
        def route(self) -> str:
            return self.path.partition("?")[0]

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            if self.goes_wrong() or self.unknown_token():
                return None
            if found := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", self.route):
                repository, kind, revision = known_as(found[1], found[2]), found[3], found[4] or "main"
            elif found := re.fullmatch(r"/((?:datasets/)?[^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.route):
                repository, kind, revision = found[1], "file", found[2]
            else:
                return self.fail("NotFound")
            if repository not in store.commits or (store.private[repository] and not self.token):
                return self.fail("RepoNotFound", 401)
            if repository in store.gated and kind == "file":
                return self.fail("GatedRepo", 403)
            digest = store.find(repository, revision)
            if digest is None:
                return self.fail("RevisionNotFound")
            files = store.commits[repository][digest]
            if kind == "file":
                data = files.get(found[3])
                if data is None:
                    return self.fail("EntryNotFound")
                return self.send(data, ETag=f'"{hashlib.sha256(data).hexdigest()}"', X_Repo_Commit=digest, Accept_Ranges="bytes")
            if kind == "tree":
                return self.send(
                    [
                        {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                        for name, data in files.items()
                    ]
                )
            siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
            return self.send(
                {"id": repository, "sha": digest, "siblings": siblings, "private": store.private[repository], "tags": [], "downloads": 0}
            )

        def do_PUT(self) -> None:
            if self.goes_wrong():
                return None
            data = self.body()
            store.objects[hashlib.sha256(data).hexdigest()] = data
            self.send({})

        def do_POST(self) -> None:
            if self.goes_wrong():
                return None
            data = self.body()
            if not self.token:
                return self.fail("Unauthorized", 401)
            if self.unknown_token():
                return None
            if TOKENS[self.token] != "write" and "validate-yaml" not in self.route:
                return self.fail("Forbidden", 403, "this token may only read")
            if self.route == "/api/validate-yaml":
                return self.send({"errors": [], "warnings": []})
            if self.route == "/api/repos/create":
                wanted = json.loads(data)
                plain = f"{wanted['organization']}/{wanted['name']}" if wanted.get("organization") else wanted["name"]
                repository = known_as(f"{wanted.get('type') or 'model'}s", plain)
                if repository in store.commits:
                    return self.send({"error": "exists", "url": f"{self.origin}/{repository}"}, 409)
                store.create(repository, private=wanted.get("private") or wanted.get("visibility") == "private")
                return self.send({"url": f"{self.origin}/{repository}", "id": repository, "name": repository})
            if re.fullmatch(r"/api/(models|datasets)/.+/preupload/[^/]+", self.route):
                asked = json.loads(data)["files"]
                modes = [
                    {
                        "path": f["path"],
                        "uploadMode": "lfs" if f["path"].endswith((".safetensors", ".parquet")) else "regular",
                        "shouldIgnore": False,
                    }
                    for f in asked
                ]
                return self.send({"files": modes})
            if self.route.endswith(".git/info/lfs/objects/batch"):
                objects = json.loads(data)["objects"]
                answer = [{**o, "actions": {"upload": {"href": f"{self.origin}/objects/{o['oid']}"}}} for o in objects]
                return self.send({"transfer": "basic", "objects": answer})
            if found := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/commit/([^/]+)", self.route):
                repository = known_as(found[1], found[2])
                lines = [json.loads(line) for line in data.splitlines()]
                files = {e["value"]["path"]: base64.b64decode(e["value"]["content"]) for e in lines if e["key"] == "file"}
                files |= {e["value"]["path"]: store.objects[e["value"]["oid"]] for e in lines if e["key"] == "lfsFile"}
                asked_for_review = "create_pr=1" in self.path
                digest = store.commit(repository, files, reference="refs/pr/1" if asked_for_review else unquote(found[3]))
                answer = {"commitUrl": f"{self.origin}/{repository}/commit/{digest}", "commitOid": digest}
                if asked_for_review:
                    answer["pullRequestUrl"] = f"{self.origin}/{repository}/discussions/1"
                return self.send(answer)
            return self.fail("NotFound")

        @property
        def origin(self) -> str:
            return f"http://{self.headers['Host']}"

    return Handler


def known_as(kind: str, repository: str) -> str:
    return f"datasets/{repository}" if kind == "datasets" else repository


@contextmanager
def loopback_hub() -> Iterator[tuple[str, Store]]:
    """The address of a running hub, and what it holds."""
    store = Store()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(store))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
