#!/bin/bash
# Finishes an environment of the images: removes what no image needs from /opt/bakery, compiles the rest, and writes the list
# of its packages, a CycloneDX document. The same packages always give the same files.
set -euo pipefail

cd /opt/bakery/lib/python3*/site-packages
find . -name tests -type d -prune -exec rm -r {} +
if [[ -d tensorflow ]]; then
    rm -r tensorflow/include tensorflow/compiler/mlir/stablehlo/stablehlo_extension.so
    find tensorflow -name '*.so*' -type f -exec strip --strip-unneeded {} +
fi
# The image can't be written to, so bytecode is never compared with its source.
PYTHONHASHSEED=0 python3 -m compileall -q -f --invalidation-mode unchecked-hash .
cyclonedx-py environment --output-reproducible --output-file /opt/bakery/sbom.cdx.json /opt/bakery/bin/python3
# Builders name a layer by the times of its files too.
find /opt/bakery -exec touch --no-dereference --date=@"${SOURCE_DATE_EPOCH:-0}" {} +
