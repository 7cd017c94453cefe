"""Bypasses operations that have no effect in a served network, such as identities and stopped gradients."""

from __future__ import annotations

from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph


def drop_dead_operations(graph: FlatGraph) -> None:
    """Connect each node directly to the nodes that compute its inputs."""
    for node in graph.nodes.values():
        for position, name in enumerate(node.input):
            if not name.startswith("^"):
                node.input[position] = graph.origin(name)
    graph.outputs = [graph.origin(output) for output in graph.outputs]
