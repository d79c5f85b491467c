"""A training program of the demonstration: a small network that learns two spirals, by NumPy alone, in data parallel.

Run as it is, or by Clearway with one replica or several: replicas add up their gradients over TCP. It saves
checkpoints, leaves when it is asked to, and goes on from the last one, with as many replicas as it then has.
With `--infer JOB` it trains nothing, and tells the spirals apart by what that job has saved.
"""

import argparse
import os
import socket
import time
from pathlib import Path
from typing import Final

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # noqa: TID251 - before NumPy is loaded; replicas share few cores

import numpy as np

import clearway.job

HIDDEN: Final = 48
SAMPLES: Final = 2_048
RATE: Final = 0.3
CONNECT_S: Final = 60
CHECKPOINT: Final = "spirals.npz"
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def make_spirals(samples: int) -> tuple[Floats, Floats]:
    """Points of two spirals, and to which each belongs: always the same."""
    chance = np.random.default_rng(7)
    turn = np.sqrt(chance.random(samples)) * 3.0 * np.pi
    kind = chance.integers(0, 2, samples).astype(np.float64)
    angle = turn + np.pi * kind
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) / (3.0 * np.pi)
    return points + chance.normal(0, 0.02, points.shape), kind


class Network:
    """Two hidden layers; all weights in one vector."""

    def __init__(self) -> None:
        self.shapes = [(2, HIDDEN), (1, HIDDEN), (HIDDEN, HIDDEN), (1, HIDDEN), (HIDDEN, 1), (1, 1)]
        chance = np.random.default_rng(11)
        parts = [chance.normal(0, np.sqrt(2.0 / shape[0]), shape) * (shape[0] > 1) for shape in self.shapes]
        self.weights: Floats = np.concatenate([part.ravel() for part in parts])

    def gradient(self, points: Floats, kinds: Floats) -> tuple[Floats, float]:
        """(gradient of the loss over these points, the loss)."""
        _, _, second, _, last, _ = self._split()
        inner1, inner2, guess = self.infer(points)
        loss = -np.mean(kinds * np.log(guess + 1e-12) + (1 - kinds) * np.log(1 - guess + 1e-12))
        slope3 = ((guess - kinds) / len(kinds))[:, None]
        slope2 = (slope3 @ last.T) * (1 - inner2**2)
        slope1 = (slope2 @ second.T) * (1 - inner1**2)
        parts = [
            points.T @ slope1,
            slope1.sum(0),
            inner1.T @ slope2,
            slope2.sum(0),
            inner2.T @ slope3,
            slope3.sum(0),
        ]
        return np.concatenate([part.ravel() for part in parts]), float(loss)

    def infer(self, points: Floats) -> tuple[Floats, Floats, Floats]:
        """Outputs of both layers, and how likely each point is of the second spiral."""
        first, bias1, second, bias2, last, bias3 = self._split()
        inner1 = np.tanh(points @ first + bias1)
        inner2 = np.tanh(inner1 @ second + bias2)
        return inner1, inner2, 1.0 / (1.0 + np.exp(-(inner2 @ last + bias3).ravel()))

    def _split(self) -> list[Floats]:
        ends = np.cumsum([rows * columns for rows, columns in self.shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(self.weights, ends), self.shapes, strict=True)]


class Gang:
    """Adds up vectors over all replicas: replica 0 gathers and gives back."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self._links: list[socket.socket] = []
        if world > 1:
            address = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ["MASTER_PORT"])  # noqa: TID251
            self._links = self._gather(address) if rank == 0 else [self._join(address)]

    def _gather(self, address: tuple[str, int]) -> list[socket.socket]:
        with socket.create_server(address) as server:
            server.settimeout(CONNECT_S)
            return [server.accept()[0] for _ in range(self.world - 1)]

    def _join(self, address: tuple[str, int]) -> socket.socket:
        for _ in range(CONNECT_S * 10):
            try:
                return socket.create_connection(address, CONNECT_S)
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"replica {self.rank}: replica 0 does not answer at {address[0]}:{address[1]}")

    def mean(self, vector: Floats) -> Floats:
        """The mean over all replicas."""
        if self.world == 1:
            return vector
        if self.rank > 0:
            self._links[0].sendall(vector.tobytes())
            return _receive(self._links[0], len(vector))
        total: Floats = np.mean([vector, *(_receive(link, len(vector)) for link in self._links)], axis=0)
        for link in self._links:
            link.sendall(total.tobytes())
        return total


def _receive(link: socket.socket, count: int) -> Floats:
    data = bytearray()
    while len(data) < 8 * count:
        part = link.recv(8 * count - len(data))
        if not part:
            raise SystemExit("another replica has ended")
        data += part
    return np.frombuffer(bytes(data), dtype=np.float64)


def main() -> None:
    """Train for `--steps`, from the last checkpoint if there is one."""
    parser = argparse.ArgumentParser(description="Train a small network on two spirals.")
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--infer", metavar="JOB", help="tell the spirals apart by what this job has saved, instead")
    options = parser.parse_args()
    job = clearway.job.current()
    folder = job.directory or Path()
    if options.infer is not None:
        _infer(folder.parent / options.infer / CHECKPOINT)
        return
    steps, checkpoint = options.steps, folder / CHECKPOINT
    network, step = _load(checkpoint) if checkpoint.exists() else (Network(), 0)
    print(f"generation {job.generation}: {job.world} replica(s), from step {step}", flush=True)
    gang = Gang(job.rank, job.world)
    points, kinds = make_spirals(SAMPLES)
    mine = slice(job.rank, None, job.world)
    while step < steps:
        gradient, loss = network.gradient(points[mine], kinds[mine])
        # Replicas must agree at which step they leave, so the wish to leave is added up with the gradient.
        *_, loss, leaving = mean = gang.mean(np.concatenate([gradient, [loss, float(job.should_stop)]]))
        network.weights = network.weights - RATE * mean[:-2]
        step += 1
        job.report(step=step, progress=step / steps, loss=round(float(loss), 4))
        if job.rank == 0 and step % 100 == 0:
            print(f"step {step} loss {loss:.4f} replicas {job.world}", flush=True)
        if leaving or step % 100 == 0 or step == steps:
            if job.rank == 0:
                with job.saving(step=step):
                    _save(checkpoint, network.weights, step)
            if leaving and step < steps:
                job.leave()
    job.finish()


def _infer(path: Path) -> None:
    began_ns = time.perf_counter_ns()
    network, step = _load(path)
    points, kinds = make_spirals(SAMPLES)
    right = int(np.sum((network.infer(points)[2] > 0.5) == (kinds > 0.5)))
    took_ms = (time.perf_counter_ns() - began_ns) / 1e6
    print(f"{right} of {len(kinds)} points are right, by step {step}, in {took_ms:.1f} ms", flush=True)


def _load(path: Path) -> tuple[Network, int]:
    """The network as it was saved, and after which step."""
    network = Network()
    with np.load(path) as saved:
        network.weights = saved["weights"]
        return network, int(saved["step"])


def _save(path: Path, weights: Floats, step: int) -> None:
    new = path.with_suffix(".new.npz")
    np.savez(new, weights=weights, step=step)
    new.replace(path)


if __name__ == "__main__":
    main()
