BEGIN TRANSACTION;
CREATE TABLE agents (id TEXT PRIMARY KEY, name TEXT NOT NULL, description TEXT NOT NULL);
INSERT INTO "agents" VALUES('agent-5cf4600dd093801ed36d42ec','optimal','{"kind":"optimal","version":1}');
INSERT INTO "agents" VALUES('agent-0ff028f046e6d8cd7dfec508','random','{"kind":"random","version":1}');
CREATE TABLE artifacts (id TEXT PRIMARY KEY, kind TEXT NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL, tags TEXT NOT NULL);
CREATE TABLE calls (id TEXT PRIMARY KEY, agent_id TEXT NOT NULL, prompt TEXT NOT NULL, episode_id TEXT NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL, lost INTEGER NOT NULL DEFAULT 0, sent REAL NOT NULL, done REAL, action INTEGER, failure TEXT, text TEXT, reasoning TEXT, prompt_tokens BLOB, output_tokens BLOB, usage TEXT, extra TEXT);
CREATE TABLE episodes (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, world_id TEXT NOT NULL, agent_id TEXT NOT NULL, trajectory INTEGER NOT NULL, seed INTEGER NOT NULL, horizon INTEGER NOT NULL, rules TEXT NOT NULL, agent TEXT NOT NULL, outcome TEXT NOT NULL, row INTEGER NOT NULL, col INTEGER NOT NULL, flags INTEGER NOT NULL, length INTEGER NOT NULL, tags TEXT NOT NULL);
INSERT INTO "episodes" VALUES(1,'episode-01ad81f4afd5ffe0b952667a','world-106a30b26583be7f3c5634ae','agent-5cf4600dd093801ed36d42ec',0,3,6,'','optimal','goal',1,3,0,1,'{}');
INSERT INTO "episodes" VALUES(2,'episode-8eedd92eaad6a4cdd95ceb21','world-eee4ae5c516a38c7e67f48aa','agent-5cf4600dd093801ed36d42ec',0,3,6,'','optimal','horizon',3,6,0,6,'{}');
INSERT INTO "episodes" VALUES(3,'episode-af06304d136e8614fa827bb7','world-e08e5e7f9903b972dbfe8c07','agent-5cf4600dd093801ed36d42ec',0,3,6,'','optimal','horizon',5,4,0,6,'{}');
INSERT INTO "episodes" VALUES(4,'episode-5a04ec5005b0cce7a40ffac2','world-106a30b26583be7f3c5634ae','agent-0ff028f046e6d8cd7dfec508',0,3,6,'','random','goal',1,3,0,4,'{}');
INSERT INTO "episodes" VALUES(5,'episode-28c207bd1a31142b995dbc7d','world-eee4ae5c516a38c7e67f48aa','agent-0ff028f046e6d8cd7dfec508',0,3,6,'','random','horizon',5,7,0,6,'{}');
INSERT INTO "episodes" VALUES(6,'episode-d6277a5ffe8aa540042cd168','world-e08e5e7f9903b972dbfe8c07','agent-0ff028f046e6d8cd7dfec508',0,3,6,'','random','horizon',7,7,0,6,'{}');
CREATE TABLE info (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "info" VALUES('durability','{"value":"process"}');
INSERT INTO "info" VALUES('journal_mode','{"value":"write-ahead log"}');
CREATE TABLE row_groups (source TEXT NOT NULL, number INTEGER NOT NULL, count INTEGER NOT NULL, measures TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (source, number));
CREATE TABLE checksums (kind TEXT NOT NULL, key NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE TABLE sessions (number INTEGER PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE steps (episode INTEGER NOT NULL, step INTEGER NOT NULL, row INTEGER NOT NULL, col INTEGER NOT NULL, flags INTEGER NOT NULL, action INTEGER, failure TEXT, text TEXT, reasoning TEXT, prompt_tokens BLOB, output_tokens BLOB, reward REAL, extra TEXT, PRIMARY KEY (episode, step)) WITHOUT ROWID;
INSERT INTO "steps" VALUES(1,0,1,2,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(2,0,6,5,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(2,1,7,5,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(2,2,7,6,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(2,3,6,6,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(2,4,5,6,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(2,5,4,6,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(3,0,6,5,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(3,1,7,5,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(3,2,7,6,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(3,3,6,6,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(3,4,5,6,0,2,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(3,5,5,5,0,2,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(4,0,1,2,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(4,1,1,2,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(4,2,1,2,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(4,3,1,2,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(5,0,6,5,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(5,1,7,5,0,2,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(5,2,7,5,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(5,3,6,5,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(5,4,6,6,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(5,5,6,7,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(6,0,6,5,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(6,1,6,6,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(6,2,7,6,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(6,3,7,6,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(6,4,7,7,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(6,5,7,7,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
CREATE TABLE study (id TEXT PRIMARY KEY, name TEXT NOT NULL, document TEXT NOT NULL);
INSERT INTO "study" VALUES('study-b04b5703c66f52b9b8dd8d42','stored grids','{"name": "stored grids", "seed": 3, "worlds": [{"fog_radius": null, "transforms": ["identity"], "kind": "grid", "sizes": [5], "densities": [0.6], "count": 1, "minimum_distance": 1}, {"fog_radius": 2, "transforms": ["identity"], "kind": "key-door", "count": 1, "control": true}], "agents": [{"kind": "optimal"}, {"kind": "random"}], "trajectories": 1, "horizon": {"steps": 6}, "history": "none", "failure": {"policy": "step", "retries": 0, "then": "step"}, "durability": "process"}');
CREATE TABLE usage (episode_id TEXT NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (episode_id, step, attempt, name)) WITHOUT ROWID;
CREATE TABLE worlds (id TEXT PRIMARY KEY, grid TEXT NOT NULL, fog_radius INTEGER, cluster TEXT NOT NULL, tags TEXT NOT NULL);
INSERT INTO "worlds" VALUES('world-106a30b26583be7f3c5634ae','  0 1 2 3 4
0 # # # # #
1 # _ A G #
2 # _ # _ #
3 # _ # _ #
4 # # # # #',NULL,'world-106a30b26583be7f3c5634ae','{"density":0.6,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "worlds" VALUES('world-eee4ae5c516a38c7e67f48aa','  0 1 2 3 4 5 6 7 8
0 # # # # # # # # #
1 # _ _ _ _ _ _ _ #
2 # _ _ _ # _ _ K #
3 # _ _ _ # _ _ _ #
4 # # # # # # _ # #
5 # _ _ G D _ _ _ #
6 # _ _ _ # A _ _ #
7 # _ _ _ # _ _ _ #
8 # # # # # # # # #',2,'world-751911c1b53b5fe72d6e9370','{"control":false,"fog_radius":2,"index":0,"kind":"key-door","size":9,"transform":"identity"}');
INSERT INTO "worlds" VALUES('world-e08e5e7f9903b972dbfe8c07','  0 1 2 3 4 5 6 7 8
0 # # # # # # # # #
1 # _ _ _ _ _ _ _ #
2 # _ _ _ # _ _ _ #
3 # _ _ _ # _ _ _ #
4 # # # # # # _ # #
5 # _ _ G _ _ _ _ #
6 # _ _ _ # A _ _ #
7 # _ _ _ # _ _ _ #
8 # # # # # # # # #',2,'world-751911c1b53b5fe72d6e9370','{"control":true,"fog_radius":2,"index":0,"kind":"key-door","size":9,"transform":"identity"}');
CREATE INDEX episodes_in_order ON episodes (world_id, agent_id, trajectory, id);
COMMIT;
