/* SPDX-License-Identifier: Apache-2.0 */
/* crisp fsck: finds, and with --fix removes, what is damaged or nobody's in a node's directories.
 */
#pragma once

/* Returns the exit status, as fsck(8) has them: 0 nothing was found, 1 all was fixed, 4 something
 * is left, 8 it could not be looked at (a server runs), 16 wrong options. */
int fsck_main(int argc, char **argv);
