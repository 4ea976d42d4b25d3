/* SPDX-License-Identifier: Apache-2.0 */
/* References. Peculiar: the text is cut from its end (digest, then tag), since a colon may also be
 * a port's; what remains is checked character by character. */
#include "store/image/ref.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_DOMAIN "docker.io"
#define DEFAULT_PREFIX "library/"
#define DEFAULT_TAG "latest"

static bool is_lower(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_alnum(char c)
{
	return is_lower(c) || (c >= 'A' && c <= 'Z');
}

/* "registry.example-1.io", an address, or "[v6]", each with an optional port */
static bool is_domain(const char *s, size_t n)
{
	size_t i = 0;

	if (n && s[0] == '[') {
		for (i = 1; i < n && (isxdigit((unsigned char)s[i]) || s[i] == ':'); i++)
			;
		if (i == 1 || i >= n || s[i++] != ']')
			return false;
	} else {
		for (; i < n && s[i] != ':'; i++) {
			bool is_edge = i == 0 || s[i - 1] == '.' || i + 1 == n || s[i + 1] == '.' ||
				       s[i + 1] == ':';

			if (!is_alnum(s[i]) && (is_edge || (s[i] != '-' && s[i] != '.')))
				return false;
		}
		if (i == 0)
			return false;
	}
	if (i == n)
		return true;
	if (s[i++] != ':' || i == n)
		return false;
	for (; i < n; i++)
		if (!isdigit((unsigned char)s[i]))
			return false;
	return true;
}

/* The length of a separator within a path component: ".", "_", "__" or any number of "-"; 0: none
 */
static size_t separator(const char *s)
{
	if (*s == '.')
		return 1;
	if (*s == '_')
		return s[1] == '_' ? 2 : 1;
	return strspn(s, "-");
}

static bool is_path(const char *s)
{
	for (;;) {
		size_t n;

		if (!is_lower(*s))
			return false;
		while (is_lower(*s))
			s++;
		if (!*s)
			return true;
		n = *s == '/' ? 1 : separator(s);
		if (!n)
			return false;
		s += n;
	}
}

static bool is_tag(const char *s)
{
	size_t n = strlen(s);

	if (n == 0 || n > REF_TAG_MAX || *s == '.' || *s == '-')
		return false;
	for (; *s; s++)
		if (!is_alnum(*s) && !strchr("_.-", *s))
			return false;
	return true;
}

/* Whether what stands before the first slash is a registry and not a part of the path. */
static bool looks_like_domain(const char *s, size_t n)
{
	if (n == strlen("localhost") && !strncmp(s, "localhost", n))
		return true;
	for (size_t i = 0; i < n; i++)
		if (s[i] == '.' || s[i] == ':' || (s[i] >= 'A' && s[i] <= 'Z'))
			return true;
	return false;
}

static int parse_name(const char *text, const char *name, struct ref *ref, struct error *err)
{
	const char *slash = strchr(name, '/');
	const char *domain = DEFAULT_DOMAIN, *path = name;
	size_t domain_length = strlen(DEFAULT_DOMAIN);
	const char *prefix;
	int n;

	if (slash && looks_like_domain(name, (size_t)(slash - name))) {
		path = slash + 1;
		if (strncmp(name, "index.docker.io/", strlen("index.docker.io/")) != 0) {
			domain = name;
			domain_length = (size_t)(slash - name);
		}
	} else if (strlen(name) == DIGEST_HEX && digest_is_hex(name, DIGEST_HEX)) {
		return error_set(err, ERR_INVALID,
				 "reference %s: 64 hex digits are an id, not a name", text);
	}
	if (!is_domain(domain, domain_length))
		return error_set(err, ERR_INVALID,
				 "reference %s: %.*s is no host name with an optional port", text,
				 (int)domain_length, domain);
	if (!is_path(path))
		return error_set(err, ERR_INVALID,
				 "reference %s: the repository may hold a-z, 0-9 and between them "
				 "one of . _ __ - or /",
				 text);
	prefix = domain_length == strlen(DEFAULT_DOMAIN) &&
				 !strncmp(domain, DEFAULT_DOMAIN, domain_length) &&
				 !strchr(path, '/')
			 ? DEFAULT_PREFIX
			 : "";
	n = snprintf(ref->name, sizeof(ref->name), "%.*s/%s%s", (int)domain_length, domain, prefix,
		     path);
	if (n > REF_NAME_MAX)
		return error_set(err, ERR_INVALID,
				 "reference: the name has %d characters, at most %d", n,
				 REF_NAME_MAX);
	return 0;
}

int ref_parse(const char *text, struct ref *ret, struct error *err)
{
	char rest[REF_SIZE];
	struct ref ref = {0};
	size_t n = strlen(text);
	char *at, *colon;

	if (n == 0)
		return error_set(err, ERR_INVALID, "reference: it is empty");
	if (n >= sizeof(rest))
		return error_set(err, ERR_INVALID, "reference: it has %zu characters, at most %zu",
				 n, sizeof(rest) - 1);
	memcpy(rest, text, n + 1);
	at = strchr(rest, '@');
	if (at) {
		*at++ = 0;
		if (!digest_is_valid(at))
			return error_set(
				err, ERR_INVALID,
				"reference %s: the digest must be sha256: and 64 lower-case "
				"hex digits",
				text);
		memcpy(ref.digest, at, DIGEST_SIZE);
	}
	colon = strrchr(rest, ':');
	if (colon && !strchr(colon, '/')) {
		*colon++ = 0;
		if (!is_tag(colon))
			return error_set(
				err, ERR_INVALID,
				"reference %s: the tag must be 1 to %d of A-Z a-z 0-9 _ . - "
				"and not begin with . or -",
				text, REF_TAG_MAX);
		memcpy(ref.tag, colon, strlen(colon) + 1);
	} else if (!at) {
		memcpy(ref.tag, DEFAULT_TAG, sizeof(DEFAULT_TAG));
	}
	TRY(parse_name(text, rest, &ref, err));
	*ret = ref;
	return 0;
}

void ref_format(const struct ref *ref, char ret[REF_SIZE])
{
	const char *end = *ref->digest ? ref->digest : ref->tag;

	snprintf(ret, REF_SIZE, "%s%c%s", ref->name, *ref->digest ? '@' : ':', end);
}
