BEGIN TRANSACTION;
CREATE TABLE agents (id TEXT PRIMARY KEY, name TEXT NOT NULL, description TEXT NOT NULL);
INSERT INTO "agents" VALUES('agent-5cf4600dd093801ed36d42ec','optimal','{"kind":"optimal","version":1}');
INSERT INTO "agents" VALUES('agent-0ff028f046e6d8cd7dfec508','random','{"kind":"random","version":1}');
CREATE TABLE artifacts (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL, tags TEXT NOT NULL
);
CREATE TABLE calls (
    id TEXT PRIMARY KEY, agent_id TEXT NOT NULL, prompt TEXT NOT NULL,
    episode_id TEXT NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL,
    state TEXT NOT NULL, lost INTEGER NOT NULL DEFAULT 0, sent REAL NOT NULL, done REAL,
    action INTEGER, failure TEXT, text TEXT, reasoning TEXT, prompt_tokens BLOB, output_tokens BLOB,
    usage TEXT, extra TEXT
);
CREATE TABLE checksums (
    kind TEXT NOT NULL, key NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID;
INSERT INTO "checksums" VALUES('agent','agent-0ff028f046e6d8cd7dfec508',-5337703309648225947);
INSERT INTO "checksums" VALUES('agent','agent-5cf4600dd093801ed36d42ec',8895874489518378141);
INSERT INTO "checksums" VALUES('cost','episode-12e2acc342967ed608812318',-4078726183264090767);
INSERT INTO "checksums" VALUES('cost','episode-21862b9709be020dc4c35aa3',-4078726183264090767);
INSERT INTO "checksums" VALUES('cost','episode-39e4ca1622e84e109d1f5193',-4078726183264090767);
INSERT INTO "checksums" VALUES('cost','episode-6eaca849af501db6a9aff7cc',-4078726183264090767);
INSERT INTO "checksums" VALUES('cost','episode-83cb5930ba95e38a0592b938',-4078726183264090767);
INSERT INTO "checksums" VALUES('cost','episode-95d2f053442035ae5d097212',-4078726183264090767);
INSERT INTO "checksums" VALUES('cost','episode-ddd72e6d222c375d67104b52',-4078726183264090767);
INSERT INTO "checksums" VALUES('cost','episode-df631ed24dc88e2ff3761755',-4078726183264090767);
INSERT INTO "checksums" VALUES('count','episodes',8);
INSERT INTO "checksums" VALUES('count','rows behaviour',183);
INSERT INTO "checksums" VALUES('info','durability',-8034864500746080899);
INSERT INTO "checksums" VALUES('info','journal_mode',3854196148241702831);
INSERT INTO "checksums" VALUES('info','shard',8600017793989322749);
INSERT INTO "checksums" VALUES('said',1,1007883067380616848);
INSERT INTO "checksums" VALUES('said',2,1007883067380616848);
INSERT INTO "checksums" VALUES('said',3,1007883067380616848);
INSERT INTO "checksums" VALUES('said',4,1007883067380616848);
INSERT INTO "checksums" VALUES('said',5,1007883067380616848);
INSERT INTO "checksums" VALUES('said',6,-929168519245717995);
INSERT INTO "checksums" VALUES('said',7,-929168519245717995);
INSERT INTO "checksums" VALUES('said',8,-929168519245717995);
INSERT INTO "checksums" VALUES('study','study-1eb8537e099ec4c0560b2024',9170338244737196929);
INSERT INTO "checksums" VALUES('walk',1,-7180931770992674602);
INSERT INTO "checksums" VALUES('walk',2,1817892237153108791);
INSERT INTO "checksums" VALUES('walk',3,1465642473692439342);
INSERT INTO "checksums" VALUES('walk',4,5415899884239041354);
INSERT INTO "checksums" VALUES('walk',5,406269623346666644);
INSERT INTO "checksums" VALUES('walk',6,7329175876625164383);
INSERT INTO "checksums" VALUES('walk',7,6672117058350670327);
INSERT INTO "checksums" VALUES('walk',8,-1141114081283337556);
INSERT INTO "checksums" VALUES('world','world-1fd96f92162a0da65533f47b',8787576064435420421);
INSERT INTO "checksums" VALUES('world','world-b1df7f9b1a998361757223b1',-627897929414625738);
INSERT INTO "checksums" VALUES('rows',CAST(X'6265686176696f75720030' AS TEXT),9139495700791966799);
CREATE TABLE episodes (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    world_id TEXT NOT NULL, agent_id TEXT NOT NULL, trajectory INTEGER NOT NULL, seed INTEGER NOT NULL,
    horizon INTEGER NOT NULL, rules TEXT NOT NULL,
    agent TEXT NOT NULL, outcome TEXT NOT NULL, row INTEGER NOT NULL, col INTEGER NOT NULL, flags INTEGER NOT NULL,
    length INTEGER NOT NULL, tags TEXT NOT NULL
);
INSERT INTO "episodes" VALUES(1,'episode-ddd72e6d222c375d67104b52','world-1fd96f92162a0da65533f47b','agent-5cf4600dd093801ed36d42ec',0,3,5,'','optimal','goal',3,1,0,3,'{}');
INSERT INTO "episodes" VALUES(2,'episode-39e4ca1622e84e109d1f5193','world-1fd96f92162a0da65533f47b','agent-5cf4600dd093801ed36d42ec',1,3,5,'','optimal','goal',3,1,0,3,'{}');
INSERT INTO "episodes" VALUES(3,'episode-83cb5930ba95e38a0592b938','world-b1df7f9b1a998361757223b1','agent-5cf4600dd093801ed36d42ec',0,3,5,'','optimal','goal',1,3,0,3,'{}');
INSERT INTO "episodes" VALUES(4,'episode-df631ed24dc88e2ff3761755','world-b1df7f9b1a998361757223b1','agent-5cf4600dd093801ed36d42ec',1,3,5,'','optimal','goal',1,3,0,3,'{}');
INSERT INTO "episodes" VALUES(5,'episode-95d2f053442035ae5d097212','world-1fd96f92162a0da65533f47b','agent-0ff028f046e6d8cd7dfec508',1,3,5,'','random','goal',3,1,0,3,'{}');
INSERT INTO "episodes" VALUES(6,'episode-6eaca849af501db6a9aff7cc','world-1fd96f92162a0da65533f47b','agent-0ff028f046e6d8cd7dfec508',0,3,5,'','random','horizon',1,3,0,5,'{}');
INSERT INTO "episodes" VALUES(7,'episode-12e2acc342967ed608812318','world-b1df7f9b1a998361757223b1','agent-0ff028f046e6d8cd7dfec508',0,3,5,'','random','horizon',3,2,0,5,'{}');
INSERT INTO "episodes" VALUES(8,'episode-21862b9709be020dc4c35aa3','world-b1df7f9b1a998361757223b1','agent-0ff028f046e6d8cd7dfec508',1,3,5,'','random','horizon',3,3,0,5,'{}');
CREATE TABLE info (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "info" VALUES('durability','{"value":"process"}');
INSERT INTO "info" VALUES('journal_mode','{"value":"write-ahead log"}');
INSERT INTO "info" VALUES('shard','{"value":null}');
CREATE TABLE rows (
    source TEXT NOT NULL, number INTEGER NOT NULL, measure TEXT NOT NULL, unit TEXT NOT NULL, value REAL,
    grid_id TEXT NOT NULL, episode_id TEXT NOT NULL, step INTEGER NOT NULL, tags TEXT NOT NULL,
    PRIMARY KEY (source, number)
) WITHOUT ROWID;
INSERT INTO "rows" VALUES('behaviour',0,'success','share',0.0,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',1,'success','share',1.0,'world-1fd96f92162a0da65533f47b','episode-95d2f053442035ae5d097212',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',2,'success','share',1.0,'world-1fd96f92162a0da65533f47b','episode-ddd72e6d222c375d67104b52',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',3,'success','share',1.0,'world-1fd96f92162a0da65533f47b','episode-39e4ca1622e84e109d1f5193',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',4,'success','share',0.0,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',5,'success','share',0.0,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',6,'success','share',1.0,'world-b1df7f9b1a998361757223b1','episode-83cb5930ba95e38a0592b938',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',7,'success','share',1.0,'world-b1df7f9b1a998361757223b1','episode-df631ed24dc88e2ff3761755',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',8,'action accuracy','share',0.2,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',9,'action accuracy','share',1.0,'world-1fd96f92162a0da65533f47b','episode-95d2f053442035ae5d097212',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',10,'action accuracy','share',1.0,'world-1fd96f92162a0da65533f47b','episode-ddd72e6d222c375d67104b52',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',11,'action accuracy','share',1.0,'world-1fd96f92162a0da65533f47b','episode-39e4ca1622e84e109d1f5193',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',12,'action accuracy','share',0.4,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',13,'action accuracy','share',0.4,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',14,'action accuracy','share',1.0,'world-b1df7f9b1a998361757223b1','episode-83cb5930ba95e38a0592b938',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',15,'action accuracy','share',1.0,'world-b1df7f9b1a998361757223b1','episode-df631ed24dc88e2ff3761755',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',16,'action optimality','share',1.0,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',0,'{"agent":"random","density":0.4,"distance":3,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',17,'action optimality','share',0.0,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',1,'{"agent":"random","density":0.4,"distance":2,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',18,'action optimality','share',0.0,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',2,'{"agent":"random","density":0.4,"distance":2,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',19,'action optimality','share',0.0,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',3,'{"agent":"random","density":0.4,"distance":3,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',20,'action optimality','share',0.0,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',4,'{"agent":"random","density":0.4,"distance":4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',21,'action optimality','share',1.0,'world-1fd96f92162a0da65533f47b','episode-95d2f053442035ae5d097212',0,'{"agent":"random","density":0.4,"distance":3,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',22,'action optimality','share',1.0,'world-1fd96f92162a0da65533f47b','episode-95d2f053442035ae5d097212',1,'{"agent":"random","density":0.4,"distance":2,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',23,'action optimality','share',1.0,'world-1fd96f92162a0da65533f47b','episode-95d2f053442035ae5d097212',2,'{"agent":"random","density":0.4,"distance":1,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',24,'action optimality','share',1.0,'world-1fd96f92162a0da65533f47b','episode-ddd72e6d222c375d67104b52',0,'{"agent":"optimal","density":0.4,"distance":3,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',25,'action optimality','share',1.0,'world-1fd96f92162a0da65533f47b','episode-ddd72e6d222c375d67104b52',1,'{"agent":"optimal","density":0.4,"distance":2,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',26,'action optimality','share',1.0,'world-1fd96f92162a0da65533f47b','episode-ddd72e6d222c375d67104b52',2,'{"agent":"optimal","density":0.4,"distance":1,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',27,'action optimality','share',1.0,'world-1fd96f92162a0da65533f47b','episode-39e4ca1622e84e109d1f5193',0,'{"agent":"optimal","density":0.4,"distance":3,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',28,'action optimality','share',1.0,'world-1fd96f92162a0da65533f47b','episode-39e4ca1622e84e109d1f5193',1,'{"agent":"optimal","density":0.4,"distance":2,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',29,'action optimality','share',1.0,'world-1fd96f92162a0da65533f47b','episode-39e4ca1622e84e109d1f5193',2,'{"agent":"optimal","density":0.4,"distance":1,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',30,'action optimality','share',0.0,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',0,'{"agent":"random","density":0.4,"distance":3,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',31,'action optimality','share',1.0,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',1,'{"agent":"random","density":0.4,"distance":3,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',32,'action optimality','share',1.0,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',2,'{"agent":"random","density":0.4,"distance":2,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',33,'action optimality','share',0.0,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',3,'{"agent":"random","density":0.4,"distance":1,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',34,'action optimality','share',0.0,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',4,'{"agent":"random","density":0.4,"distance":2,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',35,'action optimality','share',1.0,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',0,'{"agent":"random","density":0.4,"distance":3,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',36,'action optimality','share',1.0,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',1,'{"agent":"random","density":0.4,"distance":2,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',37,'action optimality','share',0.0,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',2,'{"agent":"random","density":0.4,"distance":1,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',38,'action optimality','share',0.0,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',3,'{"agent":"random","density":0.4,"distance":1,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',39,'action optimality','share',0.0,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',4,'{"agent":"random","density":0.4,"distance":1,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',40,'action optimality','share',1.0,'world-b1df7f9b1a998361757223b1','episode-83cb5930ba95e38a0592b938',0,'{"agent":"optimal","density":0.4,"distance":3,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',41,'action optimality','share',1.0,'world-b1df7f9b1a998361757223b1','episode-83cb5930ba95e38a0592b938',1,'{"agent":"optimal","density":0.4,"distance":2,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',42,'action optimality','share',1.0,'world-b1df7f9b1a998361757223b1','episode-83cb5930ba95e38a0592b938',2,'{"agent":"optimal","density":0.4,"distance":1,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',43,'action optimality','share',1.0,'world-b1df7f9b1a998361757223b1','episode-df631ed24dc88e2ff3761755',0,'{"agent":"optimal","density":0.4,"distance":3,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',44,'action optimality','share',1.0,'world-b1df7f9b1a998361757223b1','episode-df631ed24dc88e2ff3761755',1,'{"agent":"optimal","density":0.4,"distance":2,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',45,'action optimality','share',1.0,'world-b1df7f9b1a998361757223b1','episode-df631ed24dc88e2ff3761755',2,'{"agent":"optimal","density":0.4,"distance":1,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',46,'steps to goal','steps',NULL,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',47,'steps to goal','steps',3.0,'world-1fd96f92162a0da65533f47b','episode-95d2f053442035ae5d097212',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',48,'steps to goal','steps',3.0,'world-1fd96f92162a0da65533f47b','episode-ddd72e6d222c375d67104b52',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',49,'steps to goal','steps',3.0,'world-1fd96f92162a0da65533f47b','episode-39e4ca1622e84e109d1f5193',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',50,'steps to goal','steps',NULL,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',51,'steps to goal','steps',NULL,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',52,'steps to goal','steps',3.0,'world-b1df7f9b1a998361757223b1','episode-83cb5930ba95e38a0592b938',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',53,'steps to goal','steps',3.0,'world-b1df7f9b1a998361757223b1','episode-df631ed24dc88e2ff3761755',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',54,'path ratio','ratio',NULL,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',55,'path ratio','ratio',1.0,'world-1fd96f92162a0da65533f47b','episode-95d2f053442035ae5d097212',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',56,'path ratio','ratio',1.0,'world-1fd96f92162a0da65533f47b','episode-ddd72e6d222c375d67104b52',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',57,'path ratio','ratio',1.0,'world-1fd96f92162a0da65533f47b','episode-39e4ca1622e84e109d1f5193',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',58,'path ratio','ratio',NULL,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',59,'path ratio','ratio',NULL,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',60,'path ratio','ratio',1.0,'world-b1df7f9b1a998361757223b1','episode-83cb5930ba95e38a0592b938',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',61,'path ratio','ratio',1.0,'world-b1df7f9b1a998361757223b1','episode-df631ed24dc88e2ff3761755',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',62,'success weighted by path length','share',0.0,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',63,'success weighted by path length','share',1.0,'world-1fd96f92162a0da65533f47b','episode-95d2f053442035ae5d097212',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',64,'success weighted by path length','share',1.0,'world-1fd96f92162a0da65533f47b','episode-ddd72e6d222c375d67104b52',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',65,'success weighted by path length','share',1.0,'world-1fd96f92162a0da65533f47b','episode-39e4ca1622e84e109d1f5193',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',66,'success weighted by path length','share',0.0,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',67,'success weighted by path length','share',0.0,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',68,'success weighted by path length','share',1.0,'world-b1df7f9b1a998361757223b1','episode-83cb5930ba95e38a0592b938',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',69,'success weighted by path length','share',1.0,'world-b1df7f9b1a998361757223b1','episode-df631ed24dc88e2ff3761755',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',70,'invalid turns','share',0.0,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',71,'invalid turns','share',0.0,'world-1fd96f92162a0da65533f47b','episode-95d2f053442035ae5d097212',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',72,'invalid turns','share',0.0,'world-1fd96f92162a0da65533f47b','episode-ddd72e6d222c375d67104b52',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',73,'invalid turns','share',0.0,'world-1fd96f92162a0da65533f47b','episode-39e4ca1622e84e109d1f5193',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',74,'invalid turns','share',0.0,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',75,'invalid turns','share',0.0,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',76,'invalid turns','share',0.0,'world-b1df7f9b1a998361757223b1','episode-83cb5930ba95e38a0592b938',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',77,'invalid turns','share',0.0,'world-b1df7f9b1a998361757223b1','episode-df631ed24dc88e2ff3761755',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',78,'wall bumps','share',0.4,'world-1fd96f92162a0da65533f47b','episode-6eaca849af501db6a9aff7cc',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',79,'wall bumps','share',0.0,'world-1fd96f92162a0da65533f47b','episode-95d2f053442035ae5d097212',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',80,'wall bumps','share',0.0,'world-1fd96f92162a0da65533f47b','episode-ddd72e6d222c375d67104b52',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',81,'wall bumps','share',0.0,'world-1fd96f92162a0da65533f47b','episode-39e4ca1622e84e109d1f5193',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',82,'wall bumps','share',0.2,'world-b1df7f9b1a998361757223b1','episode-12e2acc342967ed608812318',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',83,'wall bumps','share',0.4,'world-b1df7f9b1a998361757223b1','episode-21862b9709be020dc4c35aa3',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',84,'wall bumps','share',0.0,'world-b1df7f9b1a998361757223b1','episode-83cb5930ba95e38a0592b938',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',85,'wall bumps','share',0.0,'world-b1df7f9b1a998361757223b1','episode-df631ed24dc88e2ff3761755',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',86,'policy entropy','bits',5.1699250014423125954e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',87,'policy entropy','bits',0.2,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',88,'policy entropy','bits',0.896240625180289,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',89,'policy entropy','bits',0.0,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',90,'policy entropy, optimal baseline','bits',1.37744375108173444655e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',91,'policy entropy, optimal baseline','bits',0.1,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',92,'policy entropy, optimal baseline','bits',1.72180468885216791941e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',93,'policy entropy, optimal baseline','bits',1.66666666666666657414e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',94,'policy entropy, excess','bits',3.79248125036057814885e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',95,'policy entropy, excess','bits',0.1,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',96,'policy entropy, excess','bits',7.24060156295072254728e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',97,'policy entropy, excess','bits',-1.66666666666666657414e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',98,'policy entropy, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',99,'policy entropy, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',100,'policy entropy, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',101,'policy entropy, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',102,'policy entropy, optimal baseline, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',103,'policy entropy, optimal baseline, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',104,'policy entropy, optimal baseline, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',105,'policy entropy, optimal baseline, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',106,'policy entropy, excess, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',107,'policy entropy, excess, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',108,'policy entropy, excess, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',109,'policy entropy, excess, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',110,'JSD from optimal','bits',5.00430525816048410447e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',111,'JSD from optimal','bits',6.22556248918265664471e-02,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',112,'JSD from optimal','bits',4.53357688384843804385e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',113,'JSD from optimal','bits',1.03759374819710939452e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',114,'JSD from optimal, optimal baseline','bits',0.0809276570583694,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',115,'JSD from optimal, optimal baseline','bits',9.33834373377398496707e-02,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',116,'JSD from optimal, optimal baseline','bits',1.01159571322961758244e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',117,'JSD from optimal, optimal baseline','bits',5.18796874098554697263e-02,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',118,'JSD from optimal, excess','bits',0.419502868757679,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',119,'JSD from optimal, excess','bits',-3.11278124459132832235e-02,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',120,'JSD from optimal, excess','bits',0.352198117061882,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',121,'JSD from optimal, excess','bits',5.18796874098554697263e-02,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',122,'JSD from optimal, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',123,'JSD from optimal, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',124,'JSD from optimal, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',125,'JSD from optimal, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',126,'JSD from optimal, optimal baseline, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',127,'JSD from optimal, optimal baseline, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',128,'JSD from optimal, optimal baseline, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',129,'JSD from optimal, optimal baseline, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',130,'JSD from optimal, excess, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',131,'JSD from optimal, excess, 5+ visits','bits',NULL,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',132,'JSD from optimal, excess, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',133,'JSD from optimal, excess, 5+ visits','bits',NULL,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',134,'policy entropy, excess, per visit','bits',5.86090234442608326581e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',135,'policy entropy, excess, per visit','bits',1.66666666666666657414e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',136,'policy entropy, excess, per visit','bits',8.68872187554086794492e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',137,'policy entropy, excess, per visit','bits',-1.66666666666666657414e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',138,'JSD from optimal, excess, per visit','bits',4.11567878920648166918e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',139,'JSD from optimal, excess, per visit','bits',-5.18796874098554697263e-02,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',140,'JSD from optimal, excess, per visit','bits',4.9150992802834514439e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',141,'JSD from optimal, excess, per visit','bits',5.18796874098554697263e-02,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',142,'calibration error','share',0.375,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',143,'calibration error','share',1.66666666666666657414e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',144,'calibration error','share',0.3,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',145,'calibration error','share',0.0,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',146,'calibration error, optimal baseline','share',0.125,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',147,'calibration error, optimal baseline','share',8.33333333333333703407e-02,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',148,'calibration error, optimal baseline','share',9.99999999999999777955e-02,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',149,'calibration error, optimal baseline','share',8.33333333333333703407e-02,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',150,'calibration error, excess','share',0.25,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',151,'calibration error, excess','share',8.3333333333333287074e-02,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',152,'calibration error, excess','share',0.2,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',153,'calibration error, excess','share',-8.33333333333333703407e-02,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',154,'visits per state','visits',1.6,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',155,'visits per state','visits',1.2,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',156,'visits per state','visits',2.5,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',157,'visits per state','visits',2.0,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',158,'states under 5 visits','share',1.0,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',159,'states under 5 visits','share',1.0,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',160,'states under 5 visits','share',1.0,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',161,'states under 5 visits','share',1.0,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',162,'states without an optimal action','states',0.0,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',163,'states without an optimal action','states',0.0,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',164,'states without an optimal action','states',0.0,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',165,'states without an optimal action','states',0.0,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',166,'JSD from optimal, by distance','bits',0.0,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"distance":1,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',167,'JSD from optimal, by distance','bits',6.55639062229566471629e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"distance":2,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',168,'JSD from optimal, by distance','bits',1.90874504621109220003e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"distance":3,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',169,'JSD from optimal, by distance','bits',1.0,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"distance":4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',170,'JSD from optimal, by distance','bits',0.0,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"distance":1,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',171,'JSD from optimal, by distance','bits',1.55639062229566416117e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"distance":2,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',172,'JSD from optimal, by distance','bits',0.0,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"distance":3,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',173,'JSD from optimal, by distance','bits',1.0,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"distance":1,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',174,'JSD from optimal, by distance','bits',3.11278124459132832235e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"distance":2,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',175,'JSD from optimal, by distance','bits',1.90874504621109220003e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"distance":3,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',176,'JSD from optimal, by distance','bits',0.0,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"distance":1,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',177,'JSD from optimal, by distance','bits',0.0,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"distance":2,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',178,'JSD from optimal, by distance','bits',3.11278124459132832235e-01,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"distance":3,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',179,'Jaccard similarity','share',1.66666666666666657414e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"random","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',180,'Jaccard similarity','share',3.33333333333333314829e-01,'world-1fd96f92162a0da65533f47b','',-1,'{"agent":"optimal","density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',181,'Jaccard similarity','share',0.75,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"random","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "rows" VALUES('behaviour',182,'Jaccard similarity','share',1.0,'world-b1df7f9b1a998361757223b1','',-1,'{"agent":"optimal","density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
CREATE TABLE sessions (number INTEGER PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE steps (
    episode INTEGER NOT NULL, step INTEGER NOT NULL,
    row INTEGER NOT NULL, col INTEGER NOT NULL, flags INTEGER NOT NULL,
    action INTEGER, failure TEXT, text TEXT, reasoning TEXT, prompt_tokens BLOB, output_tokens BLOB,
    reward REAL, extra TEXT,
    PRIMARY KEY (episode, step)
) WITHOUT ROWID;
INSERT INTO "steps" VALUES(1,0,2,3,0,2,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(1,1,2,2,0,2,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(1,2,2,1,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(2,0,2,3,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(2,1,3,3,0,2,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(2,2,3,2,0,2,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(3,0,3,2,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(3,1,3,3,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(3,2,2,3,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(4,0,3,2,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(4,1,3,3,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(4,2,2,3,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(5,0,2,3,0,2,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(5,1,2,2,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(5,2,3,2,0,2,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(6,0,2,3,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(6,1,3,3,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(6,2,3,3,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(6,3,2,3,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(6,4,1,3,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(7,0,3,2,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(7,1,3,2,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(7,2,3,3,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(7,3,2,3,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(7,4,3,3,0,2,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(8,0,3,2,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(8,1,2,2,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(8,2,2,3,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(8,3,2,3,0,3,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
INSERT INTO "steps" VALUES(8,4,2,3,0,1,NULL,NULL,NULL,NULL,NULL,NULL,'{}');
CREATE TABLE study (id TEXT PRIMARY KEY, name TEXT NOT NULL, document TEXT NOT NULL);
INSERT INTO "study" VALUES('study-1eb8537e099ec4c0560b2024','stored','{"name": "stored", "seed": 3, "worlds": [{"fog_radius": null, "transforms": ["identity"], "kind": "grid", "sizes": [5], "densities": [0.4], "count": 2, "minimum_distance": 1}], "agents": [{"kind": "optimal"}, {"kind": "random"}], "trajectories": 2, "horizon": {"factor": 1.5}, "history": "none", "failure": {"policy": "step", "retries": 0, "then": "step"}, "durability": "process"}');
CREATE TABLE usage (
    episode_id TEXT NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (episode_id, step, attempt, name)
) WITHOUT ROWID;
CREATE TABLE worlds (
    id TEXT PRIMARY KEY, grid TEXT NOT NULL, fog_radius INTEGER, cluster TEXT NOT NULL, tags TEXT NOT NULL
);
INSERT INTO "worlds" VALUES('world-1fd96f92162a0da65533f47b','  0 1 2 3 4
0 # # # # #
1 # _ # _ #
2 # _ _ A #
3 # G _ _ #
4 # # # # #',NULL,'world-1fd96f92162a0da65533f47b','{"density":0.4,"index":0,"kind":"grid","size":5,"transform":"identity"}');
INSERT INTO "worlds" VALUES('world-b1df7f9b1a998361757223b1','  0 1 2 3 4
0 # # # # #
1 # _ _ G #
2 # # _ _ #
3 # _ A _ #
4 # # # # #',NULL,'world-b1df7f9b1a998361757223b1','{"density":0.4,"index":1,"kind":"grid","size":5,"transform":"identity"}');
CREATE INDEX episodes_in_order ON episodes (world_id, agent_id, trajectory, id);
COMMIT;
