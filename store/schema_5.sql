-- SPDX-License-Identifier: Apache-2.0
-- Version 5: what a container's CDI devices mean, as found when it was created.

ALTER TABLE containers ADD COLUMN edits BLOB;
