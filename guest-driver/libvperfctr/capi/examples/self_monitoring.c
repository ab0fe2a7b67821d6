/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that measures a part of itself.
 *
 *	self_monitoring [EVNTSEL]
 *
 * EVNTSEL: what to count, as the processor's manual has it; without one, AMD's instructions in user mode. The loop is 4
 * instructions long, so counts of instructions differ by 4 million from line to line.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vperfctr.h"

static void work(unsigned long iterations)
{
	__asm__ volatile("1:\n\tadd $1, %%rax\n\txor %%rax, %%rdx\n\tdec %0\n\tjnz 1b"
			 : "+r"(iterations)
			 :
			 : "rax", "rdx", "cc");
}

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s%s\n", what, strerror(errno),
		errno == ENOSYS ? " (the perfctr driver is not loaded)" : "");
	return 1;
}

int main(int argc, char **argv)
{
	struct perfctr_info info;
	struct vperfctr_control control;
	struct vperfctr *self;
	uint64_t before, after;

	if (perfctr_info(&info, NULL, NULL))
		return fail("perfctr_info");
	printf("%s, %u counters, driver %s\n", perfctr_cpu_name(&info), perfctr_cpu_nrctrs(&info), info.driver_version);

	self = vperfctr_open(0, 1);
	if (!self)
		return fail("vperfctr_open");

	memset(&control, 0, sizeof(control));
	control.cpu_control.tsc_on = 1;
	control.cpu_control.nractrs = 1;
	control.cpu_control.evntsel[0] = argc > 1 ? strtoul(argv[1], NULL, 0) : 0x004100C0;
	if (vperfctr_control(self, &control))
		return fail("vperfctr_control");

	for (unsigned long millions = 1; millions <= 3; millions++) {
		if (vperfctr_read_pmc(self, 0, &before))
			return fail("vperfctr_read_pmc");
		work(millions * 1000000);
		if (vperfctr_read_pmc(self, 0, &after))
			return fail("vperfctr_read_pmc");
		printf("%lu million iterations: %" PRIu64 " events\n", millions, after - before);
	}
	if (vperfctr_unlink(self))
		return fail("vperfctr_unlink");
	vperfctr_close(self);
	return 0;
}
