// SPDX-License-Identifier: GPL-2.0-or-later
/* What is refused, and that nothing of it reaches a register. */
#include "module.h"

void no_register_was_written(const char *name)
{
	for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++)
		for (int i = 0; i < 2 * COUNTERS; i++)
			expect(name, msr(cpu, EVNTSEL_MSR + i), 0);
	check(name, 0, 0);
}

static void *others_thread(void *fd)
{
	check("load-by-another-thread", load(*(int *)fd, 0, USR | INSNS), EACCES);
	check("arm-by-another-thread", arm(*(int *)fd, 0, 5), EACCES);
	check("attach-by-another-thread", attach(*(int *)fd), EBUSY);
	return NULL;
}

/* Every bit that is the module's or nobody's. */
static void wrong_bits(int fd, uint64_t allowed)
{
	for (int bit = 0; bit < 64; bit++)
		if (!(allowed >> bit & 1))
			expect("bit", load(fd, 0, USR | INSNS | 1ULL << bit), EPERM);
	check("event-merge", load(fd, 0, USR | 0xf000000ff), EPERM);
	check("neither-usr-nor-os", load(fd, 0, INSNS), EINVAL);
	check("host-only", load(fd, 0, USR | INSNS | 1ULL << 41), EPERM);
}

static const unsigned long vcpu_calls[] = {
	PERFCTR_HOST_INFO, PERFCTR_HOST_ATTACH, PERFCTR_HOST_LOAD, PERFCTR_HOST_ARM
};

/* Every size but the right one, in both directions, and numbers that are no call. */
void wrong_numbers(int fd, const unsigned long *calls, int n_calls)
{
	char argument[_IOC_SIZEMASK + 1];

	memset(argument, 0, sizeof(argument));
	for (int c = 0; c < n_calls; c++) {
		for (int size = 0; size <= _IOC_SIZEMASK; size++) {
			unsigned long n = calls[c];

			n = _IOC(_IOC_DIR(n), _IOC_TYPE(n), _IOC_NR(n), size);
			if (n != calls[c] && (ioctl(fd, n, argument) != -1 || errno != ENOTTY))
				check("size", size, -1);
		}
		expect("direction", ioctl(fd, calls[c] ^ 0xc0000000, argument), -1);
	}
	for (int n = 0; n < 256; n++) {
		int known = 0;

		for (int c = 0; c < n_calls; c++)
			known |= _IOC_NR(calls[c]) == (unsigned int)n;
		if (!known && (ioctl(fd, _IO(0xd1, n), argument) != -1 || errno != ENOTTY))
			check("number", n, -1);
	}
	check("numbers", 0, 0);
}

void wrong_pointers(int fd, const unsigned long *calls, int n_calls)
{
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *const bad[] = { NULL, (void *)1, (void *)-1L, (void *)0xffffffff81000000, page + 4094 };

	munmap(page + 4096, 4096);
	for (int c = 0; c < n_calls; c++)
		for (int p = 0; p < 5; p++)
			if (ioctl(fd, calls[c], bad[p]) != -1 || errno != EFAULT)
				check("pointer", c, p);
	check("pointers", 0, 0);
}

