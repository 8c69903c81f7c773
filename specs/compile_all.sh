#!/bin/sh
# Compile every spec under this folder, one file each:
#
#     specs/compile_all.sh OUTPUT_DIR [SUFFIX] [options of nautilusc...]
#     specs/compile_all.sh out                        CUDA C++ for the GPU here, else sm_90a
#     specs/compile_all.sh out cubin --arch sm_80     cubins for sm_80
#
# One line a spec on standard output; the errors of a failing compilation are on standard error. Exit
# code 1 if any failed. NAUTILUSC names the compiler (default: the checkout's .venv, else the PATH).
set -u

usage() {
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit "$1"
}

case ${1-} in
-h | --help) usage 0 ;;
'' | -*) usage 2 >&2 ;;
esac
out=$1
shift
suffix=cu
case ${1-} in
cu | ptx | cubin | json | scalar | vr | ma)
    suffix=$1
    shift
    ;;
esac

specs=$(dirname "$0")
own=$specs/../.venv/bin/nautilusc
if [ -z "${NAUTILUSC-}" ]; then
    if [ -x "$own" ]; then NAUTILUSC=$own; else NAUTILUSC=nautilusc; fi
fi
command -v "$NAUTILUSC" >/dev/null || {
    echo "$0: $NAUTILUSC is not here (make setup installs it into .venv; NAUTILUSC names another)" >&2
    exit 3
}

failed=0
for spec in "$specs"/*/*.naut; do
    family=$(basename "$(dirname "$spec")")
    name=$family/$(basename "$spec" .naut)
    mkdir -p "$out/$family" || exit 2
    if "$NAUTILUSC" "$spec" -o "$out/$name.$suffix" "$@"; then
        echo "ok      $name"
    else
        code=$?
        [ "$code" -eq 130 ] && exit 130 # interrupted
        echo "FAILED  $name (exit code $code)"
        failed=1
    fi
done
exit "$failed"
