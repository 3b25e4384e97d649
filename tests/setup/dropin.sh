#!/bin/sh
# dropin.sh PYTHON FOLDER: the libraries of others that lock, for tests/dropin, as they are in their registries: each list
# of tests/dropin/environments in a folder of its own, and programs of compiled languages. FOLDER/.installed says that
# all was done that this machine has the tools for. Nothing fails here: a library that is not there has its tests skipped.
# A registry that says nothing is given up by pip, npm and Maven themselves. How long a busy machine takes says nothing.
set -eu
python=$1
folder=$2
here=$(cd "$(dirname "$0")/../dropin" && pwd)
go_packages=/usr/share/gocode # Debian's
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

skipped() {
    echo "$1: tests of its libraries will be skipped"
}

# Another time it may go well.
failed() {
    skipped "$1"
    touch "$folder/.failed"
}

has() {
    for program in "$@"; do command -v "$program" >/dev/null || return 1; done
}

# The lists have all that each needs, so nothing is asked for it. What has no wheel is built in the way of today: in its
# old way, Debian 12's pip leaves no .dist-info, by which tests find a library.
with_pip() {
    "$python" -m pip install --quiet --disable-pip-version-check --use-pep517 --no-deps --no-compile \
        --target "$folder/$1" --requirement "$here/environments/$1.txt" || failed "$1.txt could not be installed"
}

with_npm() {
    if ! has node npm; then skipped "no Node.js" && return; fi
    mkdir -p "$folder/node"
    # shellcheck disable=SC2046 # a word for each package
    npm install --fetch-retries=1 --fetch-timeout=30000 --prefix "$folder/node" --silent --no-package-lock \
        --ignore-scripts --no-audit --no-fund $(cat "$here/environments/node.txt") ||
        failed "node.txt could not be installed"
}

with_go() {
    if ! has go || [ ! -e "$go_packages/src/github.com/gomodule/redigo" ]; then skipped "no redigo" && return; fi
    GO111MODULE=off GOPATH=$go_packages GOTOOLCHAIN=local go build -o "$folder/redigo/locks" "$here/programs/redigo.go" ||
        failed "redigo.go could not be built"
}

with_maven() {
    if ! has mvn javac; then skipped "no Maven" && return; fi
    java_program jedis
    java_program shedlock
}

java_program() {
    jars=$folder/$1
    if mvn -q -B -Dstyle.color=never -Dmaven.wagon.rto=30000 -Daether.connector.requestTimeout=30000 \
        -f "$here/programs/$1/pom.xml" dependency:copy-dependencies -DoutputDirectory="$jars" >/dev/null 2>&1 && javac -cp "$jars/*" -d "$jars" "$here/programs/$1/Locks.java"; then
        echo "exec java -XX:TieredStopAtLevel=1 -cp '$jars:$jars/*' Locks \"\$@\"" >"$jars/locks"
    else
        failed "$1 could not be installed"
    fi
}

echo "installing libraries that lock"
rm -rf "$folder/now" "$folder/then" "$folder/redigo" "$folder/jedis" "$folder/shedlock" "$folder/.failed"
with_pip now &
with_pip then &
with_npm &
with_go &
with_maven &
wait
[ -e "$folder/.failed" ] || touch "$folder/.installed"
