"""Images for containers, made of what this machine has: no registry is needed, and none is asked.

Each is an archive as `docker save` writes it, of one layer, for `ctr images import`.
"""

import hashlib
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
WORDS = ("sh", "sleep", "echo", "cat", "env", "ls", "date", "kill", "mkdir", "printf", "chmod", "true", "false")
LEFT_OUT = re.compile(
    r"/(__pycache__|tests?|idlelib|tkinter|turtledemo|ensurepip|lib2to3|config-[^/]*|include)(/|$)|\.a$"
)


class Layer:
    """Files of an image."""

    def __init__(self):
        self._data = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._data, mode="w")  # noqa: SIM115 - closed by `save`
        self._there = set()

    def add(self, path, dest=None):
        """A file or a folder of this machine, at the same place or at `dest`; links are resolved."""
        for one in [path, *sorted(path.rglob("*"))] if path.is_dir() else [path]:
            place = str(dest / one.relative_to(path) if dest else one)
            if place in self._there or LEFT_OUT.search(place):
                continue
            self._there.add(place)
            self._tar.add(one.resolve(), arcname=place.lstrip("/"), recursive=False)

    def add_shell(self):
        """A shell and the commonest commands."""
        self.add(BUSYBOX, Path("/bin/busybox"))
        for word in WORDS:
            self.link(f"/bin/{word}", "/bin/busybox")
        for folder in ("tmp", "etc", "proc", "dev", "sys"):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, 0o777
            self._tar.addfile(made)

    def link(self, path, target):
        made = tarfile.TarInfo(path.lstrip("/"))
        made.type, made.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(made)

    def save(self, out, name, words):
        """The image `name`, that runs `words`, as an archive."""
        self._tar.close()
        data = self._data.getvalue()
        digest = hashlib.sha256(data).hexdigest()
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": words, "Env": ["PATH=/bin:/usr/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        parts = {
            "layer.tar": data,
            "config.json": json.dumps(config).encode(),
            "manifest.json": json.dumps(manifest).encode(),
        }
        with tarfile.open(out, "w") as tar:
            for part, content in parts.items():
                info = tarfile.TarInfo(part)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def make_plain_image(out):
    """A shell, for the containers that hold pods together."""
    layer = Layer()
    layer.add_shell()
    layer.save(out, "clearway.invalid/plain:1", ["/bin/sleep", "infinity"])


def make_python_image(out, places):
    """This interpreter with NumPy, and these files and folders of Python below /app. places: path → place."""
    layer = Layer()
    layer.add_shell()
    base, packages = Path(sys.base_prefix), Path(sysconfig.get_path("purelib"))
    library = base / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(sys.executable).resolve()
    objects = [program]
    for folder in (library, packages / "numpy", packages / "numpy.libs"):
        dest = library / "site-packages" / folder.name if folder.parent == packages else None
        if folder == library:
            for one in sorted(folder.iterdir()):
                if one.name != "site-packages":
                    layer.add(one)
        elif folder.exists():
            layer.add(folder, dest)
        objects += [one for one in folder.rglob("*.so*") if "site-packages" not in str(one.relative_to(folder))]
    layer.add(program)
    layer.link("/bin/python", str(program))
    for path in sorted(find_libraries(objects)):
        layer.add(path)
    for path, place in places.items():
        layer.add(path, Path("/app") / place)
    layer.save(out, "clearway.invalid/python:1", ["/bin/python"])


def find_libraries(objects):
    """Libraries of the system that these programs and libraries load."""
    found = set()
    for one in objects:
        said = subprocess.run(["ldd", one], capture_output=True, text=True, check=False).stdout
        found.update(Path(path) for path in re.findall(r"(?:=>\s*|^\s*)(/[^\s(]+)", said, re.MULTILINE))
    return {path for path in found if path.exists() and "site-packages" not in str(path)}
