#!/bin/sh
# ioredis.sh FOLDER: a client of another language, for the tests that show lockd to it. FOLDER/.installed says that it is
# there. Nothing fails here: without it its tests are skipped.
set -eu
mkdir -p "$1"
echo "installing ioredis"
if timeout 120 npm install --fetch-retries=1 --fetch-timeout=30000 --prefix "$1" --silent --no-package-lock \
    --ignore-scripts --no-audit --no-fund ioredis@5; then
    touch "$1/.installed"
else
    echo "ioredis could not be installed: its tests will be skipped"
fi
