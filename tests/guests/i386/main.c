/*
 * A 32-bit program that uses the driver as one does: system calls by int 0x80, a mapped state, overflow signals,
 * and the ioctls of perfctr 2.6. Freestanding, as there is no 32-bit C library here.
 *
 * Exit status: 0, or 1 after a line on standard error that says what was not as it should be.
 */
#include <stdint.h>

#define COUNTERS 18

struct cpu_control {
	uint32_t tsc_on, nractrs, nrictrs;
	uint32_t pmc_map[COUNTERS], evntsel[COUNTERS];
	uint32_t p4[COUNTERS + 2];
	int32_t ireset[COUNTERS];
	uint32_t reserved[4];
};

struct control {
	int32_t si_signo;
	struct cpu_control cpu;
	uint32_t preserve, reserved[4];
};

/* i386 aligns 64 bits to 32; nothing lies where that would show. */
struct sums {
	uint64_t tsc, pmc[COUNTERS];
};

struct state {
	uint32_t cstatus, k1[2], tsc_start;
	uint64_t tsc_sum;
	struct {
		uint32_t map, start;
		uint64_t sum;
	} pmc[COUNTERS];
};

struct info {
	uint32_t abi_version;
	char driver_version[32];
	uint32_t cpu_type, cpu_features, cpu_khz, tsc_to_cpu_mult, reserved[3];
};

_Static_assert(sizeof(struct control) == 348 && sizeof(struct sums) == 152, "layout");
_Static_assert(sizeof(struct state) == 312 && sizeof(struct info) == 64, "layout");

/* System calls of i386. */
enum { EXIT = 1, WRITE = 4, OPEN = 5, CLOSE = 6, IOCTL = 54, RT_SIGACTION = 174, MMAP2 = 192 };
enum { PERFCTR_INFO = 387, VPERFCTR_OPEN, VPERFCTR_CONTROL, VPERFCTR_UNLINK, VPERFCTR_IRESUME, VPERFCTR_READ };
enum { EPERM = 1, ESRCH = 3, EFAULT = 14, EEXIST = 17, EOVERFLOW = 75 };

static long call(long nr, long a, long b, long c, long d, long e)
{
	long result;

	__asm__ volatile("int $0x80" : "=a"(result)
			 : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory");
	return result;
}

static void say(const char *text)
{
	long length = 0;

	while (text[length])
		length++;
	call(WRITE, 2, (long)text, length, 0, 0);
}

static void say_number(int64_t value)
{
	char digits[] = "0x0000000000000000";
	int i;

	for (i = 17; i > 1; i--, value = (uint64_t)value >> 4)
		digits[i] = "0123456789abcdef"[value & 15];
	say(digits);
}

static void equal(const char *what, int64_t seen, int64_t expected)
{
	if (seen == expected)
		return;
	say(what);
	say(": ");
	say_number(seen);
	say(", expected ");
	say_number(expected);
	say("\n");
	call(EXIT, 1, 0, 0, 0, 0);
}

void *memset(void *to, int value, unsigned long size)
{
	char *bytes = to;

	while (size--)
		*bytes++ = value;
	return to;
}

/* Four instructions an iteration, one of them a branch. */
static __attribute__((noinline)) void spin(uint32_t iterations)
{
	uint32_t a = 0, b = 0;

	__asm__ volatile("1: add $1, %0; xor %0, %1; dec %2; jnz 1b"
			 : "+r"(a), "+r"(b), "+r"(iterations));
}

/* The TSC, and instructions and branches of user mode: K7 and K8. */
static void set_control(struct control *control)
{
	memset(control, 0, sizeof(*control));
	control->cpu.tsc_on = 1;
	control->cpu.nractrs = 2;
	control->cpu.pmc_map[1] = 1;
	control->cpu.evntsel[0] = 0x4100c0;
	control->cpu.evntsel[1] = 0x4100c2;
}

static __attribute__((noinline)) void count(long (*read)(int, struct sums *), int fd, uint32_t iterations,
					    struct sums *counted)
{
	struct sums before;
	int i;

	equal("read before", read(fd, &before), 0);
	spin(iterations);
	equal("read after", read(fd, counted), 0);
	for (i = 0; i < 2; i++)
		counted->pmc[i] -= before.pmc[i];
}

/* What is counted beyond the iterations is always the same. */
static void is_exact(long (*read)(int, struct sums *), int fd)
{
	static const uint32_t lengths[] = { 1, 1000, 1000000, 1001, 300000 };
	struct sums first, counted;
	unsigned int i;

	count(read, fd, 1, &first);
	count(read, fd, 1, &first);
	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		count(read, fd, lengths[i], &counted);
		equal("instructions", counted.pmc[0] - first.pmc[0], 4 * (int64_t)(lengths[i] - 1));
		equal("branches", counted.pmc[1] - first.pmc[1], lengths[i] - 1);
	}
}

