#!/bin/sh
# prometheus.sh FOLDER PACKAGE…: promtool, amtool and the programs of the chain, without root. They are unpacked and not
# installed: their packages start services at once, on the ports of a monitoring host, and nobody asked for those by
# running tests. Nothing fails here: without them their tests are skipped.
set -eu
if ! command -v apt-get >/dev/null; then
    echo "no apt-get: tests that need Prometheus will be skipped"
    exit 0
fi
folder=$1
shift
echo "unpacking $*"
"$(dirname "$0")/unpack.sh" "$folder" "$@" || echo "Debian's Prometheus could not be downloaded: its tests will be skipped"
