/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Content digests in the form "sha256:" and 64 lower-case hex digits; no other form or algorithm is
 * let in, since digests become file names (CVE-2024-3727).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define DIGEST_PREFIX "sha256:"
#define DIGEST_HEX 64
#define DIGEST_SIZE 72 /* with its NUL */

bool digest_is_valid(const char *text);
bool digest_is_hex(const char *text, size_t n);
/* The hex digits of a valid digest. */
const char *digest_hex(const char *digest);

struct digest_state;

struct digest_state *digest_new(void);
void digest_add(struct digest_state *d, const void *data, size_t n);
/* Writes the digest and frees the state. */
void digest_end(struct digest_state *d, char ret[DIGEST_SIZE]);
void digest_free(struct digest_state *d);

void digest_of(const void *data, size_t n, char ret[DIGEST_SIZE]);
/* The chain id of a layer on its parent's chain id (NULL for the lowest): image-spec, config.md. */
void digest_chain(const char *parent, const char *diff_id, char ret[DIGEST_SIZE]);