static long read_by_call(int fd, struct sums *sums)
{
	return call(VPERFCTR_READ, fd, (long)sums, 0, 0, 0);
}

static void by_calls(void)
{
	const long beyond = (long)0xfffff000;
	struct control control, back;
	const struct state *state;
	struct info info;
	struct sums sums;
	uint32_t mask = 0;
	int fd, i;

	equal("info", call(PERFCTR_INFO, (long)&info, 0, 0, 0, 0), 0);
	equal("abi_version", info.abi_version, 0x06000500);
	equal("a mask without room", call(PERFCTR_INFO, 0, (long)&mask, 0, 0, 0), -EOVERFLOW);
	equal("its words", mask, 1);
	equal("info beyond all memory", call(PERFCTR_INFO, beyond, 0, 0, 0, 0), -EFAULT);

	fd = call(VPERFCTR_OPEN, 0, 1, 0, 0, 0);
	equal("open", fd < 0 ? fd : 0, 0);
	equal("a second creat", call(VPERFCTR_OPEN, 0, 1, 0, 0, 0), -EEXIST);
	equal("a thread that is not", call(VPERFCTR_OPEN, -2, 0, 0, 0, 0), -ESRCH);
	set_control(&control);
	equal("control", call(VPERFCTR_CONTROL, fd, (long)&control, 0, 0, 0), 0);
	is_exact(read_by_call, fd);
	equal("control beyond all memory", call(VPERFCTR_CONTROL, fd, beyond, 0, 0, 0), -EFAULT);
	equal("read beyond all memory", call(VPERFCTR_READ, fd, beyond, 0, 0, 0), -EFAULT);
	equal("iresume", call(VPERFCTR_IRESUME, fd, 0, 0, 0, 0), -EPERM);

	state = (const void *)call(MMAP2, 0, 4096, 1 /* read */, 1 /* shared */, fd);
	equal("mmap", (uintptr_t)state > (uintptr_t)beyond, 0);
	equal("cstatus", state->cstatus, 0x80000202);
	equal("unlink", call(VPERFCTR_UNLINK, fd, 0, 0, 0, 0), 0);
	equal("read of all", call(VPERFCTR_READ, fd, (long)&sums, (long)&back, 0, 0), 0);
	equal("mapped TSC", state->tsc_sum, sums.tsc);
	for (i = 0; i < COUNTERS; i++) {
		equal("mapped sum", state->pmc[i].sum, sums.pmc[i]);
		equal("event read back", back.cpu.evntsel[i], control.cpu.evntsel[i]);
	}
	equal("control after unlink", call(VPERFCTR_CONTROL, fd, (long)&control, 0, 0, 0), -ESRCH);
	call(CLOSE, fd, 0, 0, 0, 0);
}

static volatile int overflow_fd, overflows;

static void on_overflow(int signal, int *siginfo, void *context)
{
	(void)context;
	equal("the signal", signal, 10);
	equal("si_signo", siginfo[0], 10);
	equal("si_code", siginfo[2], 'P');
	equal("the mask", siginfo[3], 1);
	overflows++;
	equal("iresume", call(VPERFCTR_IRESUME, overflow_fd, 0, 0, 0, 0), 0);
}

__attribute__((naked)) static void restore(void)
{
	__asm__("mov $173, %eax; int $0x80");
}

