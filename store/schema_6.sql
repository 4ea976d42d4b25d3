-- SPDX-License-Identifier: Apache-2.0
-- Version 6: what a sandbox's handler meant when it was made.

ALTER TABLE sandboxes ADD COLUMN options TEXT;
