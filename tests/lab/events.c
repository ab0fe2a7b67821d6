// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checks the lab's emulated performance counters from inside the machine,
 * through perf_event_open: every count is compared for equality.
 *
 *   cc -O1 -static -pthread -o events events.c        (run as root)
 *
 * One line per check, "ok NAME" or "FAIL NAME got want"; a check that cannot
 * run is "skip NAME: reason".  Exit status 1 if any failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { INSNS, CYCLES, BRANCHES, TAKEN, COND, NEV };
static const uint64_t raw[NEV] = { 0xc0, 0x76, 0xc2, 0xc4, 0xd1 };
static const char *const evname[NEV] = {
	"insns", "cycles", "branches", "taken", "cond"
};
static int failed;

static void check(const char *name, const char *what, int64_t got, int64_t want)
{
	if (got == want) {
		printf("ok %s%s%s\n", name, what ? "/" : "", what ? what : "");
	} else {
		printf("FAIL %s%s%s %lld %lld\n", name, what ? "/" : "",
		       what ? what : "", (long long)got, (long long)want);
		failed = 1;
	}
	fflush(stdout);
}

static void die(const char *what)
{
	printf("FAIL %s: %s\n", what, strerror(errno));
	exit(1);
}

#define USER	1	/* not the kernel */
#define KERNEL	2	/* not user code */
#define NOGUEST	4
#define NOHOST	8

static int ev_open(uint64_t config, int flags, uint64_t period, int group)
{
	struct perf_event_attr a;
	int fd;

	memset(&a, 0, sizeof(a));
	a.size = sizeof(a);
	a.type = PERF_TYPE_RAW;
	a.config = config;
	a.disabled = group == -1;
	a.exclude_kernel = !!(flags & USER);
	a.exclude_user = !!(flags & KERNEL);
	a.exclude_guest = !!(flags & NOGUEST);
	a.exclude_host = !!(flags & NOHOST);
	a.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED |
			PERF_FORMAT_TOTAL_TIME_RUNNING;
	if (period) {
		a.sample_period = period;
		a.sample_type = PERF_SAMPLE_IP;
		a.wakeup_events = 1 << 30;
	}
	fd = syscall(SYS_perf_event_open, &a, 0, -1, group, 0);
	if (fd < 0)
		die("perf_event_open");
	return fd;
}

static uint64_t ev_read(int fd)
{
	uint64_t v[3];

	if (read(fd, v, sizeof(v)) != sizeof(v))
		die("read");
	if (v[1] != v[2]) {
		printf("FAIL multiplexed\n");
		failed = 1;
	}
	return v[0];
}

/* All five events of this thread, user mode only, in one group. */
struct group { int fd[NEV]; };

static void group_open(struct group *g, int flags)
{
	for (int i = 0; i < NEV; i++)
		g->fd[i] = ev_open(raw[i], flags, 0, i ? g->fd[0] : -1);
}

static void group_close(struct group *g)
{
	for (int i = 0; i < NEV; i++)
		close(g->fd[i]);
}

