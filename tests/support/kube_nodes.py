"""Nodes that run containers, for tests: kubelets over containerd, images, devices and names for pods."""

import os
import shutil
import subprocess

from support.cluster import SCRIPTS, find_missing, until
from support.device_plugin import DevicePlugin
from support.images import BUSYBOX, make_plain_image, make_python_image
from support.kube_names import NameServer

NEEDED = ("containerd", "ctr", "runc", "ip", "unshare", "nsenter", "/usr/lib/cni/ptp", str(BUSYBOX))


def find_missing_for_nodes():
    """Why no node can run containers here; "" = they can."""
    if missing := find_missing(["kubelet"]):
        return missing
    if os.geteuid() != 0:
        return "nodes that run containers need root"
    lacking = [word for word in NEEDED if shutil.which(word) is None]
    words = "apt-get install containerd runc containernetworking-plugins iproute2 busybox-static"
    return f"nodes that run containers need {', '.join(lacking)}: {words}" if lacking else ""


class Nodes:
    """Nodes of one cluster, from `add` on until `close`; each offers devices by a plugin. places: of files in the image
    `clearway.invalid/python:1`, see `make_python_image`."""

    def __init__(self, cluster, places):
        self.plugins = {}
        self._cluster = cluster
        self._names = None
        self._plain = cluster.folder / "plain.tar"
        self._python = cluster.folder / "python.tar"
        make_plain_image(self._plain)
        make_python_image(self._python, places)

    def add(self, name, gpus):
        """A node of this name that is ready and gives out so many GPUs."""
        folder = self._cluster.folder / "nodes" / name
        words = [SCRIPTS / "node", self._cluster.folder, name, self._plain]
        done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        load = ["ctr", "-a", folder / "containerd.sock", "-n", "k8s.io", "images", "import", self._python]
        subprocess.run(load, check=True, capture_output=True, timeout=180)
        self.plugins[name] = DevicePlugin(folder / "device-plugins", name, gpus)
        self.plugins[name].start()
        until(f"{gpus} GPUs on {name}", lambda: self._allocatable(name) == str(gpus), 90)
        if self._names is None:
            self._names = NameServer(self._cluster, (self._cluster.folder / "address").read_text().strip())

    def close(self):
        """Before the cluster ends, which ends the nodes."""
        for plugin in self.plugins.values():
            plugin.close()
        if self._names is not None:
            self._names.close()

    def _allocatable(self, name):
        node = self._cluster.call("GET", f"/api/v1/nodes/{name}")
        return node["status"].get("allocatable", {}).get("nvidia.com/gpu")
