"""The stages of a run are read from its trace."""

from __future__ import annotations

import tensorflow as tf

from savedmodel_bakery.serving.runtimes.graphs import stages_s

# Name, operation, start and duration in microseconds.
SPANS = [
    ("first/while", "While", 1000, 500),
    ("first/conv", "Conv2D", 1500, 9000),
    ("second/while", "StatelessWhile", 1200, 100),  # within the first
    ("third/while", "While", 1400, 300),  # overlaps the first
    ("fourth/while", "While", 5000, 1000),
    ("while/body", "Switch", 0, 9000),
]


def trace() -> tf.compat.v1.RunMetadata:
    metadata = tf.compat.v1.RunMetadata()
    device = metadata.step_stats.dev_stats.add(device="/device:CPU:0")
    for name, operation, start, duration in SPANS:
        device.node_stats.add(
            node_name=name,
            timeline_label=f"[mklcpu 3.4MB 3.4MB] {name} = {operation}(input, while/x)",
            all_start_micros=start,
            all_end_rel_micros=duration,
        )
    return metadata


def test_reading_is_the_time_in_which_a_loop_ran_and_the_network_is_the_rest_of_the_run() -> None:
    recorded = [stages_s(trace(), run_s) for run_s in (0.0027, 0.001)]  # clocks differ a little
    assert [(0.0017, 0.001), (0.0017, 0.0)] == [(decoding, round(network, 6)) for decoding, network in recorded]