/* What @fn(@arg) counts, plus a constant: it is the same code every time. */
static __attribute__((noinline)) void
measure(struct group *g, void (*fn)(void *), void *arg, uint64_t *count)
{
	ioctl(g->fd[0], PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP);
	ioctl(g->fd[0], PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
	fn(arg);
	ioctl(g->fd[0], PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
	for (int i = 0; i < NEV; i++)
		count[i] = ev_read(g->fd[i]);
}

struct work {
	uint64_t n;	/* iterations */
	void *p;
	uint64_t len;
};

/* Two amounts of work; the difference has to be exactly @per, @n2-@n1 times. */
static void check_work(const char *name, void (*fn)(void *), int flags,
		       struct work *w1, struct work *w2, const int *per)
{
	struct group g;
	uint64_t a[NEV], b[NEV];

	group_open(&g, flags);
	measure(&g, fn, w1, a);
	measure(&g, fn, w2, b);
	group_close(&g);
	for (int i = 0; i < NEV; i++)
		check(name, evname[i], b[i] - a[i],
		      (int64_t)(w2->n - w1->n) * per[i]);
}

static __attribute__((noinline)) void w_loop(void *arg)
{
	uint64_t n = ((struct work *)arg)->n;

	asm volatile("1: dec %0; jnz 1b" : "+r"(n) :: "cc");
}

/* Every kind of near branch: jmp, call, ret, jcc not taken, jcc taken, loop. */
static void w_branches(void *arg)
{
	uint64_t n = ((struct work *)arg)->n;

	asm volatile("lea -128(%%rsp), %%rsp\n"
		     "lea 4f(%%rip), %%rax\n"
		     "1: jmp 2f\n"
		     "nop\n"
		     "2: call 3f\n"		/* 3: ret */
		     "call *%%rax\n"		/* 4: ret */
		     "test %%rsp, %%rsp\n"
		     "jz 5f\n"			/* not taken */
		     "loop 1b\n"
		     "jmp 5f\n"
		     "3: ret\n"
		     "4: ret\n"
		     "5: lea 128(%%rsp), %%rsp\n"
		     : "+c"(n) :: "rax", "cc", "memory");
}

static void w_pages(void *arg)
{
	struct work *w = arg;
	uint64_t n = w->n;
	char *p = w->p;

	asm volatile("1: movb $1, (%1); add $4096, %1; dec %0; jnz 1b"
		     : "+r"(n), "+r"(p) :: "cc", "memory");
}

static void w_stosb(void *arg)
{
	struct work *w = arg;
	uint64_t n = w->n, len;
	char *p = w->p;

	asm volatile("1: mov %3, %%rcx; rep stosb; dec %0; jnz 1b"
		     : "+r"(n), "+D"(p), "=&c"(len)
		     : "r"(w->len), "a"(0) : "cc", "memory");
}

static void w_cmpsb(void *arg)
{
	struct work *w = arg;
	uint64_t n = w->n;

	asm volatile("1: mov %1, %%rsi; mov %1, %%rdi; mov %2, %%rcx\n"
		     "repe cmpsb; dec %0; jnz 1b"
		     : "+r"(n) : "r"(w->p), "r"(w->len)
		     : "rsi", "rdi", "rcx", "cc", "memory");
}

static void w_syscall(void *arg)
{
	uint64_t n = ((struct work *)arg)->n;

	asm volatile("1: mov $39, %%eax; syscall; dec %0; jnz 1b"
		     : "+r"(n) :: "rax", "rcx", "r11", "cc", "memory");
}

/* An instruction that rewrites the one after it: n must be below 256. */
static void w_smc(void *arg)
{
	struct work *w = arg;
	static const unsigned char code[] = {
		0x40, 0x88, 0x3d, 0x01, 0, 0, 0, /* mov %dil, 1(%rip) */
		0xb0, 0x00,			 /* mov $0, %al       */
		0xff, 0xcf,			 /* dec %edi          */
		0x75, 0xf3,			 /* jnz back          */
		0xc3
	};

	memcpy(w->p, code, sizeof(code));
	((void (*)(int))w->p)(w->n);
}

/* Faults and traps whose handler is known to the instruction. */
void h_ud2(int, siginfo_t *, void *), h_int3(int), h_restore(void);
asm(".text\n"
    "h_ud2: addq $2, 168(%rdx)\n"	/* uc_mcontext.rip */
    "ret\n"
    "h_int3: ret\n"
    "h_restore: mov $15, %eax\n"	/* rt_sigreturn */
    "syscall\n");
_Static_assert(offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]) == 168, "rip");

static void handler(int sig, void *fn)
{
	struct { void *fn; unsigned long flags; void *restorer; uint64_t mask; }
		sa = { fn, SA_SIGINFO | 0x04000000, (void *)h_restore, 0 };

	if (syscall(SYS_rt_sigaction, sig, &sa, NULL, 8))
		die("sigaction");
}

static void w_ud2(void *arg)
{
	uint64_t n = ((struct work *)arg)->n;

	asm volatile("lea -128(%%rsp), %%rsp; 1: ud2; dec %0; jnz 1b\n"
		     "lea 128(%%rsp), %%rsp" : "+r"(n) :: "cc", "memory");
}

static void w_int3(void *arg)
{
	uint64_t n = ((struct work *)arg)->n;

	asm volatile("lea -128(%%rsp), %%rsp; 1: int3; dec %0; jnz 1b\n"
		     "lea 128(%%rsp), %%rsp" : "+r"(n) :: "cc", "memory");
}

