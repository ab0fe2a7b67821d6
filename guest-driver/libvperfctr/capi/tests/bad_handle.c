/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* NULL everywhere: an error each time, and no crash. Exit status 0 if all is well, else the line that is not. */
#include <errno.h>
#include <string.h>

#include "vperfctr.h"

#define EXPECT(call, value, error)                                       \
	do {                                                             \
		errno = 0;                                               \
		if ((call) != (value) || errno != (error))               \
			return __LINE__;                                 \
	} while (0)

int main(void)
{
	struct vperfctr_control control;
	struct perfctr_sum_ctrs sum;
	uint64_t count;
	siginfo_t info;

	memset(&control, 0, sizeof(control));
	EXPECT(vperfctr_control(NULL, &control), -1, EINVAL);
	EXPECT(vperfctr_stop(NULL), -1, EINVAL);
	EXPECT(vperfctr_iresume(NULL), -1, EINVAL);
	EXPECT(vperfctr_unlink(NULL), -1, EINVAL);
	EXPECT(vperfctr_read(NULL, &sum, &control), -1, EINVAL);
	EXPECT(vperfctr_read_ctrs(NULL, &sum), -1, EINVAL);
	EXPECT(vperfctr_read_pmc(NULL, 0, &count), -1, EINVAL);
	EXPECT(vperfctr_read_pmc(NULL, 18, &count), -1, EINVAL);
	EXPECT(vperfctr_read_tsc(NULL, &count), -1, EINVAL);
	EXPECT(vperfctr_read_children(NULL, &sum), -1, EINVAL);
	EXPECT(vperfctr_map_samples(NULL, 0), -1, EINVAL);
	EXPECT(vperfctr_take_sample(NULL, NULL), -1, EINVAL);
	EXPECT(vperfctr_samples_lost(NULL, &count), -1, EINVAL);
	EXPECT(vperfctr_fd(NULL), -1, EINVAL);
	EXPECT(vperfctr_from_fd(-1) == NULL, 1, EBADF);
	vperfctr_close(NULL);
	if (strcmp(perfctr_cpu_name(NULL), "?") || perfctr_cpu_nrctrs(NULL) != 0)
		return __LINE__;

	/* A descriptor of something else is nobody's counters. */
	struct vperfctr *handle = vperfctr_from_fd(0);

	EXPECT(vperfctr_control(handle, NULL), -1, EFAULT);
	EXPECT(vperfctr_read_pmc(handle, 18, &count), -1, EINVAL);
	if (!handle || vperfctr_fd(handle) != 0 || vperfctr_read_ctrs(handle, &sum) != -1)
		return __LINE__;
	vperfctr_close(handle);

	memset(&info, 0, sizeof(info));
	info.si_code = SI_PMC_OVF;
	memset(&info.si_pid, 5, 1);
	if (vperfctr_overflow_mask(&info) != 5)
		return __LINE__;
	info.si_code = SI_USER;
	return vperfctr_overflow_mask(&info) == 0 ? 0 : __LINE__;
}
