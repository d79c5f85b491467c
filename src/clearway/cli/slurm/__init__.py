"""The commands that Slurm's users type: `sbatch`, `squeue`, `sinfo`, `scancel`, `sacct`, `scontrol`, `srun`, `salloc`.

Their texts are those of Slurm, to the blank, since scripts parse them: they are never translated, and go to standard
output alone. What Slurm has and Clearway has not is refused by name, never taken and forgotten. `values`, `columns`,
and the `*_text` modules are pure: rows in, text out. Everything else here talks with a control plane.

A partition is a queue, an account is a tenant. Modules import nothing heavy: `squeue` runs in a loop.
"""
