"""The state box as tables: int64 arrays of shape [columns, rows], one contiguous line per column.

Why so: fit and score are loops over contiguous lines, a compiled function takes one argument per table, and a table
grows by rows without moving the meaning of an index. Row indices are given once and never change meaning while the
thing they name lives. Column numbers are module constants, which compiled code folds in.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64]

NONE: Final = -1
"""No index."""

# --- nodes ------------------------------------------------------------------------------------------------------
NODE_USABLE: Final = 0  # 1 = up and not drained
NODE_CPU_FREE: Final = 1  # milli; may be negative while a reservation waits for others to leave
NODE_MEM_FREE: Final = 2  # bytes; likewise
NODE_CPU_TOTAL: Final = 3
NODE_MEM_TOTAL: Final = 4
NODE_POOL_BEGIN: Final = 5
NODE_POOL_END: Final = 6
NODE_HOLDERS: Final = 7  # replicas of any job that lie here
NODE_EXCLUSIVE: Final = 8  # 1 = its holder wants it alone
NODE_NVLINK: Final = 9  # domain ids, dense per level
NODE_LEAF: Final = 10
NODE_BLOCK: Final = 11
NODE_CLAIMS: Final = 12  # replicas for which devices are kept here
NODE_CLAIMS_ALONE: Final = 13  # of these, replicas of jobs that want the node alone
NODE_COLUMNS: Final = 14

# --- pools: the devices of one model on one node (a node without devices has one empty pool) ----------------------
POOL_NODE: Final = 0
POOL_MODEL: Final = 1  # index of the model, 0..61; NONE for a pool without devices
POOL_FREE: Final = 2  # devices wholly free and usable = number of bits in POOL_MASK
POOL_MASK: Final = 3  # bit i = device POOL_DEVICE_BEGIN + i is wholly free, healthy and unclaimed
POOL_SIZE: Final = 4
POOL_DEVICE_BEGIN: Final = 5
POOL_DEVICE_MEM: Final = 6  # bytes per device
POOL_SPEED_PPM: Final = 7  # speed relative to the reference model, millionths
POOL_NVLINK_SIZE: Final = 8  # devices per NVLink domain inside the node
POOL_SHARED: Final = 9  # devices that are partly used and could take another share
POOL_WATTS: Final = 10  # per device, at full use
POOL_COLUMNS: Final = 11

# --- devices ------------------------------------------------------------------------------------------------------
DEVICE_POOL: Final = 0
DEVICE_SHARE_FREE: Final = 1  # milli
DEVICE_MEM_FREE: Final = 2  # bytes
DEVICE_OWNER: Final = 3  # job row of the holder of the whole device; NONE = free or shared
DEVICE_SHARERS: Final = 4  # number of shares in use
DEVICE_HEALTHY: Final = 5
DEVICE_CLAIM: Final = 6  # job row for which it is kept; NONE
DEVICE_COLUMNS: Final = 7

# --- classes of equal requests --------------------------------------------------------------------------------------
CLASS_DEVICES: Final = 0
CLASS_SHARE: Final = 1  # milli
CLASS_DEVICE_MEM: Final = 2  # bytes per device (for a share: what it takes; 0 = in proportion)
CLASS_MODELS: Final = 3  # bit mask of allowed models; NONE (all bits) = any
CLASS_CPU: Final = 4  # milli
CLASS_MEM: Final = 5  # bytes
CLASS_LABELS: Final = 6  # row of the eligibility table (labels and names of nodes); 0 = every node
CLASS_EXCLUSIVE: Final = 7
CLASS_WHEN_EMPTY: Final = 8  # replicas that the whole cluster would hold, empty and healthy; NONE = not worked out yet
CLASS_SOCIAL: Final = 9  # 1 = it is in a crowd, has rules about neighbours, or likes some nodes more than others
CLASS_RULES_BEGIN: Final = 10  # its rows of the rule table
CLASS_RULES_END: Final = 11
CLASS_LIKED: Final = 12  # its row of the table of liked nodes; NONE = it likes all alike
CLASS_COLUMNS: Final = 13

# --- rules about neighbours (`model.neighbours`), the rows of a class one behind the other ---------------------------
RULE_KIND: Final = 0
RULE_TALLY: Final = 1  # of MEMBER: the first tally of its crowd
RULE_WEIGHT: Final = 2  # 0 = required
RULE_SKEW: Final = 3  # of MEMBER and ROOM: the amount by which a replica counts
RULE_DOMAINS_MIN: Final = 4
RULE_SELF: Final = 5  # 1 = the class counts in the crowd itself
RULE_COLUMNS: Final = 6

RULE_MEMBER: Final = 0  # no rule: the class counts in the crowd
RULE_APART: Final = 1
RULE_BESIDE: Final = 2
RULE_EVEN: Final = 3
RULE_ROOM: Final = 4  # what is counted is what nobody has, below zero: with the replica it is not above

# --- tallies: how many of a crowd lie in each domain of one label; the first of a crowd counts by node ----------------
TALLY_NEXT: Final = 0  # the next tally of the same crowd; NONE
TALLY_TOTAL: Final = 1  # replicas in all domains
TALLY_DOMAINS: Final = 2  # domains that have a node
TALLY_LEAST: Final = 3  # the smallest count of any domain that has a node
TALLY_AT_LEAST: Final = 4  # domains that have no more than that
TALLY_COLUMNS: Final = 5

# --- jobs that have not ended; rows are reused --------------------------------------------------------------------
JOB_ID: Final = 0
JOB_CLASS: Final = 1
JOB_REPLICAS: Final = 2  # asked
JOB_REPLICAS_MIN: Final = 3
JOB_REPLICAS_MAX: Final = 4
JOB_MILLI: Final = 5  # devices asked in all, milli
JOB_PRIORITY: Final = 6
JOB_QUEUE: Final = 7
JOB_TENANT: Final = 8
JOB_SUBMIT_MS: Final = 9
JOB_PLANNED_MS: Final = 10  # run time assumed in planning, for the whole job
JOB_LIMIT_MS: Final = 11
JOB_PHASE: Final = 12
JOB_REASON: Final = 13  # index into REASONS of why it waits
JOB_START_MS: Final = 14  # of the current or last generation
JOB_END_MS: Final = 15  # when planning expects its devices back
JOB_GENERATION: Final = 16
JOB_WIDEST: Final = 17  # level index, see LEVELS
JOB_PREFERRED: Final = 18  # level index; NONE = the job names none within its widest
JOB_HELD: Final = 19  # replicas that it holds now
JOB_ATTAINED: Final = 20  # device-ms (whole devices) of all ended generations
JOB_SAVED_MS: Final = 21  # reference run time that is safe
JOB_PREEMPTIBLE: Final = 22
JOB_PROTECTED_MS: Final = 23  # not to be preempted before this time
JOB_DEADLINE_MS: Final = 24
JOB_KIND: Final = 25
JOB_CHECKPOINT_MS: Final = 26  # interval; 0 = it never saves
JOB_RESTART_MS: Final = 27
JOB_BYPASSED: Final = 28  # jobs behind it that started while it waited
JOB_QUEUE_PRIORITY: Final = 29
JOB_ORACLE_MS: Final = 30  # NONE when not known (always, outside the twin)
JOB_WAIT_SINCE_MS: Final = 31  # when its present wait began
JOB_CLAIMED: Final = 32  # 1 = devices are kept for it by name
JOB_WHOLE: Final = 33  # wholly free devices without which it cannot start (0 for shares and for CPU jobs)
JOB_WATTS_MS: Final = 34  # no reservation of its begins before: its watts are not there (kept by `power`)
JOB_COLUMNS: Final = 35

PHASE_FREE: Final = 0  # the row is not in use
PHASE_PENDING: Final = 1  # may start
PHASE_BLOCKED: Final = 2  # held, or waits for a time or for other jobs
PHASE_STARTING: Final = 3  # decided, not yet confirmed
PHASE_RUNNING: Final = 4
PHASE_STOPPING: Final = 5  # told to leave; still holds its devices
PHASE_SUSPENDED: Final = 6

LEVELS: Final = ("nvlink", "node", "leaf", "block", "site")
"""Topology levels from narrow to wide; a level index is a place in this tuple."""
LEVEL_NVLINK: Final = 0
LEVEL_NODE: Final = 1
LEVEL_LEAF: Final = 2
LEVEL_BLOCK: Final = 3
LEVEL_SITE: Final = 4

# --- tenants (row 0 is the root) and queues ---------------------------------------------------------------------------
TENANT_PARENT: Final = 0  # row; NONE for the root. A parent's row is smaller than its children's
TENANT_GUARANTEED: Final = 1  # milli
TENANT_BORROW_MAX: Final = 2  # milli; FOREVER_MS = any amount
TENANT_LEND_MAX: Final = 3  # milli; FOREVER_MS = all
TENANT_USED: Final = 4  # milli held by jobs of it and of all below it
TENANT_HAS_QUOTA: Final = 5
# kept by `engine.quota` (see there), derived from those above and TENANT_OWN:
TENANT_OWN: Final = 6  # milli held by its own jobs
TENANT_NOMINAL: Final = 7  # milli of its own; for a root without quota what of the cluster is nobody's
TENANT_SUBTREE: Final = 8  # milli that reach this level: its own, and what its children may lend
TENANT_KEPT: Final = 9  # milli of TENANT_SUBTREE that it does not lend
TENANT_TAKEN: Final = 10  # milli in use that count against TENANT_SUBTREE
TENANT_LIMITED: Final = 11  # 1 = somebody in the tree has a quota
TENANT_COLUMNS: Final = 12

QUEUE_PRIORITY: Final = 0
QUEUE_DEVICES_MAX: Final = 1  # milli; FOREVER_MS = no limit
QUEUE_JOB_MAX: Final = 2  # milli; FOREVER_MS = no limit
QUEUE_RUNNING_MAX: Final = 3
QUEUE_USED: Final = 4  # milli
QUEUE_RUNNING: Final = 5
QUEUE_COLUMNS: Final = 6


CACHE_LINE: Final = 8
"""Numbers in a line of a processor's cache."""


def make_table(columns: int, rows: int, fill: int = 0) -> Table:
    """A new table of shape [columns, rows]."""
    if fill == 0:
        return np.zeros((columns, max(rows, 1)), dtype=np.int64)
    return np.full((columns, max(rows, 1)), fill, dtype=np.int64)


def grow_table(table: Table, rows: int, fill: int = 0) -> Table:
    """`table` with room for at least `rows` rows, doubling so that growth costs amortised constant time.

    Not to powers of two: the columns of one row would all compete for the same few places of the processor's caches.
    """
    columns, have = table.shape
    if rows <= have:
        return table
    grown = np.full((columns, max(rows, 2 * have) + CACHE_LINE), fill, dtype=np.int64)
    grown[:, :have] = table
    return grown
