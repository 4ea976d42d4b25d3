/* SPDX-License-Identifier: Apache-2.0 */
/* Records: lines of "key=value", unknown keys are passed over. */
#include <stdlib.h>
#include <string.h>

#include "sandbox/linux/kind.h"

bool record_find(const char *record, size_t size, const char *key, char *ret_value,
		 size_t value_size)
{
	size_t key_size = strlen(key);
	const char *end = record + size;

	while (record < end) {
		const char *line_end = memchr(record, '\n', (size_t)(end - record)) ?: end;
		size_t line = (size_t)(line_end - record);

		if (line > key_size && memcmp(record, key, key_size) == 0 &&
		    record[key_size] == '=') {
			size_t n = line - key_size - 1;

			if (n >= value_size)
				return false;
			memcpy(ret_value, record + key_size + 1, n);
			ret_value[n] = 0;
			return true;
		}
		record = line_end + 1;
	}
	return false;
}

bool record_is_current(const char *record, size_t size)
{
	char boot[BOOT_ID_SIZE];

	/* older records do not say it */
	return !record_find(record, size, "boot", boot, sizeof(boot)) || !strcmp(boot, kind.boot);
}

int64_t record_number(const char *record, size_t size, const char *key, int64_t fallback)
{
	char value[32];

	return record_find(record, size, key, value, sizeof(value)) ? strtoll(value, NULL, 10)
								    : fallback;
}
