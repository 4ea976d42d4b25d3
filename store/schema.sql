-- SPDX-License-Identifier: Apache-2.0
-- Version 1 of the store's schema. A later version is a file of its own that changes the one before
-- (db.c has the list); this one is never edited once released. Times are realtime nanoseconds.

CREATE TABLE meta (
	key TEXT PRIMARY KEY NOT NULL,
	value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sandboxes (
	id TEXT PRIMARY KEY NOT NULL,
	state INTEGER NOT NULL,
	kind TEXT NOT NULL,
	handler TEXT,
	config BLOB,            -- PodSandboxConfig as received
	record BLOB,            -- the kind's own
	created_at INTEGER NOT NULL,
	name TEXT,
	namespace TEXT,
	uid TEXT,
	attempt INTEGER NOT NULL,
	netns TEXT,
	reason TEXT
) STRICT;

CREATE TABLE containers (
	id TEXT PRIMARY KEY NOT NULL,
	sandbox_id TEXT NOT NULL,
	state INTEGER NOT NULL,
	config BLOB,            -- ContainerConfig as received
	record BLOB,            -- the kind's own
	image_id TEXT,
	image_ref TEXT,
	user_image TEXT,
	created_at INTEGER NOT NULL,
	started_at INTEGER NOT NULL,
	finished_at INTEGER NOT NULL,
	exit_code INTEGER NOT NULL,
	exit_known INTEGER NOT NULL,
	reason TEXT,
	message TEXT,
	log_path TEXT,
	pid INTEGER NOT NULL,
	uid INTEGER NOT NULL,
	gid INTEGER NOT NULL
) STRICT;
CREATE INDEX containers_by_sandbox ON containers (sandbox_id);

CREATE TABLE streams (
	container_id TEXT PRIMARY KEY NOT NULL,
	log_inode INTEGER NOT NULL,
	log_offset INTEGER NOT NULL,
	spool_out INTEGER NOT NULL,
	spool_err INTEGER NOT NULL,
	partial_out INTEGER NOT NULL,
	partial_err INTEGER NOT NULL
) STRICT;

CREATE TABLE images (
	id TEXT PRIMARY KEY NOT NULL,
	config BLOB,            -- the image config's JSON
	manifest_digest TEXT,
	chain_ids TEXT,         -- one a line, lowest first
	repo_tags TEXT,
	repo_digests TEXT,
	size_bytes INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	is_pinned INTEGER NOT NULL,
	is_removed INTEGER NOT NULL
) STRICT;

CREATE TABLE layers (
	chain_id TEXT PRIMARY KEY NOT NULL,
	diff_id TEXT,
	parent TEXT,
	size_bytes INTEGER NOT NULL,
	inodes INTEGER NOT NULL,
	state INTEGER NOT NULL,
	created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE intents (
	id INTEGER PRIMARY KEY NOT NULL,
	kind TEXT NOT NULL,
	object_id TEXT NOT NULL,
	data BLOB
) STRICT;
CREATE INDEX intents_by_object ON intents (object_id);