static void *fresh(uint64_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE | PROT_EXEC,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static void t_user(const char *pre, int flags)
{
	char name[64];
	struct work a = { 1000, 0, 0 }, b = { 3001000, 0, 0 };

#define N(s) (snprintf(name, sizeof(name), "%s%s", pre, s), name)
	check_work(N("loop"), w_loop, flags, &a, &b,
		   (int[]){ 2, 2, 1, 1, 1 });
	check_work(N("every-branch"), w_branches, flags,
		   &(struct work){ 10 }, &(struct work){ 100010 },
		   (int[]){ 8, 8, 7, 6, 2 });
	check_work(N("page-faults"), w_pages, flags,
		   &(struct work){ 10, fresh(10 << 12) },
		   &(struct work){ 5010, fresh(5010 << 12) },
		   (int[]){ 4, 4, 1, 1, 1 });
	/* The same number of instructions whatever they move. */
	check_work(N("rep-stosb"), w_stosb, flags,
		   &(struct work){ 10, fresh(1 << 20), 10 },
		   &(struct work){ 1010, fresh(1010 * 5000), 5000 },
		   (int[]){ 4, 4, 1, 1, 1 });
	check_work(N("repe-cmpsb"), w_cmpsb, flags,
		   &(struct work){ 10, fresh(1 << 20), 10 },
		   &(struct work){ 60, fresh(1 << 20), 50000 },
		   (int[]){ 6, 6, 1, 1, 1 });
	check_work(N("syscalls"), w_syscall, flags,
		   &(struct work){ 10 }, &(struct work){ 50010 },
		   (int[]){ 4, 4, 2, 2, 1 });
	check_work(N("self-modifying"), w_smc, flags,
		   &(struct work){ 5, fresh(4096) },
		   &(struct work){ 205, fresh(4096) },
		   (int[]){ 4, 4, 1, 1, 1 });
	handler(SIGILL, h_ud2);
	check_work(N("ud2-faults"), w_ud2, flags,
		   &(struct work){ 10 }, &(struct work){ 1010 },
		   (int[]){ 6, 6, 3, 3, 1 });
	handler(SIGTRAP, h_int3);
	check_work(N("int3-traps"), w_int3, flags,
		   &(struct work){ 10 }, &(struct work){ 1010 },
		   (int[]){ 6, 6, 4, 4, 1 });
}

/* User, kernel, and both: the same code, so the sum is exact. */
static void t_rings(void)
{
	for (int i = 0; i < NEV; i++) {
		struct work w = { 20000 };
		int both = ev_open(raw[i], 0, 0, -1);
		int user = ev_open(raw[i], USER, 0, both);
		int kern = ev_open(raw[i], KERNEL, 0, both);

		ioctl(both, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
		w_syscall(&w);
		ioctl(both, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
		check("user+kernel", evname[i], ev_read(user) + ev_read(kern),
		      ev_read(both));
		close(kern), close(user), close(both);
	}
}

/* Threads that keep changing their CPU, more of them than CPUs. */
#define THREADS 3
#define ROUNDS 200

static void w_migrate(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(i & 1, &set);
		syscall(SYS_sched_setaffinity, 0, sizeof(set), &set);
		w_loop(arg);
	}
}

static void *migrate(void *arg)
{
	uint64_t (*c)[NEV] = arg;
	struct group g;

	group_open(&g, USER);
	measure(&g, w_migrate, &(struct work){ 100 }, c[0]);
	measure(&g, w_migrate, &(struct work){ 20100 }, c[1]);
	group_close(&g);
	return NULL;
}

static void t_migrate(void)
{
	static uint64_t c[THREADS][2][NEV];
	pthread_t t[THREADS];

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
		printf("skip migrating: one CPU\n");
		return;
	}
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, migrate, c[i]))
			die("pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < THREADS; i++)
		for (int e = 0; e < NEV; e++)
			check("migrating", evname[e], c[i][1][e] - c[i][0][e],
			      ROUNDS * 20000 * (e == INSNS || e == CYCLES ? 2 : 1));
}

/* As many samples as whole periods fit into the count, each in the loop. */
#define RING_PAGES 128

