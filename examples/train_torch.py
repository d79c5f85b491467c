"""The same training with PyTorch: data-parallel on CPUs over gloo, which finds its peers by MASTER_ADDR, MASTER_PORT,
RANK and WORLD_SIZE as Clearway sets them. With GPUs, say `nccl` and move the model to `cuda:0`: each replica sees its
own.

One replica, a gang, or elastic, as it is started: each replica computes its part of a batch that does not depend on
how many there are, so the losses, kept in `losses.csv` in the job's directory, go on over resizes and preemptions.
"""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from train import BATCH, MOMENTUM, RATE, SAVE_EVERY, make_data

import clearway.job


class Training:
    """Model, optimizer, the losses so far; and where that is saved."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(1)
        layers = (
            torch.nn.Linear(2, 48),
            torch.nn.ReLU(),
            torch.nn.Linear(48, 48),
            torch.nn.ReLU(),
            torch.nn.Linear(48, 2),
        )
        self.model = DistributedDataParallel(torch.nn.Sequential(*layers))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE, momentum=MOMENTUM)
        self.losses: list[tuple[int, float, int]] = []
        self._checkpoint = folder / "checkpoint.pt"
        self._curve = folder / "losses.csv"
        if self._checkpoint.exists():
            saved = torch.load(self._checkpoint, weights_only=True)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.losses = saved["losses"]

    @property
    def step(self) -> int:
        """Steps done."""
        return len(self.losses)

    def save(self) -> None:
        """Whole, or as before."""
        beside = self._checkpoint.with_suffix(".new")
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "losses": self.losses}
        torch.save(state, beside)
        beside.replace(self._checkpoint)
        lines = [f"{step},{loss:.6f},{world}\n" for step, loss, world in self.losses]
        self._curve.write_text("step,loss,replicas\n" + "".join(lines))

    def advance(self, points: torch.Tensor, labels: torch.Tensor, world: int) -> float:
        """One step on this replica's part of a batch; the sum of its losses over the size of the whole batch.

        DistributedDataParallel takes the mean of the replicas' gradients; parts may differ in size by one, so each
        replica brings its share of the batch's mean times the number of replicas.
        """
        self.optimizer.zero_grad()
        loss = cross_entropy(self.model(points), labels, reduction="sum") / BATCH
        (loss * world).backward()
        self.optimizer.step()
        return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step, to be watched")
    options = parser.parse_args()
    job = clearway.job.current()
    dist.init_process_group("gloo")
    training = Training(job.directory or Path())
    points, labels = (torch.from_numpy(array) for array in make_data())
    points = points.float()
    print(f"replica {job.rank} of {job.world} begins at step {training.step}", flush=True)
    while training.step < options.steps:
        generator = torch.Generator().manual_seed(training.step)
        batch = torch.randint(0, len(labels), (BATCH,), generator=generator)[job.rank :: job.world]
        part = training.advance(points[batch], labels[batch], job.world)
        # One exchange more: the loss, and whether any replica was asked to leave. All learn of it at the same step,
        # or some would wait for others that have gone.
        total = torch.tensor([part, float(job.should_stop)], dtype=torch.float64)
        dist.all_reduce(total)
        loss, must_leave = float(total[0]), bool(total[1] > 0)
        training.losses.append((training.step + 1, loss, job.world))
        job.report(step=training.step, progress=training.step / options.steps, loss=round(loss, 6))
        if training.step % 100 == 0 and job.rank == 0:
            print(f"step {training.step} loss {loss:.4f} on {job.world} replicas", flush=True)
        if must_leave or training.step % SAVE_EVERY == 0 or training.step == options.steps:
            with job.saving(step=training.step):
                if job.rank == 0:
                    training.save()
            dist.barrier()
        if must_leave:
            print(f"replica {job.rank} leaves at step {training.step}", flush=True)
            break
        time.sleep(options.pause)
    dist.destroy_process_group()
    if training.step < options.steps:
        job.leave()
    job.finish()


if __name__ == "__main__":
    main()
