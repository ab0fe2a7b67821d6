/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Overflow samples: where the program is at every so many events, without a signal for each.
 *
 *	samples [EVNTSEL [PERIOD]]
 *
 * The event select needs bit 20, interrupt on overflow; without one it is AMD's instructions in user mode.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vperfctr.h"

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return 1;
}

static void work(unsigned long iterations)
{
	volatile unsigned long sum = 0;

	while (iterations--)
		sum += iterations;
}

int main(int argc, char **argv)
{
	struct vperfctr *self = vperfctr_open(0, 1);
	struct vperfctr_control control;
	struct vperfctr_sample sample;
	struct pollfd ready;
	unsigned long period = argc > 2 ? strtoul(argv[2], NULL, 0) : 1000000;
	unsigned int number = 0;
	uint64_t lost;

	if (!self)
		return fail("vperfctr_open");
	/* Room for 128. */
	if (vperfctr_map_samples(self, 0))
		return fail("vperfctr_map_samples");

	memset(&control, 0, sizeof(control));
	control.flags = VPERFCTR_CONTROL_SAMPLES;
	control.cpu_control.tsc_on = 1;
	control.cpu_control.nrictrs = 1;
	control.cpu_control.evntsel[0] = argc > 1 ? strtoul(argv[1], NULL, 0) : 0x005100C0;
	control.cpu_control.ireset[0] = -(int32_t)period;
	if (vperfctr_control(self, &control))
		return fail("vperfctr_control");
	work(20000000);
	vperfctr_stop(self);

	/* Another thread, or a process with the descriptor, could wait for the samples here. */
	ready.fd = vperfctr_fd(self);
	ready.events = POLLIN;
	if (poll(&ready, 1, 0) < 0)
		return fail("poll");
	while (vperfctr_take_sample(self, &sample) == 1)
		printf("%3u: pc %#llx, tsc %llu, cpu %u\n", ++number, (unsigned long long)sample.pc,
		       (unsigned long long)sample.tsc, sample.cpu);
	if (vperfctr_samples_lost(self, &lost))
		return fail("vperfctr_samples_lost");
	printf("%u samples%s, %llu lost\n", number, ready.revents & POLLIN ? "" : ", not announced",
	       (unsigned long long)lost);
	vperfctr_close(self);
	return 0;
}
