"""The built-in synthetic model `philly-like`: numbers only, so that the demonstration needs no trace.

Fitted by `sim.fitting.fit_model` to the public 13-cluster Philly job list (Jeon et al., "Analysis of Large-Scale
Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019; data CC-BY-4.0), which leans to small jobs: 93 % ask
for one GPU. The list names no users and no time limits. Users: 319, as the paper counts, with an assumed skew of 1.
Time limit over run time: as in the RICC log (Parallel Workloads Archive), the nearest log with both.
Its bursts come one by one at one mean gap, without the sessions and paces (`sim.bursts`) that a fit has today: the same
seed gives the workload that it always gave.
"""

from clearway.sim.generate import JobShape, SyntheticModel

# fmt: off
HOUR_WEIGHTS = (
    1.254, 0.972, 1.062, 1.102, 0.665, 1.071, 1.706, 2.109, 1.141, 1.044, 1.040, 0.935, 0.767, 0.676, 0.683,
    0.651, 0.945, 0.625, 0.771, 0.764, 1.007, 0.865, 1.080, 1.066,
)
LIMIT_RATIOS = (
    1, 1.551, 2.767, 4.431, 8.854, 14.12, 19.83, 20.91, 35.88, 47.68, 62.34, 82.52, 105.5, 146.1, 204.1, 284.2,
    400, 552.7, 1507, 13642, 51840, 64800, 86400, 86400, 86400,
)
TENANTS = (
    ("vc-6214e9", 41226), ("vc-11cb48", 16091), ("vc-b436b2", 7423), ("vc-103959", 1934), ("vc-0e4a51", 1435),
    ("vc-ed69ec", 1137), ("vc-7f04ca", 723), ("vc-2869ce", 422), ("vc-e13805", 374), ("vc-23dbec", 8),
    ("vc-51b7ef", 4), ("vc-795a4c", 3), ("vc-925e2b", 3),
)
# (replicas, devices of each, batches in a million, share of bursts, jobs of a burst, seconds of run time); the last
# two are quantiles.
SHAPES = (
    (1, 1, 862821, 0.1499, (
        2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 4, 4, 6, 8, 11, 28.4, 99.2, 228, 375, 462.4, 625, 1063,
    ), (
        1, 52, 61, 67, 73, 88, 174, 295, 516, 733, 1027, 1435, 1707, 2036, 2432, 2649, 3404, 4705, 6046,
        13233, 36357, 110556, 212193, 759359, 3256045,
    )),
    (1, 2, 64956, 0.1256, (
        2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 6.9, 19.16, 40.1, 102.4, 118,
    ), (
        2, 9, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23, 25, 27, 32, 45, 116, 73171, 214117, 302310,
        527355, 837777, 1482602, 2582803,
    )),
    (1, 4, 38262, 0.2067, (
        2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 7, 10, 13.08, 20.23, 24.67, 32.93, 35,
    ), (
        11, 180, 588.4, 1076, 2273, 5047, 9771, 15063, 19492, 30340, 44504, 68123, 81874, 89272, 98086,
        120197, 160597, 181726, 196047, 417579, 590712, 1126617, 1410796, 2595053, 2750674,
    )),
    (1, 8, 27831, 0.1989, (
        2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4.35, 5, 6, 7.225, 8.89, 9.445, 9.889, 10,
    ), (
        9, 82, 283.4, 601.3, 1003, 1622, 3468, 4719, 7158, 11251, 13990, 22329, 36582, 95899, 156331,
        176136, 204460, 227561, 359193, 574670, 851654, 2012085, 2218343, 3117664, 4628226,
    )),
    (2, 8, 4103, 0.0843, (
        2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2.2, 2.8, 3.4, 3.7, 3.88, 3.94, 3.988, 4,
    ), (
        55, 161.2, 288.3, 370.9, 506.4, 746.5, 8198, 28634, 56269, 64107, 95290, 117397, 159323, 175658,
        192516, 224857, 315751, 441437, 505566, 616043, 1016397, 1400545, 1555594, 1679633, 1710643,
    )),
    (4, 8, 1384, 0.4643, (
        2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2.6, 3, 3, 3.4, 4, 4.6, 5, 5, 5, 5, 5, 5, 5, 5,
    ), (
        345, 674.1, 840.7, 921.8, 1103, 1201, 1298, 1574, 3336, 42461, 46304, 47189, 48085, 50763, 53135,
        54489, 55753, 56710, 63019, 73785, 95698, 112416, 117039, 120737, 121661,
    )),
    (3, 4, 346, 0.0000, (
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    ), (
        289, 369.1, 449.2, 529.3, 558, 561, 564, 568.3, 575.2, 582.1, 589, 789.4, 989.8, 1190, 1320, 1414,
        1508, 1833, 2621, 3408, 3802, 4038, 4117, 4180, 4196,
    )),
    (3, 8, 297, 0.0000, (
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    ), (
        265, 277.2, 289.5, 301.8, 314, 317, 320, 323, 326, 330.8, 335.5, 340.2, 345, 364.2, 383.5, 402.8,
        422, 488, 554, 620, 653, 672.8, 679.4, 684.7, 686,
    )),
)
# fmt: on

PHILLY_LIKE = SyntheticModel(
    name="philly-like",
    source="fitted to the Philly job list of 2017, 13 virtual clusters",
    jobs_per_hour=27.08,
    hour_weights=HOUR_WEIGHTS,
    burst_gap_s=8.61,
    shapes=tuple(
        JobShape(
            replicas=replicas,
            devices=devices,
            weight=batches,
            run_quantiles_s=runs,
            burst_probability=bursts,
            burst_size_quantiles=sizes,
        )
        for replicas, devices, batches, bursts, sizes, runs in SHAPES
    ),
    users=319,
    user_skew=1.0,
    tenants=TENANTS,
    limit_quantiles=LIMIT_RATIOS,
)
