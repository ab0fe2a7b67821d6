// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/devices/cpu/rdpmc: whether this system lets programs use RDPMC at all. The
 * kernel keeps that in static keys, and modules can read it by the file's show() alone.
 */
#include <linux/device.h>
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/perf_event.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "users.h"

/* The setting's file, and whether there is a perf that could have one. */
static struct device *pmu_device __ro_after_init;
static struct device_attribute *rdpmc_attribute __ro_after_init;
static bool is_free __ro_after_init;

static struct device_attribute *__init find_attribute(const struct pmu *pmu)
{
	const struct attribute_group **group;
	struct attribute **attr;

	for (group = pmu->attr_groups; group && *group; group++)
		for (attr = (*group)->attrs; attr && *attr; attr++)
			if (!strcmp((*attr)->name, "rdpmc"))
				return container_of(*attr,
						    struct device_attribute,
						    attr);
	return NULL;
}

/* By an event that never counts: a PMU is found by its events alone. */
void __init pmu_users_find_setting(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.config = PERF_COUNT_HW_CPU_CYCLES,
		.size = sizeof(attr),
		.disabled = 1,
	};
	struct perf_event *event;

	event = perf_event_create_kernel_counter(&attr, -1, current, NULL,
						 NULL);
	if (IS_ERR(event)) {
		/* No driver of this processor's PMU, so no setting. */
		is_free = PTR_ERR(event) == -ENOENT;
		return;
	}
	pmu_device = event->pmu->dev;
	rdpmc_attribute = find_attribute(event->pmu);
	perf_event_release_kernel(event);
}

bool pmu_users_may_read(void)
{
	bool may = false;
	char *text;

	if (!pmu_users_can_grant())
		return false;
	if (!rdpmc_attribute || !pmu_device)
		return is_free;
	/* A page, as sysfs gives. */
	text = (char *)get_zeroed_page(GFP_KERNEL);
	if (!text)
		return false;
	if (rdpmc_attribute->show(pmu_device, rdpmc_attribute, text) > 0)
		may = *text != '0';
	free_page((unsigned long)text);
	return may;
}
