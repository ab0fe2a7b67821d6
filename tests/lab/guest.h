/* SPDX-License-Identifier: GPL-2.0-or-later */
/* For events.c: a real-mode guest under KVM, of which every instruction is known. */
static int vcpu;
static struct kvm_run *run;
static unsigned char *ram;
static int interrupting;	/* at each OUT */

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
	ram = memory(65536);
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

/* Until the guest has something to report. */
static void enter(void)
{
	do {
		if (ioctl(vcpu, KVM_RUN, 0) && errno != EINTR)
			die("KVM_RUN");
	} while (run->exit_reason == KVM_EXIT_INTR);
}

/* mov $n, %esi; then @body, dec %esi, jnz back; hlt */
static void w_guest(void *arg)
{
	struct kvm_interrupt irq = { 0x21 };
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
		if (interrupting && run->exit_reason == KVM_EXIT_IO &&
		    ioctl(vcpu, KVM_INTERRUPT, &irq))
			die("KVM_INTERRUPT");
	} while (run->exit_reason == KVM_EXIT_IO);
	if (run->exit_reason != KVM_EXIT_HLT)
		check("guest", "exit", run->exit_reason, KVM_EXIT_HLT);
}

static void t_guest(const char *name, const char *body, int len, uint32_t n,
		    struct per per)
{
	struct work w = { .n = n, .p = (void *)body, .len = len };
	struct work none = { .n = 10, .p = "" };
	uint64_t c[NEV], h0[NEV], h[NEV];
	char what[40];

	measure_all(NOHOST, w_guest, &w, c);
	check(name, "interrupts", c[INTS], interrupting ? n : 0);
	/* the mov counts, the intercepted hlt does not */
	c[INSNS]--, c[CYCLES]--, c[TAKEN]++;
	check_all(name, c, n, per);

	/* The host's user code does not see the guest at all. */
	if (len)
		return;
	measure_all(USER | NOGUEST, w_guest, &none, h0);
	measure_all(USER | NOGUEST, w_guest, &w, h);
	for (int i = 0; i < NEV; i++) {
		if (i == INTS)
			continue;
		snprintf(what, sizeof(what), "host-%s", evname[i]);
		check(name, what, h[i] - (i == FAR ? h[INTS] : 0),
		      h0[i] - (i == FAR ? h0[INTS] : 0));
	}
}

static void t_guests(void)
{
	t_guest("guest-loop", "", 0, 1000, (struct per){ 2, 1, 1, 1 });
	t_guest("guest-loop", "", 0, 5000000, (struct per){ 2, 1, 1, 1 });
	t_guest("guest-call-ret", "\xe8\x02\x00\xeb\x01\xc3", 6, 50000,
		(struct per){ 5, 4, 4, 1, 1, 0, 1, 1 });
	t_guest("guest-out-intercepted", "\xe6\x10", 2, 1000,
		(struct per){ 2, 1, 1, 1 });
	t_guest("guest-cpuid-intercepted", "\x0f\xa2", 2, 1000,
		(struct per){ 2, 1, 1, 1 });
	t_guest("guest-rep-stosb", "\xb9\x00\x01\xbf\x00\x40\xf3\xaa", 8, 1000,
		(struct per){ 5, 1, 1, 1, .stores = 1 });
	t_guest("guest-pusha-popa", "\x60\x61", 2, 1000,
		(struct per){ 4, 1, 1, 1, .loads = 1, .stores = 1 });
	/* KVM intercepts #UD and injects it: one far transfer, like the iret */
	t_guest("guest-ud2-iret", "\x0f\x0b", 2, 1000,
		(struct per){ 6, 2, 2, 1, .far = 2, .loads = 1, .stores = 1 });
	t_guest("guest-int-iret", "\xcd\x21", 2, 1000,
		(struct per){ 4, 3, 3, 1, .far = 2 });
	interrupting = 1;
	t_guest("guest-interrupts", "\xe6\x10", 2, 1000,
		(struct per){ 3, 2, 2, 1, .far = 1 });
	interrupting = 0;
}

/*
 * An exit lies between STI and the next instruction: that one is executed before
 * an interrupt all the same.  Else "sti; hlt" sleeps through what should wake it.
 */
static void t_shadow(void)
{
	/* sti; mov 0x9000, %al; hlt */
	static const char code[] = "\xfb\xa0\x00\x90\xf4";
	struct kvm_regs r = { .rip = 0x1000, .rflags = 2, .rsp = 0x8000 };

	memcpy(ram + 0x1000, code, sizeof(code));
	if (ioctl(vcpu, KVM_SET_REGS, &r))
		die("KVM_SET_REGS");
	/* The guest does not have this page yet: the exit. */
	if (madvise(ram + 0x9000, 4096, MADV_DONTNEED))
		die("madvise");
	run->request_interrupt_window = 1;
	enter();
	run->request_interrupt_window = 0;
	check("guest-sti", "exit", run->exit_reason,
	      KVM_EXIT_IRQ_WINDOW_OPEN);
	if (ioctl(vcpu, KVM_GET_REGS, &r))
		die("KVM_GET_REGS");
	check("guest-sti", "shadow", r.rip, 0x1004);
	enter();
}
