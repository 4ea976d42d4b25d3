/* SPDX-License-Identifier: Apache-2.0 */
/* What the cdi*.c files share; for them alone. */
#pragma once

#include "io/base/json.h"
#include "sandbox/cdi.h"

/* cdi_yaml.c: a YAML document as the JSON that it stands for; ret is the caller's. No anchors, tags
 * and second documents; bounded as JSON is (io/base/json.h). ERR_INVALID with its line. */
int cdi_yaml_parse(const char *data, size_t n, json_t **ret, struct error *err);

/* cdi_schema.c: whether a document is a CDI specification; all of it, including what can't be done.
 * The texts begin with the path of the fault within the document. */
int cdi_check_document(const json_t *document, struct error *err);
/* Those of edits by themselves. */
int cdi_check_edits(const json_t *edits, struct error *err);
