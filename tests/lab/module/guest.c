// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Guests of known length: mov n, %esi; then dec %esi, jnz back n times; hlt. KVM executes
 * hlt in the guest's place.
 */
#include "module.h"

__thread struct kvm_run *running;
__thread volatile int kicked;

static void on_kick(int sig)
{
	kicked = 1;
	if (running)
		running->immediate_exit = 1;
}

void guests_init(void)
{
	struct sigaction a = { .sa_handler = on_kick };

	signo = SIGRTMIN + 1;
	sigaction(signo, &a, NULL);
}

void guest_new(struct guest *g)
{
	struct kvm_userspace_memory_region m = { .memory_size = 65536 };
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), vm;
	struct kvm_sregs s;

	memset(g, 0, sizeof(*g));
	g->ram = mmap(NULL, 65536, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m.userspace_addr = (uintptr_t)g->ram;
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0 || ioctl(vm, KVM_SET_USER_MEMORY_REGION, &m))
		die("KVM_CREATE_VM");
	g->vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	g->run = mmap(NULL, ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0),
		      PROT_READ | PROT_WRITE, MAP_SHARED, g->vcpu, 0);
	if (g->vcpu < 0 || g->run == MAP_FAILED || ioctl(g->vcpu, KVM_GET_SREGS, &s))
		die("KVM_CREATE_VCPU");
	s.cs.base = s.cs.selector = 0;
	if (ioctl(g->vcpu, KVM_SET_SREGS, &s))
		die("KVM_SET_SREGS");
	g->vm = vm;
	close(kvm);
	running = g->run;
}

/* With the device, attached to this thread. */
void guest_counted(struct guest *g)
{
	guest_new(g);
	g->fd = device();
	g->state = map_state(g->fd);
	errno = attach(g->fd);
	if (errno)
		die("attach");
}

void guest_free(struct guest *g)
{
	running = NULL;
	munmap((void *)g->state, 4096);
	close(g->fd);
	munmap(g->run, 4096);
	munmap(g->ram, 65536);
	close(g->vcpu);
	close(g->vm);
}

/* What a VMM would do; 0: the guest is done. */
static int answer(struct kvm_run *run)
{
	switch (run->exit_reason) {
	case KVM_EXIT_IO:
	case KVM_EXIT_MMIO:
		return 1;
	case KVM_EXIT_X86_RDMSR:
	case KVM_EXIT_X86_WRMSR:
		run->msr.error = 0;
		return 1;
	}
	return 0;
}

/* With @body before each dec. */
void guest_run_with(struct guest *g, uint32_t n, const char *body, int len)
{
	struct kvm_regs r = { .rip = 0x1000, .rflags = 2, .rsp = 0x8000, .rdx = 0x80 };
	uint8_t *c = g->ram + 0x1000;

	*c++ = 0x66, *c++ = 0xbe;
	memcpy(c, &n, 4);
	memcpy(c + 4, body, len);
	c += 4 + len;
	memcpy(c, "\x66\x4e\x75\xfc\xf4", 5);
	c[3] -= len;
	if (ioctl(g->vcpu, KVM_SET_REGS, &r))
		die("KVM_SET_REGS");
	for (;;) {
		int err = ioctl(g->vcpu, KVM_RUN, 0) ? errno : 0;

		if (err && err != EINTR)
			die("KVM_RUN");
		if (kicked) {
			g->run->immediate_exit = 0;
			kicked = 0;
			g->kicks++;
			if (g->on_overflow)
				g->on_overflow(g);
		}
		if (!err && !answer(g->run))
			break;
	}
	if (g->run->exit_reason != KVM_EXIT_HLT)
		check("guest-exit", g->run->exit_reason, KVM_EXIT_HLT);
}

void guest_run(struct guest *g, uint32_t n)
{
	guest_run_with(g, n, "", 0);
}
