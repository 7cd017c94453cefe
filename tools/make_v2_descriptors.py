"""Write wire/v2/descriptors.binpb, the message definitions from the official tritonclient package.

    python tools/make_v2_descriptors.py [OUT]

Needs only tritonclient[grpc] 2.73, and runs in the environment that has it, `.cache/v2/clients` of the Makefile.
"""

from __future__ import annotations

import sys
from pathlib import Path

from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2, service_pb2


def collect() -> descriptor_pb2.FileDescriptorSet:
    """Return the files of the service, dependencies first."""
    files = descriptor_pb2.FileDescriptorSet()
    for module in (model_config_pb2, service_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    return files


def main() -> None:
    """Write the descriptor set to OUT, by default wire/v2/descriptors.binpb."""
    default = Path(__file__).parent.parent / "wire" / "v2" / "descriptors.binpb"
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    out.write_bytes(collect().SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