void t_errors(void)
{
	struct perfctr_host_info info;
	struct perfctr_host_attach a = { .signo = signo, ._reserved = 1 };
	struct perfctr_host_load l = { .evntsel = USR | INSNS, ._reserved = 1 };
	struct perfctr_host_arm r = { .after = 5, ._reserved = 1 };
	pthread_t thread;
	int fd = device(), second = device();

	check("info", ioctl(fd, PERFCTR_HOST_INFO, &info), 0);
	check("info-counters", info.counters, COUNTERS);
	check("info-width", info.width, 48);
	check("load-unattached", load(fd, 0, USR | INSNS), EACCES);
	check("arm-unattached", arm(fd, 0, 5), EACCES);
	check("attach-reserved", ioctl(fd, PERFCTR_HOST_ATTACH, &a), -1);
	a._reserved = 0;
	for (a.signo = -1; a.signo < 32; a.signo++)
		expect("signal", ioctl(fd, PERFCTR_HOST_ATTACH, &a), -1);
	a.signo = 65;
	check("signal-65", ioctl(fd, PERFCTR_HOST_ATTACH, &a), -1);
	a.signo = INT_MAX;
	check("signal-int-max", ioctl(fd, PERFCTR_HOST_ATTACH, &a), -1);
	check("attach", attach(fd), 0);
	check("attach-again", attach(fd), EBUSY);
	check("attach-two-files", attach(second), EBUSY);
	pthread_create(&thread, NULL, others_thread, &fd);
	pthread_join(thread, NULL);

	check("load-reserved", ioctl(fd, PERFCTR_HOST_LOAD, &l), -1);
	for (uint32_t c = COUNTERS; c; c *= 2)
		expect("counter", load(fd, c, USR | INSNS), EINVAL);
	check("counter-last", load(fd, -1, USR | INSNS), EINVAL);
	wrong_bits(fd, info.evntsel);
	wrong_numbers(fd, vcpu_calls, 4);
	wrong_pointers(fd, vcpu_calls, 4);
	check("arm-empty", arm(fd, 0, 5), ENOENT);
	no_register_was_written("nothing-written");

	check("load", load(fd, 0, USR | INSNS), 0);
	check("arm-reserved", ioctl(fd, PERFCTR_HOST_ARM, &r), -1);
	check("arm-0", arm(fd, 0, 0), EINVAL);
	check("arm-too-far", arm(fd, 0, PERFCTR_HOST_MAX_THRESHOLD + 1), EINVAL);
	check("arm-no-counter", arm(fd, COUNTERS, 5), EINVAL);
	check("arm-farthest", arm(fd, 0, PERFCTR_HOST_MAX_THRESHOLD), 0);
	check("empty", load(fd, 0, 0), 0);
	check("arm-emptied", arm(fd, 0, 5), ENOENT);
	close(fd);
	check("attach-after-another", attach(second), 0);
	close(second);
	no_register_was_written("nothing-left");
}

void t_mappings(void)
{
	int fd = device(), wrong = 0;
	void *page;

	wrong += mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
	wrong += mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
	wrong += mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0) != MAP_FAILED;
	wrong += mmap(NULL, 4096, PROT_NONE, MAP_SHARED, fd, 0) != MAP_FAILED;
	wrong += mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED;
	wrong += mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED;
	wrong += mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 4096) != MAP_FAILED;
	check("mappings-refused", wrong, 0);
	page = (void *)map_state(fd);
	check("mprotect", mprotect(page, 4096, PROT_READ | PROT_WRITE), -1);
	check("mprotect-exec", mprotect(page, 4096, PROT_READ | PROT_EXEC), -1);
	check("mremap", mremap(page, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED, 1);
	madvise(page, 4096, MADV_DONTNEED);
	check("page-comes-back", ((struct perfctr_host_state *)page)->width, 48);
	for (size_t i = sizeof(struct perfctr_host_state); i < 4096; i++)
		expect("rest-of-page", ((char *)page)[i], 0);
	close(fd);
	check("mapping-holds", module_uses(), 1);
	munmap(page, 4096);
	check("mapping-released", module_uses(), 0);
}

static void as_nobody(void)
{
	if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
		die("setuid");
	check("other-user", open(DEVICE, O_RDWR) < 0 ? errno : 0, EACCES);
}

static void as_member(void)
{
	gid_t group = 1234;

	if (setgroups(1, &group) || setgid(65534) || setuid(65534))
		die("setuid");
	check("member-of-the-group", open(DEVICE, O_RDWR) < 0 ? errno : 0, 0);
}

void t_users(void)
{
	check("users", in_child(as_nobody), 0);
	if (chown(DEVICE, 0, 1234))
		die("chown");
	check("others-of-a-group", in_child(as_nobody), 0);
	check("group", in_child(as_member), 0);
	if (chown(DEVICE, 0, 0))
		die("chown");
}
