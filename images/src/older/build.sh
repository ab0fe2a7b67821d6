# In PAPI's source tree, as its folder `src`: builds programs of 2010's perfctr, of 64 and of 32 bits, and of PAPI, static, and
# puts them into $1. $2 has what gcc lacks for 32 bits.
set -eu

programs=$1
# glibc calls `struct ucontext` `ucontext_t` since 2.26; none of this code has seen a compiler of today.
options='-static -w -fcommon -Ducontext=ucontext_t'
jobs=$(nproc)

# perfctr's library and its examples in folder $1: for architecture $2, by compiler $3, with $4 after their names.
build_perfctr() (
	cd "$1"
	shift
	make ARCH="$1" CC="$2" config
	make ARCH="$1" CC="$2" -C usr.lib libperfctr.a perfctr_event_codes.h
	# A kernel of today reports the room that a control message took, not its padded size.
	sed -i 's/^#define CMSG_FD_PADDED_SIZE.*/#define CMSG_FD_PADDED_SIZE CMSG_FD_TRUE_SIZE/' examples/perfex/perfex.c
	for example in self signal perfex global; do
		make ARCH="$1" CC="$2" -C examples/$example
		cp examples/$example/$example "$programs/perfctr-$example$3"
	done
)

cp -r perfctr-2.6.x perfctr-i386
# PAPI has its library from there.
build_perfctr perfctr-2.6.x x86_64 "gcc $options" ''
# The same headers, but for those of the kernel, which are where the 64-bit compiler looks for them.
folders="-isystem $2/usr/include -idirafter /usr/include/x86_64-linux-gnu"
folders="$folders -B$2/usr/lib32/ -B$2/usr/lib/gcc/x86_64-linux-gnu/12/32/"
build_perfctr perfctr-i386 i386 "gcc-12 -m32 $options $folders" -i386

export CC="gcc $options"
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
	$CC -O1 $include ctests/$test.c $utilities $libraries -lpthread -lm -ldl -o "$programs/papi-$test"
done
$CC -O1 $include utils/papi_command_line.c utils/print_header.c $utilities $libraries -lpthread -lm -ldl \
	-o "$programs/papi-command-line"
strip "$programs"/*
