#!/bin/sh
# parts.sh TITLE COMMAND [TITLE COMMAND]…: runs them one after the other, up to the first that fails, and says which it
# is, of how many, and how long each took.
set -u
many=$(($# / 2))
number=0
failed=0
table=

spent() {
    printf '%d:%02d' $((($1 - $2) / 60)) $((($1 - $2) % 60))
}

began=$(date +%s)
while [ $# -gt 0 ] && [ $failed -eq 0 ]; do
    number=$((number + 1))
    echo "=== part $number of $many: $1 (after $(spent "$(date +%s)" "$began"))"
    started=$(date +%s)
    sh -c "$2" || failed=$?
    ended=$(date +%s)
    if [ $failed -eq 0 ]; then how=well; else how="FAILED with status $failed"; fi
    table="$table  $number $(spent "$ended" "$started")  $1: $how
"
    shift 2
done
printf '=== %d of %d parts in %s min\n%s' $number $many "$(spent "$(date +%s)" "$began")" "$table"
exit $failed