static void t_sampling(int e, uint64_t n, uint64_t period)
{
	char name[32];
	int fd = ev_open(raw[e], USER, period, -1);
	char *map = mmap(NULL, (RING_PAGES + 1) * 4096, PROT_READ | PROT_WRITE,
			 MAP_SHARED, fd, 0);
	struct perf_event_mmap_page *pg = (void *)map;
	uint64_t samples = 0, other = 0, off = 0, inside = 0, count;
	struct work w = { n };

	if (map == MAP_FAILED)
		die("mmap ring");
	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	w_loop(&w);
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	count = ev_read(fd);
	while (off < pg->data_head) {
		struct perf_event_header *h =
			(void *)(map + 4096 + off % (RING_PAGES * 4096));

		if (h->type == PERF_RECORD_SAMPLE) {
			uint64_t ip = *(uint64_t *)(h + 1);

			samples++;
			inside += ip >= (uint64_t)w_loop &&
				  ip < (uint64_t)w_loop + 64;
		} else {
			other++;
		}
		off += h->size;
	}
	snprintf(name, sizeof(name), "sampling-%s", evname[e]);
	check(name, "count/period", samples, count / period);
	check(name, "known", samples, n * (e == INSNS ? 2 : 1) / period);
	check(name, "in-the-loop", inside, samples);
	check(name, "other-records", other, 0);
	munmap(map, (RING_PAGES + 1) * 4096);
	close(fd);
}

/* The count as user space reads it: perf_event.h, struct perf_event_mmap_page */
static uint64_t rdpmc(volatile struct perf_event_mmap_page *pg, int *ok)
{
	uint32_t seq, idx, lo, hi;
	uint64_t count;

	do {
		seq = pg->lock;
		asm volatile("" ::: "memory");
		idx = pg->index;
		count = pg->offset;
		*ok = pg->cap_user_rdpmc && idx;
		if (*ok) {
			int64_t v;

			asm volatile("rdpmc" : "=a"(lo), "=d"(hi) : "c"(idx - 1));
			v = (uint64_t)hi << 32 | lo;
			v <<= 64 - pg->pmc_width;
			v >>= 64 - pg->pmc_width;
			count += v;
		}
		asm volatile("" ::: "memory");
	} while (pg->lock != seq);
	return count;
}

static uint64_t rdpmc_loop(volatile struct perf_event_mmap_page *pg, uint64_t n)
{
	struct work w = { n };
	int ok1, ok2;
	uint64_t a, b, pg_seq;

	do {	/* once more if the thread was switched out in between */
		pg_seq = pg->lock;
		a = rdpmc(pg, &ok1);
		w_loop(&w);
		b = rdpmc(pg, &ok2);
	} while (pg->lock != pg_seq);
	return ok1 && ok2 ? b - a : 0;
}

static void t_rdpmc(void)
{
	int fd = ev_open(raw[INSNS], USER, 0, -1);
	void *pg = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	uint64_t a, b;

	if (pg == MAP_FAILED)
		die("mmap page");
	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	a = rdpmc_loop(pg, 10);
	b = rdpmc_loop(pg, 100010);
	check("rdpmc", NULL, b - a, 200000);
	munmap(pg, 4096);
	close(fd);
}

/* A real-mode guest: its instructions, nobody else's. */
static int vcpu;
static struct kvm_run *run;
static unsigned char *ram;

static int kvm_setup(void)
{
	int kvm = open("/dev/kvm", O_RDWR), vm;
	struct kvm_sregs s;
	struct kvm_userspace_memory_region m = { .memory_size = 65536 };

	if (kvm < 0) {
		printf("skip guest: /dev/kvm: %s\n", strerror(errno));
		return 0;
	}
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	ram = fresh(65536);
	/* vector 6: pop ax; add ax, 2; push ax; iret.  Vector 0x21: iret. */
	memcpy(ram + 0x2000, "\x58\x83\xc0\x02\x50\xcf", 6);
	memcpy(ram + 6 * 4, "\x00\x20\x00\x00", 4);
	memcpy(ram + 0x21 * 4, "\x05\x20\x00\x00", 4);
	m.userspace_addr = (uintptr_t)ram;
	if (vm < 0 || ioctl(vm, KVM_SET_USER_MEMORY_REGION, &m))
		die("KVM_CREATE_VM");
	vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	run = mmap(NULL, ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0),
		   PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	if (vcpu < 0 || run == MAP_FAILED)
		die("KVM_CREATE_VCPU");
	if (ioctl(vcpu, KVM_GET_SREGS, &s))
		die("KVM_GET_SREGS");
	s.cs.base = s.cs.selector = 0;
	if (ioctl(vcpu, KVM_SET_SREGS, &s))
		die("KVM_SET_SREGS");
	return 1;
}

