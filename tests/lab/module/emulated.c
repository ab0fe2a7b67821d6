// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What KVM executes in the guest's place counts as if the processor had: in the loops
 * here one instruction of each round.
 */
#include "module.h"

static void emulated(struct guest *g, const char *name, const char *body, int len,
		     uint64_t insns)
{
	uint64_t i0 = count(g->state, 0), b0 = count(g->state, 1);

	guest_run_with(g, ROUNDS, body, len);
	check(name, count(g->state, 0) - i0, GUEST_INSNS(ROUNDS) + insns * ROUNDS);
	check("emulated-branches", count(g->state, 1) - b0, GUEST_BRANCHES(ROUNDS));
}

/* An overflow comes at the very instruction, whether KVM executes it or the processor. */
static void emulated_overflows(struct guest *g)
{
	static const uint64_t periods[] = { 1, 2, 3, 4, 5, 101 };

	g->on_overflow = at_overflow;
	for (int i = 0; i < 6; i++) {
		uint64_t before;

		load(g->fd, 0, USR | OS | INSNS);
		g->period = periods[i];
		g->overflowed = 0;
		before = count(g->state, 1);
		arm(g->fd, 0, g->period);
		guest_run_with(g, ROUNDS, "\x66\x31\xc0\x0f\xa2", 5);
		check("emulated-overflows", g->overflowed, (GUEST_INSNS(ROUNDS) + 2 * ROUNDS) / g->period);
		check("emulated-overflows-count", count(g->state, 0), GUEST_INSNS(ROUNDS) + 2 * ROUNDS);
		check("emulated-overflows-branches", count(g->state, 1) - before, ROUNDS);
	}
	g->on_overflow = NULL;
}

/* What the VMM answers is the VMM's to count. The next instruction is not taken for it. */
static void emulated_msr(struct guest *g)
{
	struct kvm_enable_cap cap = {
		.cap = KVM_CAP_X86_USER_SPACE_MSR,
		.args = { KVM_MSR_EXIT_REASON_UNKNOWN },
	};

	if (ioctl(g->vm, KVM_ENABLE_CAP, &cap))
		die("KVM_CAP_X86_USER_SPACE_MSR");
	/* mov $0x12345678, %ecx; rdmsr */
	emulated(g, "emulated-rdmsr", "\x66\xb9\x78\x56\x34\x12\x0f\x32", 8, 1);
	/* with xor %eax, %eax; cpuid behind it */
	emulated(g, "emulated-rdmsr-cpuid",
		 "\x66\xb9\x78\x56\x34\x12\x0f\x32\x66\x31\xc0\x0f\xa2", 13, 3);
	emulated(g, "emulated-wrmsr-cpuid",
		 "\x66\xb9\x78\x56\x34\x12\x0f\x30\x66\x31\xc0\x0f\xa2", 13, 3);
}

void t_emulated(void)
{
	struct perfctr_host_info info;
	struct guest g;

	guest_counted(&g);
	check("emulated-info", ioctl(g.fd, PERFCTR_HOST_INFO, &info), 0);
	check("emulated-flag", info.flags, PERFCTR_HOST_EMULATED);
	load(g.fd, 0, USR | OS | INSNS);
	load(g.fd, 1, USR | OS | BRANCHES);
	load(g.fd, 2, USR | INSNS);	/* a real-mode guest has no user mode */
	load(g.fd, 3, OS | INSNS | 1 << 24);	/* with a counter mask it is KVM's no more */
	/* xor %eax, %eax; cpuid */
	emulated(&g, "emulated-cpuid", "\x66\x31\xc0\x0f\xa2", 5, 2);
	check("emulated-counter-mask", count(g.state, 3), GUEST_INSNS(ROUNDS) - 1 + ROUNDS);
	/* out %al, $0x80; in $0x80, %al; and by %dx */
	emulated(&g, "emulated-out", "\xe6\x80", 2, 1);
	emulated(&g, "emulated-in", "\xe4\x80", 2, 1);
	emulated(&g, "emulated-out-dx", "\xee", 1, 1);
	/* mov %al, 0xfff0 of a segment without memory; and from there */
	emulated(&g, "emulated-mmio-write", "\x66\xb8\x00\xf0\x00\x00\x8e\xe0\x64\xa2\x00\x00", 12, 3);
	emulated(&g, "emulated-mmio-read", "\x66\xb8\x00\xf0\x00\x00\x8e\xe0\x64\xa0\x00\x00", 12, 3);
	check("emulated-user-mode", count(g.state, 2), 0);
	emulated_msr(&g);
	emulated_overflows(&g);
	guest_free(&g);
}
