/* SPDX-License-Identifier: GPL-2.0-or-later */
/* For events.c: code of which every instruction is known. */
static __attribute__((noinline)) void w_loop(void *arg)
{
	uint64_t n = ((struct work *)arg)->n;

	asm volatile("1: dec %0; jnz 1b" : "+r"(n) :: "cc");
}

/* Every kind of near branch: jmp, call, ret, jcc not taken, jcc taken, loop. */
static __attribute__((noinline)) void w_branches(void *arg)
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

/* 36 instructions: 13 loads, 10 stores, 10 load-op-stores, in 28 of them. */
#define MEMORY_PER { 36, 4, 3, 1, 1, 0, 13, 10, 10 }

static __attribute__((noinline)) void w_memory(void *arg)
{
	uint64_t n = ((struct work *)arg)->n;
	static char buf[1024] __attribute__((aligned(64)));

	asm volatile("lea -128(%%rsp), %%rsp\n"
		     "lea 2f(%%rip), %%rax\n"
		     "mov %%rax, 64(%%rbx)\n"
		     "1: mov %%rbx, %%rsi\n"
		     "lea 256(%%rbx), %%rdi\n"
		     "lea 8(%%rbx), %%rdx\n"		/* lea is no load */
		     "prefetcht0 (%%rbx)\n"		/* nor these */
		     "nopl (%%rbx)\n"
		     "push %%rdx\n"			/*	S */
		     "pop %%rdx\n"			/*  L	  */
		     "push 16(%%rbx)\n"			/*  L	S */
		     "pop 24(%%rbx)\n"			/*  L	S */
		     "movsb\n"				/*  L	S */
		     "cmpsb\n"				/* LL	  */
		     "lodsb\n"				/*  L	  */
		     "stosb\n"				/*	S */
		     "cmp %%rdx, 32(%%rbx)\n"		/*  L	  */
		     "btl $3, 32(%%rbx)\n"		/*  L	  */
		     "setc 40(%%rbx)\n"			/*	S */
		     "movups (%%rbx), %%xmm0\n"		/*  L	  */
		     "movups %%xmm0, 128(%%rbx)\n"	/*	S */
		     "fldt 96(%%rbx)\n"			/*  L	  */
		     "fstpt 112(%%rbx)\n"		/*	S */
		     "fxsave 512(%%rbx)\n"		/*	S */
		     "call *64(%%rbx)\n"		/*  L	S, ret: L */
		     "add %%edx, 32(%%rbx)\n"		/* ldst, as all below */
		     "lock incl 32(%%rbx)\n"
		     "negl 32(%%rbx)\n"
		     "lock xaddl %%edx, 32(%%rbx)\n"
		     "xchg %%edx, 32(%%rbx)\n"
		     "cmpxchg %%edx, 32(%%rbx)\n"
		     "lock cmpxchg %%edx, 32(%%rbx)\n"
		     "cmpxchg8b 48(%%rbx)\n"
		     "lock btsl $5, 32(%%rbx)\n"
		     "shll $1, 32(%%rbx)\n"
		     "dec %0\n"
		     "jz 3f\n"
		     "jmp 1b\n"
		     "2: ret\n"
		     "3: lea 128(%%rsp), %%rsp\n"
		     : "+r"(n) : "b"(buf)
		     : "rax", "rcx", "rdx", "rsi", "rdi", "xmm0", "cc", "memory");
}

/* 8 instructions; in 2 of them two events of LOADS|STORES, in 1 of them one. */
static __attribute__((noinline)) void w_mix(void *arg)
{
	uint64_t n = ((struct work *)arg)->n;
	static char buf[64];

	asm volatile("1: mov %1, %%rsi; mov %1, %%rdi\n"
		     "movsb\n"
		     "movb (%1), %%al\n"
		     "cmpsb\n"
		     "addb $1, (%1)\n"
		     "dec %0; jnz 1b"
		     : "+r"(n) : "r"(buf) : "rax", "rsi", "rdi", "cc", "memory");
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

static __attribute__((noinline)) void w_syscall(void *arg)
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

/* Memory in pages of 4 KiB that are there, for data or code. */
static void *memory(uint64_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE | PROT_EXEC,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	madvise(p, len, MADV_NOHUGEPAGE); /* EINVAL: the kernel has none */
	memset(p, 1, len);
	return p;
}
