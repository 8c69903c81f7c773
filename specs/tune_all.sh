#!/bin/sh
# Tune a list of specs and sizes, one after the other:
#
#     specs/tune_all.sh [LIST] [options of nautilusc tune...]
#     specs/tune_all.sh > results.jsonl               everything in tune_list.txt
#     specs/tune_all.sh --devices 0,1 --trials 200    the same, longer and on two GPUs
#     specs/tune_all.sh my_list.txt --measure model   another list; estimates, no GPU
#
# A line of LIST is a spec (beside this script, or a path) and its sizes: attention/causal_decode N=1024,B=8
# One JSON line a result on standard output. Started again, it goes on where it stopped: what is done is
# printed again at once. Exit code 1 if any failed, 130 if interrupted. NAUTILUSC names the compiler.
set -u

usage() {
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit "$1"
}

specs=$(dirname "$0")
list=$specs/tune_list.txt
case ${1-} in
-h | --help) usage 0 ;;
'' | -*) ;;
*)
    list=$1
    shift
    ;;
esac
[ -r "$list" ] || {
    echo "$0: cannot read $list" >&2
    exit 2
}

own=$specs/../.venv/bin/nautilusc
if [ -z "${NAUTILUSC-}" ]; then
    if [ -x "$own" ]; then NAUTILUSC=$own; else NAUTILUSC=nautilusc; fi
fi
command -v "$NAUTILUSC" >/dev/null || {
    echo "$0: $NAUTILUSC is not here (make setup installs it into .venv; NAUTILUSC names another)" >&2
    exit 3
}

failed=0
while read -r spec sizes || [ -n "$spec" ]; do
    case $spec in
    '' | '#'*) continue ;;
    /* | ./*) path=$spec ;;
    *) path=$specs/$spec ;;
    esac
    case $path in
    *.naut) ;;
    *) path=$path.naut ;;
    esac
    "$NAUTILUSC" tune "$path" ${sizes:+--dim "$sizes"} --resume --json "$@" </dev/null
    code=$?
    [ "$code" -ge 128 ] && exit "$code" # interrupted
    [ "$code" -eq 0 ] || failed=1
done <"$list"
exit "$failed"
