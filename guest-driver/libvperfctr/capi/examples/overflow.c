/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Overflow signals: where the program is at every so many events.
 *
 *	overflow [EVNTSEL [PERIOD]]
 *
 * The event select needs bit 20, interrupt on overflow; without one it is AMD's instructions in user mode.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "vperfctr.h"

static struct vperfctr *self;
static volatile sig_atomic_t overflows;
static volatile unsigned long last_pc;

static void on_overflow(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *where = context;

	(void)signal;
	/* Anybody can send a signal; only the driver's has the mask. */
	if (!(vperfctr_overflow_mask(info) & 1))
		return;
	overflows++;
	last_pc = where->uc_mcontext.gregs[REG_RIP];
	/* Counting stopped for the time of this handler. */
	vperfctr_iresume(self);
}

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return 1;
}

int main(int argc, char **argv)
{
	struct perfctr_info info;
	struct vperfctr_control control;
	struct sigaction action;
	unsigned long period = argc > 2 ? strtoul(argv[2], NULL, 0) : 1000000;

	if (perfctr_info(&info, NULL, NULL))
		return fail("perfctr_info");
	if (!(info.cpu_features & PERFCTR_FEATURE_PCINT)) {
		fprintf(stderr, "this processor has no overflow interrupts\n");
		return 1;
	}
	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_overflow;
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	if (sigaction(SIGUSR1, &action, NULL))
		return fail("sigaction");
	self = vperfctr_open(0, 1);
	if (!self)
		return fail("vperfctr_open");

	memset(&control, 0, sizeof(control));
	control.si_signo = SIGUSR1;
	control.cpu_control.tsc_on = 1;
	control.cpu_control.nrictrs = 1;
	control.cpu_control.evntsel[0] = argc > 1 ? strtoul(argv[1], NULL, 0) : 0x005100C0;
	control.cpu_control.ireset[0] = -(int32_t)period;
	if (vperfctr_control(self, &control))
		return fail("vperfctr_control");

	while (overflows < 10)
		;
	vperfctr_stop(self);
	printf("%d overflows, the last near %#lx\n", (int)overflows, last_pc);
	vperfctr_close(self);
	return 0;
}
