/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 by libcrypto. A failure there is one of memory or of the installation, so it aborts. */
#include "store/image/digest.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool digest_is_hex(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'a' && text[i] <= 'f'))
			return false;
	return true;
}

bool digest_is_valid(const char *text)
{
	size_t prefix = strlen(DIGEST_PREFIX);

	return text && strlen(text) == prefix + DIGEST_HEX &&
	       !strncmp(text, DIGEST_PREFIX, prefix) && digest_is_hex(text + prefix, DIGEST_HEX);
}

const char *digest_hex(const char *digest)
{
	return digest + strlen(DIGEST_PREFIX);
}

struct digest_state *digest_new(void)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();

	if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1)
		abort();
	return (struct digest_state *)ctx;
}

void digest_add(struct digest_state *d, const void *data, size_t n)
{
	if (EVP_DigestUpdate((EVP_MD_CTX *)d, data, n) != 1)
		abort();
}

void digest_end(struct digest_state *d, char ret[DIGEST_SIZE])
{
	unsigned char raw[EVP_MAX_MD_SIZE];
	char *p = ret + strlen(DIGEST_PREFIX);

	if (EVP_DigestFinal_ex((EVP_MD_CTX *)d, raw, NULL) != 1)
		abort();
	digest_free(d);
	memcpy(ret, DIGEST_PREFIX, strlen(DIGEST_PREFIX));
	for (int i = 0; i < DIGEST_HEX / 2; i++, p += 2)
		sprintf(p, "%02x", raw[i]);
}

void digest_free(struct digest_state *d)
{
	EVP_MD_CTX_free((EVP_MD_CTX *)d);
}

void digest_of(const void *data, size_t n, char ret[DIGEST_SIZE])
{
	struct digest_state *d = digest_new();

	digest_add(d, data, n);
	digest_end(d, ret);
}

void digest_chain(const char *parent, const char *diff_id, char ret[DIGEST_SIZE])
{
	struct digest_state *d;

	if (!parent) {
		memmove(ret, diff_id, DIGEST_SIZE);
		return;
	}
	d = digest_new();
	digest_add(d, parent, strlen(parent));
	digest_add(d, " ", 1);
	digest_add(d, diff_id, strlen(diff_id));
	digest_end(d, ret);
}
