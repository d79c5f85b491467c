"""A device plugin as vendors ship them: offers nvidia.com/gpu to a kubelet by its gRPC interface (v1beta1), with an id
for each device, and says to containers which ids are theirs by NVIDIA_VISIBLE_DEVICES.

The messages are few and small, so they are written and read here by hand, as protocol buffers lie on the wire.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

RESOURCE = "nvidia.com/gpu"
ENDPOINT = "clearway-test.sock"


def put(number, data):
    """One field that holds bytes or text."""
    data = data.encode() if isinstance(data, str) else data
    return put_varint(number << 3 | 2) + put_varint(len(data)) + data


def put_varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def take_varint(data, place):
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def fields(data):
    """(number, bytes) of each field that holds bytes; others are passed over."""
    place = 0
    while place < len(data):
        tag, place = take_varint(data, place)
        if tag & 7 == 2:
            length, place = take_varint(data, place)
            yield tag >> 3, data[place : place + length]
            place += length
        else:
            _, place = take_varint(data, place)


def as_is(data):
    return data


class DevicePlugin:
    """Offers so many devices from `start` to `close`. folder: the kubelet's, of device plugins."""

    def __init__(self, folder, node, count):
        self.ids = [f"GPU-{node}-{number}" for number in range(count)]
        self.sick = set()
        self._folder = Path(folder)
        self._changed = threading.Condition()
        self._is_closed = False
        self._server = grpc.server(ThreadPoolExecutor(4))
        method = grpc.unary_unary_rpc_method_handler
        handlers = {
            "GetDevicePluginOptions": method(lambda *_: b"", as_is, as_is),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch, as_is, as_is),
            "Allocate": method(self._allocate, as_is, as_is),
        }
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers)])

    def start(self):
        """Serve, then tell the kubelet."""
        self._server.add_insecure_port(f"unix://{self._folder / ENDPOINT}")
        self._server.start()
        asked = put(1, "v1beta1") + put(2, ENDPOINT) + put(3, RESOURCE)
        with grpc.insecure_channel(f"unix://{self._folder / 'kubelet.sock'}") as channel:
            register = channel.unary_unary("/v1beta1.Registration/Register", as_is, as_is)
            register(asked, timeout=30, wait_for_ready=True)

    def set_sick(self, ids):
        """These devices are sick from now on, and no others."""
        with self._changed:
            self.sick = set(ids)
            self._changed.notify_all()

    def close(self):
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._server.stop(1).wait()

    def _list_and_watch(self, _request, context):
        context.add_callback(self._wake)
        with self._changed:
            while not self._is_closed and context.is_active():
                states = [(one, "Unhealthy" if one in self.sick else "Healthy") for one in self.ids]
                yield b"".join(put(1, put(1, one) + put(2, state)) for one, state in states)
                self._changed.wait()

    def _wake(self):
        with self._changed:
            self._changed.notify_all()

    def _allocate(self, request, _context):
        answers = []
        for _, container in fields(request):
            ids = [one.decode() for _, one in fields(container)]
            answers.append(put(1, put(1, put(1, "NVIDIA_VISIBLE_DEVICES") + put(2, ",".join(ids)))))
        return b"".join(answers)
