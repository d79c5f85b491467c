"""What people and programs write, turned into the model's frozen values, and back.

Job files and `#SBATCH` scripts become jobs, cluster and site files become specs, units of every dialect become bytes,
milliseconds and thousandths, and events, commands and plans become JSON that a journal keeps. Whatever does not parse
is an `InputError` that gives place, what was expected, what was found and a hint; nothing unparsable ever becomes a
default. The package translates only: it decides nothing, and reads no clock (`now_ms` is an argument).

Import from the modules: `jobfile`, `sbatch`, `cluster`, `site`, `codec`, `documents`, `units`, `moments`.
"""
