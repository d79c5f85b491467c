"""Train a small network on two spirals, with NumPy, on as many replicas as there are.

Saves every 200 steps and when Clearway asks for its devices, and goes on from what it saved. Outside of Clearway it
runs as it is: `python examples/train.py --steps 500`.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from peers import Peers

import clearway.job

BATCH = 256
HIDDEN = 48
RATE = 0.1
MOMENTUM = 0.9
SAVE_EVERY = 200
SHAPES = ((2, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN, 2), (2,))
SIZES = tuple(int(np.prod(shape)) for shape in SHAPES)


def make_data(count: int = 4_000) -> tuple[np.ndarray, np.ndarray]:
    """Points [count, 2] on two spirals, and which one each lies on."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    turns = rng.uniform(0.25, 1.5, count)
    angles = 2 * np.pi * turns + np.pi * labels
    points = np.stack([turns * np.cos(angles), turns * np.sin(angles)], axis=1)
    return points + rng.normal(0, 0.03, points.shape), labels


def make_weights() -> np.ndarray:
    """All weights and biases in one vector."""
    rng = np.random.default_rng(1)
    parts = [rng.normal(0, np.sqrt(2 / shape[0]), shape) if len(shape) == 2 else np.zeros(shape) for shape in SHAPES]
    return np.concatenate([part.ravel() for part in parts])


def split(vector: np.ndarray) -> list[np.ndarray]:
    parts = np.split(vector, np.cumsum(SIZES)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]


def compute(weights: np.ndarray, points: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Sum of the losses, and of the gradients, over these points."""
    w1, b1, w2, b2, w3, b3 = split(weights)
    h1 = np.maximum(points @ w1 + b1, 0)
    h2 = np.maximum(h1 @ w2 + b2, 0)
    logits = h2 @ w3 + b3
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(-np.log(chances[rows, labels] + 1e-12).sum())
    g3 = chances
    g3[rows, labels] -= 1
    g2 = (g3 @ w3.T) * (h2 > 0)
    g1 = (g2 @ w2.T) * (h1 > 0)
    parts = (points.T @ g1, g1.sum(0), h1.T @ g2, g2.sum(0), h2.T @ g3, g3.sum(0))
    return loss, np.concatenate([part.ravel() for part in parts])


class Training:
    """Weights, momentum and how far it is; and where that is saved."""

    def __init__(self, folder: Path) -> None:
        self.step = 0
        self.weights = make_weights()
        self.momentum = np.zeros_like(self.weights)
        self.losses: list[tuple[int, float, int]] = []
        self._checkpoint = folder / "checkpoint.npz"
        self._curve = folder / "losses.csv"
        if self._checkpoint.exists():
            with np.load(self._checkpoint) as saved:
                self.step = int(saved["step"])
                self.weights, self.momentum = saved["weights"], saved["momentum"]
                self.losses = [(int(step), float(loss), int(world)) for step, loss, world in saved["losses"]]

    def save(self) -> None:
        """Whole, or as before."""
        beside = self._checkpoint.with_suffix(".new.npz")
        np.savez(beside, step=self.step, weights=self.weights, momentum=self.momentum, losses=np.array(self.losses))
        beside.replace(self._checkpoint)
        lines = [f"{step},{loss:.6f},{world}\n" for step, loss, world in self.losses]
        self._curve.write_text("step,loss,replicas\n" + "".join(lines))

    def advance(self, gradient: np.ndarray) -> None:
        """One step of gradient descent."""
        self.momentum = MOMENTUM * self.momentum + gradient
        self.weights = self.weights - RATE * self.momentum
        self.step += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step, to be watched")
    options = parser.parse_args()
    job = clearway.job.current()
    training = Training(job.directory or Path())
    points, labels = make_data()
    print(f"replica {job.rank} of {job.world} begins at step {training.step}", flush=True)
    with Peers(job.rank, job.world) as peers:
        while training.step < options.steps:
            batch = np.random.default_rng((2, training.step)).integers(0, len(labels), BATCH)[job.rank :: job.world]
            loss, gradient = compute(training.weights, points[batch], labels[batch])
            # One exchange a step: the gradients, the loss, and whether any replica was asked to leave. All learn of
            # it at the same step, or some would wait for others that have gone.
            total = peers.add(np.concatenate([gradient, [loss, float(job.should_stop)]]))
            must_leave, loss = total[-1] > 0, total[-2] / BATCH
            training.advance(total[:-2] / BATCH)
            training.losses.append((training.step, loss, job.world))
            job.report(step=training.step, progress=training.step / options.steps, loss=round(loss, 6))
            if training.step % 100 == 0 and job.rank == 0:
                print(f"step {training.step} loss {loss:.4f} on {job.world} replicas", flush=True)
            if must_leave or training.step % SAVE_EVERY == 0:
                save(job, training, peers)
            if must_leave:
                print(f"replica {job.rank} leaves at step {training.step}", flush=True)
                job.leave()
            time.sleep(options.pause)
        save(job, training, peers)
    job.finish()


def save(job: clearway.job.Job, training: Training, peers: Peers) -> None:
    """Replica 0 writes, for all have the same weights; the others wait until that is done."""
    with job.saving(step=training.step):
        if job.rank == 0:
            training.save()
    peers.add(np.zeros(1))


if __name__ == "__main__":
    main()
