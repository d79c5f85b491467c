"""Machine code is kept where the tasks of the repository keep it."""

import subprocess
from pathlib import Path

from clearway.cli.machine_code import find_folder

ROOT = Path(__file__).parents[3]


def test_folder_is_that_of_the_repositorys_own_script(tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    told = subprocess.run(
        [ROOT / "scripts" / "numba-cache"], env=environment, capture_output=True, text=True, check=True
    )
    assert str(find_folder(environment)) == told.stdout.strip()
