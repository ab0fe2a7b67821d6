# In PAPI's source tree, as its folder `src`: builds programs of 2010's perfctr and of PAPI, static, and puts them into $1.
set -eu

# glibc calls `struct ucontext` `ucontext_t` since 2.26; none of this code has seen a compiler of today.
export CC='gcc -static -w -fcommon -Ducontext=ucontext_t'
jobs=$(nproc)

cd perfctr-2.6.x
make config CC="$CC"
make -C usr.lib CC="$CC" libperfctr.a perfctr_event_codes.h
# A kernel of today reports the room that a control message took, not its padded size.
sed -i 's/^#define CMSG_FD_PADDED_SIZE.*/#define CMSG_FD_PADDED_SIZE CMSG_FD_TRUE_SIZE/' examples/perfex/perfex.c
for example in self signal perfex; do
	make -C examples/$example CC="$CC"
	cp examples/$example/$example "$1/perfctr-$example"
done
cd ..

# PAPI 7 no longer starts its perfctr component when it must: after the threads' part, as it does perf_event's.
sed -i 's/\(cmp_info.name, \)"perf_event_uncore"/\1"perfctr"/' papi_internal.c
ac_cv_file__sys_class_perfctr=no ac_cv_file__dev_perfctr=yes ./configure --with-perfctr \
	--with-static-lib=yes --with-shared-lib=no --with-tests= CC=gcc CFLAGS='-w -fcommon -Ducontext=ucontext_t'
make -C libpfm-3.y/lib CONFIG_PFMLIB_SHARED=n EXTRA_CFLAGS='-w -fcommon'
make -j"$jobs" libpapi.a
libraries='libpapi.a libpfm-3.y/lib/libpfm.a'
utilities='testlib/test_utils.c testlib/do_loops.c testlib/clockcore.c'
include='-I. -Itestlib -Iutils -Ictests -D_GNU_SOURCE'
for test in first zero_fork zero_pthreads; do
	$CC -O1 $include ctests/$test.c $utilities $libraries -lpthread -lm -ldl -o "$1/papi-$test"
done
$CC -O1 $include utils/papi_command_line.c utils/print_header.c $utilities $libraries -lpthread -lm -ldl \
	-o "$1/papi-command-line"
strip "$1"/*
