"""The name server of pods on real nodes: answers for the hosts of headless Services, as a cluster's own would."""

import socket
import struct
import threading

A, IN, CNAME_POINTER = 1, 1, 0xC00C
NXDOMAIN = 3


class NameServer:
    """Answers at an address of this machine, port 53, until `close`. It looks each name up in the API server."""

    def __init__(self, cluster, address):
        self._cluster = cluster
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        self._thread = threading.Thread(target=self._run, name="names", daemon=True)
        self._thread.start()

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            end.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _run(self):
        while True:
            data, sender = self._socket.recvfrom(512)
            if not data:  # `close` says so
                return
            self._socket.sendto(self._answer(data), sender)

    def _answer(self, data):
        number, flags = data[:2], 0x8580
        name, place = read_name(data, 12)
        kind, _ = struct.unpack("!HH", data[place : place + 4])
        question = data[12 : place + 4]
        address = self._find(name)
        if address is None:
            return number + struct.pack("!HHHHH", flags | NXDOMAIN, 1, 0, 0, 0) + question
        if kind != A:
            return number + struct.pack("!HHHHH", flags, 1, 0, 0, 0) + question
        record = struct.pack("!HHHIH", CNAME_POINTER, A, IN, 1, 4) + socket.inet_aton(address)
        return number + struct.pack("!HHHHH", flags, 1, 1, 0, 0) + question + record

    def _find(self, name):
        """HOST.SERVICE.NAMESPACE.svc.cluster.local of a pod that has an address."""
        words = name.split(".")
        if words[3:] != ["svc", "cluster", "local"]:
            return None
        host, service, namespace = words[:3]
        for pod in self._cluster.pods(namespace):
            spec = pod["spec"]
            is_meant = spec.get("subdomain") == service and spec.get("hostname", pod["metadata"]["name"]) == host
            if is_meant and pod["status"].get("podIP") and pod["status"]["phase"] not in {"Succeeded", "Failed"}:
                return pod["status"]["podIP"]
        return None


def read_name(data, place):
    """The name in lower case, and the place behind it."""
    words = []
    while data[place]:
        words.append(data[place + 1 : place + 1 + data[place]].decode())
        place += 1 + data[place]
    return ".".join(words).lower(), place + 1
