// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Counters of a virtual CPU run on while others' guests run, and nothing of that may
 * be seen: neither in what is published nor by RDPMC.
 */
#include "module.h"

static uint32_t foreign_iterations;
static int foreign_counted;

/* Another user's guest, without counters or with its own. */
static void foreign_guest(void)
{
	struct guest g;

	if (setuid(65534))
		die("setuid");
	pin(0);
	if (foreign_counted) {
		guest_counted(&g);
		for (int i = 0; i < COUNTERS; i++)
			load(g.fd, i, USR | OS | INSNS);
	} else {
		guest_new(&g);
	}
	guest_run(&g, foreign_iterations);
}

/* Of one's own user: it leaves a counter on that nobody has any more. */
static void leaves_one_on(void)
{
	struct guest g;

	pin(0);
	guest_counted(&g);
	load(g.fd, COUNTERS - 1, USR | OS | INSNS);
	guest_run(&g, 1000);
	guest_free(&g);
}

/* What is in the start of a counter and not in its sum. */
static uint64_t beyond(const struct guest *g, int i)
{
	return (g->state->pmc[i].start - g->state->pmc[i].sum) & (~0ULL >> (64 - g->state->width));
}

static void foreign_is_unseen(struct guest *g, const char *name, uint32_t iterations)
{
	uint64_t start[2], last, writes;

	foreign_iterations = iterations;
	start[0] = beyond(g, 0), start[1] = beyond(g, 1);
	last = rdpmc(COUNTERS - 1);
	writes = g->state->switch_writes;
	check(name, in_child(foreign_guest), 0);
	if (!foreign_counted) {
		check("  in the start", beyond(g, 0) - start[0], 0);
		check("  in another start", beyond(g, 1) - start[1], 0);
		check("  in a counter of nobody's", rdpmc(COUNTERS - 1) - last, 0);
		check("  writes, of each counter one a switch at most",
		      g->state->switch_writes - writes <= 3 * (uint64_t)g->state->switches, 1);
	} else {
		/* All that another has used is at zero. */
		for (int i = 0; i < COUNTERS; i++)
			expect("  in the registers", rdpmc(i), 0);
		check("  in the start", g->state->pmc[0].start, 0);
	}
}

static void reads_one(void)
{
	if (setuid(65534))
		_exit(2);
	rdpmc(0);
}

static void reads_all(void)
{
	if (setuid(65534))
		die("setuid");
	pin(0);
	for (int i = 0; i < COUNTERS; i++)
		expect("read with the setting 2", rdpmc(i), 0);
}

void t_foreign(void)
{
	int go[2], status, setting = open(RDPMC_SETTING, O_RDWR | O_CLOEXEC);
	struct guest g;
	pid_t reader;
	char was;

	if (pipe(go) || setting < 0 || pread(setting, &was, 1, 0) != 1 ||
	    chmod(DEVICE, 0666) || chmod("/dev/kvm", 0666))
		die("foreign");
	pin(0);
	reader = inheritor(go[0], reads_one);
	guest_counted(&g);
	load(g.fd, 0, USR | OS | INSNS);
	load(g.fd, 1, USR | OS | BRANCHES);
	guest_run(&g, 1000);
	check("leaves-one-on", in_child(leaves_one_on), 0);
	foreign_counted = 0;
	foreign_is_unseen(&g, "foreign-guest-of-2-million", 1000000);
	foreign_is_unseen(&g, "foreign-guest-of-10-million", 5000000);
	guest_run(&g, 1000);
	check("foreign-count", count(g.state, 0), 2 * GUEST_INSNS(1000));
	if (write(go[1], "1", 1) != 1)
		die("pipe");
	waitpid(reader, &status, 0);
	check("old-reader", WTERMSIG(status), SIGSEGV);
	foreign_counted = 1;
	foreign_is_unseen(&g, "counted-guest-of-2-million", 1000000);
	foreign_is_unseen(&g, "counted-guest-of-10-million", 5000000);
	rdpmc_setting(setting, '2');
	guest_run(&g, 1000);
	guest_run(&g, 1000);
	check("reads-all", in_child(reads_all), 0);
	guest_run(&g, 1000);
	rdpmc_setting(setting, was);
	guest_run(&g, 1000);
	check("foreign-count-at-last", count(g.state, 0), 6 * GUEST_INSNS(1000));
	check("foreign-branches-at-last", count(g.state, 1), 6 * GUEST_BRANCHES(1000));
	guest_free(&g);
	unpin();
	close(go[0]);
	close(go[1]);
	close(setting);
	chmod(DEVICE, 0660);
	chmod("/dev/kvm", 0660);
}
