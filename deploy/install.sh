#!/bin/sh
# Installs the service into a virtual environment of its own: deploy/install.sh FOLDER
# Run from the root of the source tree.  TORCH_INDEX: package index of torch, where not the default one.
set -eu
folder=$1
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --no-cache-dir --disable-pip-version-check \
    ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
"$folder/bin/python" -m pip install --no-cache-dir --disable-pip-version-check -c constraints.txt ./sdk '.[otel]'
