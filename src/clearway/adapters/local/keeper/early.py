"""Which variables an interpreter, or what it imports, reads before a task begins."""

import os
from typing import Final

from clearway.adapters.local.keeper.messages import Launch

_NAMES: Final = frozenset(("HOME", "USER", "LOGNAME", "PATH", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX"))
_PREFIXES: Final = (
    *("PYTHON", "LC_", "LD_", "MALLOC_", "GLIBC_", "XDG_CONFIG_", "XDG_DATA_", "XDG_CACHE_"),
    *(
        "OMP_",
        "GOMP_",
        "KMP_",
        "MKL_",
        "OPENBLAS_",
        "GOTO_",
        "BLIS_",
        "VECLIB_",
        "NUMEXPR_",
        "NUMBA_",
        "NPY_",
        "NUMPY_",
    ),
    *("TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "JAX_", "XLA_", "TF_", "KERAS_", "HF_", "TRANSFORMERS_"),
    *("CUBLAS_", "CUDNN_", "NCCL_", "MPL", "ARROW_", "POLARS_", "RAYON_", "TOKENIZERS_"),
)
"""Of libraries that read their settings when they are imported. Not those that differ from job to job, such as
CUDA_VISIBLE_DEVICES: each would have a runner of its own."""


def select_early(launch: Launch, index: int) -> dict[str, str]:
    """Those of replica `index`. Folders of PYTHONPATH are whole: a runner is in another directory than its tasks."""
    environment = {**launch.environment, **launch.replicas[index].environment}
    found = {name: value for name, value in environment.items() if name in _NAMES or name.startswith(_PREFIXES)}
    if found.get("PYTHONPATH"):
        folders = (os.path.join(launch.workdir, each) for each in found["PYTHONPATH"].split(os.pathsep))
        found["PYTHONPATH"] = os.pathsep.join(folders)
    return found
