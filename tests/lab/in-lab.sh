#!/bin/sh
# Runs a static test program in the lab machine, as cargo's runner: in-lab.sh PROGRAM ARGUMENTS
# To list tests, or with none to run, no machine is needed. PERFVISOR is the perfvisor to use.
set -e
program=$1
shift
case " $* " in
*" --list "*) exec "$program" "$@" ;;
esac
case $("$program" "$@" --list) in
*": test"*) ;;
*) exit 0 ;;
esac
exec "${PERFVISOR:-perfvisor}" lab exec -- sh -c '
    cat > /tmp/program.$$ && chmod +x /tmp/program.$$
    status=0
    /tmp/program.$$ "$@" || status=$?
    rm /tmp/program.$$
    exit $status' program "$@" < "$program"