static void by_signals(void)
{
	struct {
		void (*handler)(int, int *, void *);
		uint32_t flags;
		void (*restorer)(void);
		uint32_t mask[2];
	} action = { on_overflow, 4 /* SA_SIGINFO */ | 0x04000000 /* SA_RESTORER */, restore, { 0, 0 } };
	struct control control;
	struct sums sums;

	equal("sigaction", call(RT_SIGACTION, 10, (long)&action, 0, 8, 0), 0);
	overflow_fd = call(VPERFCTR_OPEN, 0, 1, 0, 0, 0);
	set_control(&control);
	control.si_signo = 10;
	control.cpu.nractrs = 0;
	control.cpu.nrictrs = 1;
	control.cpu.evntsel[0] |= 1 << 20;
	control.cpu.ireset[0] = -100000;
	equal("control", call(VPERFCTR_CONTROL, overflow_fd, (long)&control, 0, 0, 0), 0);
	spin(1000000);
	equal("read", read_by_call(overflow_fd, &sums), 0);
	equal("overflows", overflows, (uint32_t)sums.pmc[0] / 100000);
	equal("of the loop's", overflows, 40);
	equal("unlink", call(VPERFCTR_UNLINK, overflow_fd, 0, 0, 0, 0), 0);
	call(CLOSE, overflow_fd, 0, 0, 0, 0);
}

/* As perfctr 2.6 passes structures: room, then the fields that are not 0. */
static struct {
	uint32_t rdsize, wrsize, words[256];
} buffer;

static void add(uint32_t tag, uint32_t item, uint32_t value)
{
	buffer.words[buffer.rdsize++] = tag << 16 | item << 1;
	buffer.words[buffer.rdsize++] = value;
}

static long read_by_ioctl(int fd, struct sums *sums)
{
	uint32_t i, item;
	uint64_t value;
	long result;

	buffer.rdsize = 0;
	buffer.wrsize = 256;
	result = call(IOCTL, fd, (long)0x800cd008, (long)&buffer, 0, 0);
	memset(sums, 0, sizeof(*sums));
	for (i = 0; i + 2 < buffer.rdsize; i += 3) {
		item = buffer.words[i] >> 1 & 0x7fff;
		value = buffer.words[i + 1] | (uint64_t)buffer.words[i + 2] << 32;
		if (buffer.words[i] >> 16 == 48)
			sums->tsc = value;
		else if (buffer.words[i] >> 16 == 49 && item < COUNTERS)
			sums->pmc[item] = value;
	}
	return result;
}

static void by_ioctls(void)
{
	uint32_t abi = 0;
	int device, fd;

	device = call(OPEN, (long)"/dev/perfctr", 0, 0, 0, 0);
	equal("/dev/perfctr", device < 0 ? device : 0, 0);
	equal("ABI", call(IOCTL, device, (long)0x8004d000, (long)&abi, 0, 0), 0);
	equal("its version", abi, 0x05020501);
	fd = call(IOCTL, device, 0xd006, 0, 0, 0);
	equal("CREAT", fd < 0 ? fd : 0, 0);
	equal("CREAT of a thread that is not", call(IOCTL, device, 0xd006, -2, 0, 0), -ESRCH);

	buffer.rdsize = 0;
	add(32, 0, 1);
	add(33, 0, 2);
	add(35, 1, 1);
	add(36, 0, 0x4100c0);
	add(36, 1, 0x4100c2);
	equal("CONTROL", call(IOCTL, fd, 0x400cd00a, (long)&buffer, 0, 0), 0);
	is_exact(read_by_ioctl, fd);
	equal("READ_SUM beyond all memory", call(IOCTL, fd, (long)0x800cd008, (long)0xfffff000, 0, 0), -EFAULT);
	equal("UNLINK", call(IOCTL, fd, 0xd009, 0, 0, 0), 0);
}

static __attribute__((used)) void start(void)
{
	by_calls();
	by_signals();
	by_ioctls();
	call(EXIT, 0, 0, 0, 0, 0);
}

/* The stack is as the compiler expects it at a function's begin. */
__attribute__((naked, noreturn)) void _start(void)
{
	__asm__("and $-16, %esp; call start; hlt");
}