/* mov $n, %esi; then @body, dec %esi, jnz back; hlt */
static void w_guest(void *arg)
{
	struct work *w = arg;
	struct kvm_regs r = { .rip = 0x1000, .rflags = 2, .rsp = 0x8000 };
	unsigned char *c = ram + 0x1000;
	uint32_t n = w->n;

	*c++ = 0x66, *c++ = 0xbe;
	memcpy(c, &n, 4);
	memcpy(c + 4, w->p, w->len);
	c += 4 + w->len;
	*c++ = 0x66, *c++ = 0x4e;
	*c++ = 0x75, *c++ = -(w->len + 4);
	*c = 0xf4;
	if (ioctl(vcpu, KVM_SET_REGS, &r))
		die("KVM_SET_REGS");
	do {
		if (ioctl(vcpu, KVM_RUN, 0) && errno != EINTR)
			die("KVM_RUN");
	} while (run->exit_reason == KVM_EXIT_IO);
	if (run->exit_reason != KVM_EXIT_HLT)
		check("guest", "exit", run->exit_reason, KVM_EXIT_HLT);
}

static void t_guest(const char *name, const char *body, int len, int per,
		    int branches, uint32_t n)
{
	struct group g;
	uint64_t c[NEV];
	struct work w = { n, (void *)body, len };
	char what[40];
	static const char bare[] = "";
	struct work none = { 10, (void *)bare, 0 };
	uint64_t h0[NEV], h[NEV];

	group_open(&g, NOHOST);
	measure(&g, w_guest, &w, c);
	for (int i = 0; i < NEV; i++)
		/* the mov counts, the intercepted hlt does not */
		check(name, evname[i], c[i],
		      i == INSNS || i == CYCLES ? 1 + (uint64_t)n * per :
		      (uint64_t)n * (i == COND || i == TAKEN ? 1 : branches) -
		      (i == TAKEN) + (i == TAKEN) * (uint64_t)n * (branches - 1));
	group_close(&g);

	/* The host's user code does not see the guest at all. */
	if (len)
		return;
	group_open(&g, USER | NOGUEST);
	measure(&g, w_guest, &none, h0);
	measure(&g, w_guest, &w, h);
	group_close(&g);
	for (int i = 0; i < NEV; i++) {
		snprintf(what, sizeof(what), "host-%s", evname[i]);
		check(name, what, h[i], h0[i]);
	}
}

static void t_kvm(void)
{
	volatile struct perf_event_mmap_page *pg;
	struct work w = { 300000, "", 0 };
	int fd, ok;

	if (!kvm_setup())
		return;
	t_guest("guest-loop", "", 0, 2, 1, 1000);
	t_guest("guest-loop", "", 0, 2, 1, 5000000);
	t_guest("guest-call-ret", "\xe8\x02\x00\xeb\x01\xc3", 6, 5, 4, 50000);
	t_guest("guest-out-intercepted", "\xe6\x10", 2, 2, 1, 1000);
	t_guest("guest-cpuid-intercepted", "\x0f\xa2", 2, 2, 1, 1000);
	t_guest("guest-rep-stosb", "\xb9\x00\x01\xbf\x00\x40\xf3\xaa", 8, 5, 1,
		1000);
	t_guest("guest-ud2-iret", "\x0f\x0b", 2, 6, 2, 1000);
	t_guest("guest-int-iret", "\xcd\x21", 2, 4, 3, 1000);

	fd = ev_open(raw[INSNS], NOHOST, 0, -1);
	pg = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (pg == MAP_FAILED)
		die("mmap page");
	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	for (int i = 0; i < 3; i++) {
		uint64_t v;

		w_guest(&w);
		v = rdpmc(pg, &ok);
		check("guest-rdpmc", "usable", ok, 1);
		check("guest-rdpmc", "known", v, (i + 1) * 600001);
		check("guest-rdpmc", "read(2)", v, ev_read(fd));
	}
	/* the user checks once more, with Host-only counters: SVM is in use now */
	close(fd);
	t_user("svm-", USER | NOGUEST);
}

static void put(const char *path, const char *val)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, val, strlen(val)) < 0)
		printf("skip %s: %s\n", path, strerror(errno));
	close(fd);
}

int main(void)
{
	put("/proc/sys/kernel/perf_cpu_time_max_percent", "0");
	put("/proc/sys/kernel/nmi_watchdog", "0");
	t_user("", USER);
	t_rings();
	t_migrate();
	t_rdpmc();
	t_sampling(INSNS, 50000 * 500 + 25000, 100000);
	t_sampling(BRANCHES, 10007 * 500 + 5000, 10007);
	t_sampling(INSNS, 2800, 1009);
	t_kvm();
	return failed;
}
