"""Operations that do nothing when a network is served: identities, stopped gradients, defaults nobody replaces."""

from __future__ import annotations

from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph


def drop_dead_operations(graph: FlatGraph) -> None:
    """Let every node take its inputs from where they come from."""
    for node in graph.nodes.values():
        for place, name in enumerate(node.input):
            if not name.startswith("^"):
                node.input[place] = graph.origin(name)
    graph.output = graph.origin(graph.output)
