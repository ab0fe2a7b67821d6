/* SPDX-License-Identifier: GPL-2.0-or-later */
/* For events.c: the events, one line per check, and counting through perf_event_open. */
#define USER	1	/* not the kernel */
#define KERNEL	2	/* not user code */
#define NOGUEST	4
#define NOHOST	8

/*
 * All events, for two groups: a group has as many as there are counters.  FAR
 * is in one with INTS, so that the interrupts can be taken off exactly.
 */
enum {
	INSNS, CYCLES, BRANCHES, TAKEN, COND, RETURNS,
	FAR, INTS, LOADS, STORES, LDST, MEM, NEV
};
#define GROUP 6

static const uint64_t raw[NEV] = {
	0xc0, 0x76, 0xc2, 0xc4, 0xd1, 0xc8,
	0xc6, 0x2c, 0x129, 0x229, 0x429, 0x729
};
static const char *const evname[NEV] = {
	"insns", "cycles", "branches", "taken", "cond", "returns",
	"far", "interrupts", "loads", "stores", "load-op-stores", "memory"
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

struct work {
	uint64_t n;	/* iterations */
	void *p;
	uint64_t len;
	uint64_t fresh;	/* so many bytes at p are to fault anew */
};

/* What @fn(@arg) counts, plus a constant: it is the same code every time. */
static __attribute__((noinline)) void
measure(const uint64_t *config, int n, int flags, void (*fn)(void *), void *arg,
	uint64_t *count)
{
	struct work *w = arg;
	int fd[GROUP] = { -1 };

	for (int i = 0; i < n; i++)
		fd[i] = ev_open(config[i], flags, 0, i ? fd[0] : -1);
	if (w->fresh && madvise(w->p, w->fresh, MADV_DONTNEED))
		die("madvise");
	ioctl(fd[0], PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP);
	ioctl(fd[0], PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
	fn(arg);
	ioctl(fd[0], PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
	for (int i = 0; i < n; i++)
		count[i] = ev_read(fd[i]);
	for (int i = 0; i < n; i++)
		close(fd[i]);
}

static void measure_all(int flags, void (*fn)(void *), void *arg, uint64_t *count)
{
	for (int i = 0; i < NEV; i += GROUP)
		measure(raw + i, GROUP, flags, fn, arg, count + i);
}

/* What one iteration counts; the rest follows from it. */
struct per { int insns, branches, taken, cond, returns, far, loads, stores, ldst; };

/* @count has to be @n times @per, exactly. */
static void check_all(const char *name, const uint64_t *count, int64_t n,
		      struct per per)
{
	const int want[NEV] = {
		per.insns, per.insns, per.branches, per.taken, per.cond,
		per.returns, per.far, 0, per.loads, per.stores, per.ldst,
		per.loads + per.stores + per.ldst
	};

	for (int i = 0; i < NEV; i++)
		if (i != INTS)	/* whoever interrupts */
			check(name, evname[i],
			      count[i] - (i == FAR ? count[INTS] : 0), n * want[i]);
}

/* Two amounts of work; the difference has to be exactly @per, @n2-@n1 times. */
static void check_work(const char *name, void (*fn)(void *), int flags,
		       struct work *w1, struct work *w2, struct per per)
{
	uint64_t a[NEV], b[NEV];

	measure_all(flags, fn, w1, a);	/* what faults once has faulted now */
	measure_all(flags, fn, w1, a);
	measure_all(flags, fn, w2, b);
	for (int i = 0; i < NEV; i++)
		b[i] -= a[i];
	check_all(name, b, w2->n - w1->n, per);
}
