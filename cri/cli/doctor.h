/* SPDX-License-Identifier: Apache-2.0 */
/* crisp doctor: what the node can do for containers; needs no server. */
#pragma once

/* The exit status: 1 when containers can't run, or for a wrong command line. */
int doctor_main(int argc, char **argv);
