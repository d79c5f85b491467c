"""A Docker daemon of the tests' own: in a folder, on a socket there, without any network."""

import os
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

from support.benches import wait_until

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Where Debian's client is; not one that somebody put before it."""
BUSYBOX = "/bin/busybox"
DRIVERS = ("overlay2", "vfs")


def make_image(folder):
    """The smallest root filesystem that has a shell."""
    for name in ("bin", "proc", "dev", "sys", "tmp", "etc"):
        (folder / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, folder / "bin" / "busybox")
    (folder / "bin" / "sh").symlink_to("busybox")
    (folder / "etc" / "release").write_text("the image\n")
    return folder


def find_docker():
    """Daemon and client of Debian's package; None = they are not there, or we may not run them."""
    daemon, client = shutil.which("dockerd", path=PATH), shutil.which("docker", path=PATH)
    return (daemon, client) if daemon and client and os.geteuid() == 0 else None


class DockerDaemon:
    """dockerd, and what one asks it by its client."""

    def __init__(self, folder, *options):
        self.folder = folder
        self.host = f"unix://{folder}/docker.sock"
        self._options = options
        self._process = None

    def start(self):
        """Whether it answers."""
        return any(self._start_with(driver) for driver in DRIVERS)

    def _start_with(self, driver):
        places = {name: f"{self.folder}/{name}" for name in ("data-root", "exec-root", "pidfile")}
        words = [f"--{name}={path}" for name, path in places.items()]
        words += ["--iptables=false", "--ip6tables=false", "--bridge=none", f"--storage-driver={driver}"]
        with open(self.folder / "log", "ab") as log:
            program = find_docker()[0]
            self._process = subprocess.Popen(
                [program, f"--host={self.host}", *words, *self._options], stdout=log, stderr=log
            )
        wait_until(
            lambda: self._process.poll() is not None or self.run("info").returncode == 0, "dockerd", patience_s=40
        )
        return self._process.poll() is None

    def run(self, *words):
        client = find_docker()[1]
        return subprocess.run([client, "--host", self.host, *words], capture_output=True, text=True, check=False)

    def add_image(self, name, folder):
        """From a folder with a root filesystem."""
        archive = self.folder / "image.tar"
        subprocess.run(["tar", "-C", folder, "-cf", archive, "."], check=True)
        done = self.run("import", str(archive), name)
        assert done.returncode == 0, done.stderr

    def names(self):
        """Of all containers, whatever they do."""
        return self.run("ps", "--all", "--format", "{{.Names}} {{.Status}}").stdout.split("\n")[:-1]

    @property
    def pid(self):
        return self._process.pid

    def stop(self):
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            self._process.wait(timeout=30)
        for line in Path("/proc/self/mounts").read_text().splitlines():
            path = line.split()[1]
            if path.startswith(f"{self.folder}/"):  # it leaves the network's own namespace there
                subprocess.run(["umount", "--lazy", path], check=True)


@contextmanager
def docker_daemon(folder, *options):
    """Yields None where it does not run on this machine."""
    daemon = DockerDaemon(folder, *options)
    try:
        yield daemon if daemon.start() else None
    finally:
        daemon.stop()
