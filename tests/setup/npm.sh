#!/bin/sh
# npm.sh FOLDER: clients of another language, for the tests that show lockd to them. FOLDER/.installed says that they are
# there. Nothing fails here: without them their tests are skipped.
set -eu
mkdir -p "$1"
# The newest want a Node.js newer than Debian 12's.
if [ "$(node -p 'parseInt(process.versions.node) >= 20')" = true ]; then
    clients="ioredis redis"
else
    clients="ioredis@5 redis@5"
fi
echo "installing $clients"
# shellcheck disable=SC2086 # a word for each package
if npm install --fetch-retries=1 --fetch-timeout=30000 --prefix "$1" --silent --no-package-lock \
    --ignore-scripts --no-audit --no-fund $clients; then
    touch "$1/.installed"
else
    echo "they could not be installed: their tests will be skipped"
fi
