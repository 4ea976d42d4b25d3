-- SPDX-License-Identifier: Apache-2.0
-- Version 4: UpdatePodSandboxResourcesRequest of a sandbox as its last update left its limits, and as
-- one under way is about to leave them.

ALTER TABLE sandboxes ADD COLUMN resources BLOB;
ALTER TABLE sandboxes ADD COLUMN next_resources BLOB;
