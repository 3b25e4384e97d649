#!/bin/sh
# lock.sh PYTHON: in the folder of pyproject.toml, writes what is deployed (requirements.lock) and what its wheel is
# built with (build.lock, and compiled.lock where it is compiled), and what a controller without package indexes runs
# plays with (controller.lock), the newest of each, by version and hash. PYTHON has uv.
set -eu
python=$1
locks=$(dirname "$0")/files

compile() {
    "$python" -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --only-binary :all: \
        --generate-hashes --no-header --no-annotate --no-emit-index-url "$@" >/dev/null
}

# What the wheel is built with: the words that lead there in pyproject.toml.
requirements_of() {
    "$python" -c 'import sys, tomllib
at = tomllib.load(open("pyproject.toml", "rb"))
for word in sys.argv[1:]: at = at[word]
print(*at, sep="\n")' "$@"
}

compile --output-file "$locks/requirements.lock" pyproject.toml
requirements_of build-system requires | compile --output-file "$locks/build.lock" -
requirements_of project optional-dependencies compiled | compile --output-file "$locks/compiled.lock" -
requirements_of project optional-dependencies lab | grep '^ansible[<>=]' | compile --output-file "$locks/controller.lock" -
