/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intrusive doubly linked list. A node is embedded; an initialised node that is in no list points
 * at itself, so list_remove() is harmless twice.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_is_empty(const struct list *l)
{
	return l->next == l;
}

/* Puts node before the head, that is last. */
static inline void list_append(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void list_prepend(struct list *head, struct list *node)
{
	list_append(head->next, node);
}

static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

#define list_first(head, type, member)                                                             \
	(list_is_empty(head) ? NULL : container_of((head)->next, type, member))

#define list_for_each(it, head, type, member)                                                      \
	for (type *it = container_of((head)->next, type, member); &it->member != (head);           \
	     it = container_of(it->member.next, type, member))

/* The current element may be removed (and freed) in the body. */
#define list_for_each_safe(it, head, type, member)                                                 \
	for (type *it = container_of((head)->next, type, member),                                  \
		  *it##_next = container_of(it->member.next, type, member);                        \
	     &it->member != (head);                                                                \
	     it = it##_next, it##_next = container_of(it->member.next, type, member))
