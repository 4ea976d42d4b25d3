/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Image references as people write them, and their one normal form. The rules are those of the
 * distribution project's reference grammar: "busybox" is docker.io/library/busybox:latest. Pure.
 */
#pragma once

#include "io/base/error.h"
#include "store/image/digest.h"

#define REF_NAME_MAX 255 /* domain and path together */
#define REF_TAG_MAX 128
/* Of a whole reference, NUL included. */
#define REF_SIZE (REF_NAME_MAX + 1 + REF_TAG_MAX + 1 + DIGEST_SIZE)

struct ref {
	char name[REF_NAME_MAX + 1]; /* "docker.io/library/busybox" */
	char tag[REF_TAG_MAX + 1];   /* "" only when there is a digest */
	char digest[DIGEST_SIZE];    /* "" when there is none */
};

/* ERR_INVALID with the reason. A reference with neither tag nor digest gets the tag latest. */
int ref_parse(const char *text, struct ref *ret, struct error *err);
/* name:tag, or name@digest when there is a digest: the key under which the store knows it. */
void ref_format(const struct ref *ref, char ret[REF_SIZE]);
