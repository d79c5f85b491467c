"""The gang with PyTorch: data-parallel training on CPU over gloo, which finds its peers by MASTER_ADDR, RANK and
WORLD_SIZE as Clearway sets them. With GPUs, say `nccl` and move the model to `cuda:0`: each replica sees its own."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from train import BATCH, make_data

import clearway.job


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000)
    options = parser.parse_args()
    job = clearway.job.current()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    layers = [torch.nn.Linear(2, 48), torch.nn.ReLU(), torch.nn.Linear(48, 48), torch.nn.ReLU(), torch.nn.Linear(48, 2)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    checkpoint = (job.directory or Path()) / "checkpoint.pt"
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    points, labels = (torch.from_numpy(array) for array in make_data())
    points = points.float()
    print(f"replica {job.rank} of {job.world} begins at step {step}", flush=True)
    while step < options.steps:
        generator = torch.Generator().manual_seed(step)
        batch = torch.randint(0, len(labels), (BATCH,), generator=generator)[job.rank :: job.world]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(points[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        step += 1
        job.report(step=step, progress=step / options.steps, loss=loss.item())
        flag = torch.tensor(int(job.should_stop))
        dist.all_reduce(flag)
        if step % 100 == 0 and job.rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if flag.item() or step % 200 == 0 or step == options.steps:
            with job.saving(step=step):
                if job.rank == 0:
                    beside = checkpoint.with_suffix(".new")
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    torch.save(state, beside)
                    beside.replace(checkpoint)
            dist.barrier()
        if flag.item():
            job.leave()
    job.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
