/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All fault points, sorted: FAULT_POINTS(X) is X(name) for each. Every one stands right behind what
 * its name says, so that a server that dies there has done that and nothing after it. tests/restart
 * reads the names from here and wants each to be passed.
 */
#pragma once

#define FAULT_POINTS(X)                                                                            \
	X(cgroup_made)                                                                             \
	X(cgroup_removed)                                                                          \
	X(container_created)                                                                       \
	X(container_drained)                                                                       \
	X(container_exit_committed)                                                                \
	X(container_recovered)                                                                     \
	X(container_running_committed)                                                             \
	X(container_signalled)                                                                     \
	X(descriptor_kept)                                                                         \
	X(directories_made)                                                                        \
	X(fifos_made)                                                                              \
	X(image_committed)                                                                         \
	X(layer_moved)                                                                             \
	X(layer_unpacked)                                                                          \
	X(limits_changed)                                                                          \
	X(log_written)                                                                             \
	X(namespaces_made)                                                                         \
	X(pin_dropped)                                                                             \
	X(pin_put)                                                                                 \
	X(process_born)                                                                            \
	X(process_released)                                                                        \
	X(sandbox_ended)                                                                           \
	X(sandbox_recovered)                                                                       \
	X(spool_given_back)                                                                        \
	X(store_committed)                                                                         \
	X(store_written)                                                                           \
	X(stream_spliced)                                                                          \
	X(tree_removed)                                                                            \
	X(update_intended)                                                                         \
	X(world_swept)
