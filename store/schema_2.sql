-- SPDX-License-Identifier: Apache-2.0
-- Version 2: what of a stream could not be logged, and how much of that no record in the log says yet.

ALTER TABLE streams ADD COLUMN dropped_out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE streams ADD COLUMN dropped_err INTEGER NOT NULL DEFAULT 0;
ALTER TABLE streams ADD COLUMN unreported_out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE streams ADD COLUMN unreported_err INTEGER NOT NULL DEFAULT 0;
