-- SPDX-License-Identifier: Apache-2.0
-- Version 3: LinuxContainerResources of a container after its last update, and those that an update
-- under way is about to give it.

ALTER TABLE containers ADD COLUMN resources BLOB;
ALTER TABLE containers ADD COLUMN next_resources BLOB;
