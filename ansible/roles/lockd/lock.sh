#!/bin/sh
# lock.sh PYTHON: in the folder of pyproject.toml, writes what is deployed (requirements.lock) and what its wheel is
# built with (build.lock), the newest of each, by version and hash. PYTHON has uv.
set -eu
python=$1
locks=$(dirname "$0")/files

compile() {
    "$python" -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --only-binary :all: \
        --generate-hashes --no-header --no-annotate --no-emit-index-url "$@" >/dev/null
}

requirements_of_the_build() {
    "$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'
}

compile --output-file "$locks/requirements.lock" pyproject.toml
requirements_of_the_build | compile --output-file "$locks/build.lock" -
