#!/usr/bin/env bash
# Jobs under Slurm that end well and badly, and what the answers say of them: see tests/jobs/check.py. Each runs with
# `trace-cli record` before `srun` or after it; with ANNALS_LONG=1, both. For that, a Slurm of this machine only is started.
#
#     TESTS_BUILT_IN=DIRECTORY bash tests/jobs.sh [CASE...]      cases: limit hang crash hybrid plain, followed by -before or -after
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/jobs/slurm.sh

bin=${TESTS_BUILT_IN:?the directory of trace-cli and its libraries}
mpi=$PWD/target/mpi/mpich/bin
work=$PWD/target/jobs
rm -rf "$work"
mkdir -p "$work/bin"
ln -s "$bin"/*.so "$bin/trace-cli" "$work/bin/"
export PATH=$work/bin:$PATH
"$mpi/mpicc" -Wall -g -O1 -finstrument-functions tests/jobs/ending.c -o "$work/ending"
"$mpi/mpicc" -Wall -g -O2 -fopenmp -finstrument-functions tests/jobs/ends_well.c -o "$work/hybrid"
"$mpi/mpicc" -Wall -g -O2 tests/jobs/ends_well.c -o "$work/plain"
cc -Wall -g -O1 -fno-inline -finstrument-functions tests/jobs/helper.c -o "$work/helper"

trap slurm_stop EXIT
slurm_start "$work/slurm"

# Records a job; returns when its launcher has.
job() {
    local case=$1 how=${1%-*} place=${1#*-} srun record
    mkdir -p "$work/$case"
    cd "$work/$case"
    case $how in
        limit) srun=(srun --time=1 -n 2 ../ending limit) ;;
        hang) srun=(srun --job-name="$case" -n 3 ../ending hang) ;;
        crash) srun=(srun --kill-on-bad-exit=1 -n 3 ../ending crash) ;;
        # A helper runs in each rank's place before it.
        hybrid) srun=(srun -n 4 bash -c "../helper; ../hybrid") ;;
        plain) srun=(srun -n 4 "../plain") ;;
    esac
    record=(trace-cli record -o run --)
    # Without functions, samples show where its time is.
    [ "$how" != plain ] || record=(trace-cli record --sample -o run --)
    if [ "$place" = before ]; then
        set -- "${record[@]}" "${srun[@]}"
    else
        # After srun's own options, before the program.
        local program=${#srun[@]}
        case $how in
            plain) program=$((program - 1)) ;;
            hybrid) program=$((program - 3)) ;;
            *) program=$((program - 2)) ;;
        esac
        set -- "${srun[@]:0:program}" "${record[@]}" "${srun[@]:program}"
    fi
    timeout --kill-after=10 200 "$@" >log 2>&1 &
    if [ "$how" = hang ]; then
        # Until all ranks have been where they hang for some time.
        local tries
        for tries in $(seq 600); do
            [ -s truth-2 ] && od -An -t f8 -j 8 -N 8 truth-2 | grep -qv ' 0$' && break
            sleep 0.1
        done
        sleep 3
        scancel --full --name="$case"
    fi
    wait $! || true
    python3 -c 'import time; print(time.clock_gettime(time.CLOCK_MONOTONIC))' >ended
}

if [ $# -ne 0 ]; then
    cases=("$@")
elif [ "${ANNALS_LONG:-}" = 1 ]; then
    cases=({limit,hang,crash,hybrid,plain}-{before,after})
else
    cases=(limit-before hang-after crash-before hybrid-after plain-before)
fi
# What waits for the time limit does so while the others run, one after another.
for case in "${cases[@]}"; do
    case $case in limit-*) job "$case" & ;; esac
done
for case in "${cases[@]}"; do
    case $case in limit-*) ;; *) (job "$case") ;; esac
done
wait
failed=0
for case in "${cases[@]}"; do
    python3 tests/jobs/check.py "$case" "$work/$case" || {
        failed=1
        cat "$work/$case/log" >&2
    }
done
exit $failed
